//! The client's end of a connection of HTTP/1.1: one request at a time, and its response.
//!
//! It reads as strictly as a server does. Bytes that could be read in two ways end the connection, and so does a
//! response without a request.

use std::io::Write as _;

use nearcall_wire::Failure;

use crate::calls::{Connection, Requests};
use crate::code::{Broken, Code};
use crate::event::{Ending, Event, RequestHead, SendError, Sent, StreamId};
use crate::hpack::OVERHEAD;
use crate::options::Options;
use crate::reading::{Given, Reads};
use crate::session::{Out, Session};

use super::chunks::Chunks;
use super::endpoint::{Endpoint, Exchange, Found, Notice, Ready, connection_of_endpoint};
use super::head::{self, Framing};
use super::sending::{LAST_CHUNK, put_body, put_field};

/// The most bytes of a request's headers: most servers accept no more.
const MOST_HEADERS: usize = 64 << 10;

/// The state of one connection of HTTP/1.1 that carries calls, at a client. It does no input or output itself and never
/// waits. [`Session`] is its counterpart for HTTP/2.
#[derive(Debug)]
pub struct Http1Client {
    endpoint: Endpoint<Requesting>,
    reading: Reading,
    /// The owner waits until another request can begin.
    wants_turn: bool,
    /// `is_over`: no request can begin any more. `is_cut`: the connection is to be cut although an exchange was under
    /// way.
    is_over: bool,
    is_cut: bool,
}

/// What the next bytes belong to.
#[derive(Debug)]
enum Reading {
    /// The head of a response, if a request was sent.
    Head,
    /// This many bytes of the response's body.
    Length(u64),
    Chunks(Chunks),
}

/// The state of an exchange that only a client has.
#[derive(Debug)]
struct Requesting {
    sending: Sending,
    /// At least one side sends a stream.
    is_stream: bool,
}

/// How much of a request was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sending {
    /// This many bytes of its body are still to come.
    Length(u64),
    Chunks,
    All,
}

fn broken(why: &'static str) -> Broken {
    Broken::new(Code::PROTOCOL_ERROR, why)
}

impl Http1Client {
    /// A new connection.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let endpoint = Endpoint::new(options);
        Self { endpoint, reading: Reading::Head, wants_turn: false, is_over: false, is_cut: false }
    }

    /// Adds bytes that were read elsewhere.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.endpoint.input.feed(bytes);
    }

    /// The exchange with this number, if its request is not complete.
    fn sending(&mut self, id: StreamId) -> Result<&mut Exchange<Requesting>, SendError> {
        self.endpoint.of(id).filter(|exchange| exchange.own.sending != Sending::All).ok_or(SendError::Gone)
    }

    fn cut(&mut self) {
        (self.endpoint.exchange, self.is_cut) = (None, true);
        self.endpoint.output.sent(self.endpoint.output.len(), false);
        self.say_goodbye();
        if std::mem::take(&mut self.wants_turn) {
            self.endpoint.notices.push_back(Notice::NextTurn);
        }
    }

    /// No more requests can begin.
    fn say_goodbye(&mut self) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.endpoint.notices.push_back(Notice::Goodbye);
        }
    }

    fn step(&mut self) -> Result<Option<Ready>, Broken> {
        loop {
            if let Some(notice) = self.endpoint.notices.pop_front() {
                return Ok(Some(Ready::Notice(notice)));
            }
            let len = self.endpoint.input.len();
            if self.is_cut {
                self.endpoint.input.skip(len);
                return Ok(None);
            }
            if len == 0 {
                return Ok(None);
            }
            if self.endpoint.exchange.is_none() {
                return Err(broken("the server sends what nobody has asked for"));
            }
            let (taken, ready) = match &mut self.reading {
                Reading::Head => match self.next_head()? {
                    Some(ready) => return Ok(Some(ready)),
                    // No more than a part of a head has arrived: neither a provisional response nor a refused one.
                    None if self.endpoint.input.len() == len && self.endpoint.notices.is_empty() => return Ok(None),
                    None => continue,
                },
                Reading::Length(left) => {
                    let len = usize::try_from(*left).unwrap_or(usize::MAX).min(len);
                    let last = len as u64 == *left;
                    self.take(len, last)
                }
                Reading::Chunks(chunks) => {
                    let (skipped, len) = chunks.next(self.endpoint.input.data()).map_err(|bad| broken(bad.0))?;
                    self.endpoint.input.skip(skipped);
                    if len > 0 { self.take(len, false) } else { (0, None) }
                }
            };
            let is_over = match &mut self.reading {
                Reading::Head => false,
                Reading::Length(left) => {
                    *left -= taken as u64;
                    *left == 0
                }
                Reading::Chunks(chunks) => {
                    chunks.took(taken);
                    chunks.is_over()
                }
            };
            if is_over {
                let is_told = matches!(
                    &ready,
                    Some(
                        Ready::Here { ended: true, .. }
                            | Ready::Whole { ended: true, .. }
                            | Ready::Raw { ended: true, .. }
                    )
                );
                self.response_is_over(is_told);
            }
            if ready.is_some() {
                return Ok(ready);
            }
        }
    }

    /// Looks for a response's head. `None`: it has not arrived completely, is of a provisional response, or was
    /// refused.
    fn next_head(&mut self) -> Result<Option<Ready>, Broken> {
        let data = self.endpoint.input.data();
        // Fails early, without waiting for megabytes of another protocol.
        let start = &b"HTTP/1."[..data.len().min(7)];
        if !data.starts_with(start) {
            return Err(broken("the server does not speak HTTP/1.1"));
        }
        let len = match self.endpoint.find_head() {
            Found::Head(len) => len,
            Found::Nothing => return Ok(None),
            Found::TooLong => {
                self.refuse_head();
                return Ok(None);
            }
        };
        let endpoint = &mut self.endpoint;
        let read = head::read_response(&endpoint.input.data()[..len], &mut endpoint.fields).map_err(broken)?;
        endpoint.input.skip(len);
        let Some(head) = read else {
            self.refuse_head();
            return Ok(None);
        };
        if head.status < 200 {
            if head.status == 101 {
                return Err(broken("the server speaks another protocol from here on, which nobody has asked for"));
            }
            self.endpoint.patience.spend("the server sends too many provisional responses")?;
            return Ok(None);
        }
        let Some(exchange) = self.endpoint.exchange.as_mut() else { return Ok(None) };
        self.endpoint.patience.earn(1);
        exchange.closes = head.closes;
        let (id, status) = (exchange.id, head.status);
        self.reading = match head.framing {
            Framing::Length(0) => {
                self.response_is_over(false);
                Reading::Head
            }
            Framing::Length(len) => Reading::Length(len),
            Framing::Chunked => Reading::Chunks(Chunks::new()),
        };
        Ok(Some(Ready::Response { id, status }))
    }

    /// Refuses a response with more headers than this side accepts.
    fn refuse_head(&mut self) {
        let why = "the response has more metadata than this side takes";
        if let Some(exchange) = &self.endpoint.exchange {
            self.endpoint.notices.push_back(Notice::Refused(exchange.id, Failure::RESOURCE_EXHAUSTED, why.into()));
        }
        self.cut();
    }

    /// Takes up to `len` bytes of the body. Returns how many it took, and the event they made.
    fn take(&mut self, len: usize, last: bool) -> (usize, Option<Ready>) {
        let (taken, ready) = self.endpoint.take(len, last);
        if matches!(ready, Some(Ready::Notice(Notice::Refused(..)))) {
            self.cut();
        }
        (taken, ready)
    }

    /// The whole response has arrived. `is_told`: an event that says so is on its way.
    fn response_is_over(&mut self, is_told: bool) {
        let limits = self.endpoint.limits();
        self.reading = Reading::Head;
        let Some(mut exchange) = self.endpoint.exchange.take() else { return };
        let id = exchange.id;
        if !is_told {
            self.endpoint.notices.push_back(match exchange.reader.end(limits) {
                Given::Message { message, compressed, .. } => Notice::Last(id, message, compressed),
                Given::Refused(code, why) => Notice::Refused(id, code, why),
                Given::End(end) => Notice::Ended(id, Ending::Stream(end)),
                Given::Nothing | Given::Here(_) => Notice::Ended(id, Ending::Plain),
            });
        }
        if exchange.own.sending != Sending::All {
            // Half a request cannot be taken back, and the server needs no more of it.
            self.cut();
        } else if exchange.closes {
            self.say_goodbye();
        }
        if std::mem::take(&mut self.wants_turn) {
            self.endpoint.notices.push_back(Notice::NextTurn);
        }
    }
}

impl Connection for Http1Client {
    connection_of_endpoint!();

    fn has_arrived(&self) -> bool {
        !self.endpoint.notices.is_empty() || self.endpoint.input.len() > 0
    }

    /// Not while as much waits for the application as may.
    fn takes_more(&self) -> bool {
        self.endpoint.takes_more()
    }

    fn may_end(&self) -> bool {
        true
    }

    fn is_cut(&self) -> bool {
        self.is_cut
    }
}

impl Requests for Http1Client {
    fn next_event(&mut self) -> Result<Option<Event<'_>>, Broken> {
        self.endpoint.check()?;
        let step = self.step();
        self.endpoint.event(step)
    }

    /// # Errors
    /// Nothing was begun: [`SendError::TooManyStreams`], [`SendError::Occupied`], [`SendError::GoingAway`],
    /// [`SendError::Unfit`], [`SendError::TooMuchMetadata`].
    fn request(&mut self, head: &RequestHead<'_>, ends: bool) -> Result<StreamId, SendError> {
        if self.is_over || self.endpoint.check().is_err() {
            return Err(SendError::GoingAway);
        }
        match &self.endpoint.exchange {
            // The caller of that stream may be the one that asks here, and would wait for itself.
            Some(exchange) if exchange.own.is_stream => return Err(SendError::Occupied),
            Some(_) => {
                self.wants_turn = true;
                return Err(SendError::TooManyStreams);
            }
            None => {}
        }
        for (what, text) in [("path", head.path), ("authority", head.authority)] {
            if !text.bytes().all(|octet| octet.is_ascii_graphic()) {
                return Err(SendError::Unfit(format!("the {what} {text:?} has characters that HTTP cannot carry")));
            }
        }
        let len: usize = head.headers.iter().map(|(name, value)| name.len() + value.len() + OVERHEAD).sum();
        if len > MOST_HEADERS {
            return Err(SendError::TooMuchMetadata { len, limit: MOST_HEADERS });
        }
        let announced = head.headers.iter().find(|(name, _)| *name == "content-length");
        let announced = announced.and_then(|(_, value)| crate::fields::decimal(value));
        let sending = match announced {
            _ if ends => Sending::All,
            Some(len) => Sending::Length(len),
            None => Sending::Chunks,
        };
        let out = self.endpoint.output.buffer();
        let _ = write!(out, "{} {} HTTP/1.1\r\n", head.method, head.path);
        put_field(out, "host", head.authority.as_bytes());
        for (name, value) in head.headers {
            put_field(out, name, value);
        }
        if sending == Sending::Chunks {
            put_field(out, "transfer-encoding", b"chunked");
        }
        out.extend_from_slice(b"\r\n");
        let is_stream = sending == Sending::Chunks;
        Ok(self.endpoint.begin(false, Requesting { sending, is_stream }))
    }

    /// It is accepted however much waits, so the owner has to look at the result.
    fn send_data(&mut self, id: StreamId, pieces: &[&[u8]], last: bool, _out: Out<'_>) -> Result<Sent, SendError> {
        let is_chunked = self.sending(id)?.own.sending == Sending::Chunks;
        let len = put_body(self.endpoint.output.buffer(), pieces, is_chunked);
        if let Sending::Length(left) = &mut self.sending(id)?.own.sending {
            *left = left.saturating_sub(len as u64);
        }
        if last {
            self.end(id)?;
            return Ok(Sent::Ready);
        }
        Ok(self.endpoint.has_sent_part())
    }

    fn end(&mut self, id: StreamId) -> Result<(), SendError> {
        if std::mem::replace(&mut self.sending(id)?.own.sending, Sending::All) == Sending::Chunks {
            self.endpoint.output.buffer().extend_from_slice(LAST_CHUNK);
        }
        Ok(())
    }

    /// Cancels the exchange by cutting the connection: HTTP/1.1 has no other way. Does nothing if the exchange is gone.
    fn reset(&mut self, id: StreamId, _code: Code) {
        if self.endpoint.of(id).is_some() {
            self.cut();
        }
    }

    fn read_as(&mut self, id: StreamId, reads: Reads) {
        self.endpoint.read_as(id, reads);
    }

    fn release(&mut self, id: StreamId, cost: usize) {
        self.endpoint.release(id, cost);
    }

    fn limit_decompression(&mut self, most: usize) {
        self.endpoint.limit_decompression(most);
    }

    fn http2(&mut self) -> Option<&mut Session> {
        None
    }
}
