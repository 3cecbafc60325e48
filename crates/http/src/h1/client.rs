//! One connection of HTTP/1.1, at a client: one request at a time, and its response.
//!
//! It is read as strictly as a server reads: what could be read in two ways ends the connection, and so does a response that
//! nobody has asked for.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::Write as _;

use crate::code::{Broken, Code};
use crate::event::{Ending, Event, RequestHead, SendError, Sent, StreamId};
use crate::fields::Response;
use crate::hpack::{Fields, OVERHEAD};
use crate::options::Options;
use crate::patience::Patience;
use crate::reading::{Body, Given, Limits, Reader, Reads};
use crate::session::input::Input;
use crate::session::output::Output;

use super::chunks::Chunks;
use super::head::{self, Framing};
use super::sending::{LAST_CHUNK, put_body, put_field};
use super::{Taken, take_body};

/// Bytes of what servers take as headers of a request, as most of them do.
const MOST_HEADERS: usize = 64 << 10;
const RESOURCE_EXHAUSTED: u8 = 8;

/// The state of one connection of HTTP/1.1 that carries calls, at a client. It does no input or output by itself and never
/// waits; see [`Session`](crate::Session), its counterpart for HTTP/2.
#[derive(Debug)]
pub struct Http1Client {
    options: Options,
    input: Input,
    output: Output,
    fields: Fields,
    /// Bytes of the input in which no head ends.
    looked_through: usize,
    reading: Reading,
    exchange: Option<Exchange>,
    /// The number of the request that came last.
    last: StreamId,
    notices: VecDeque<Notice>,
    patience: Patience,
    most_decompressed: usize,
    holds_credit: bool,
    /// Somebody waits until another request can be begun.
    wants_turn: bool,
    /// No request is begun any more; whether the connection is cut off though something was under way.
    is_over: bool,
    is_cut: bool,
    broken: Option<Broken>,
}

/// What the next bytes are.
#[derive(Debug)]
enum Reading {
    /// A response's head, if one was asked for.
    Head,
    /// So many bytes of its body.
    Length(u64),
    Chunks(Chunks),
}

/// A request, and its response.
#[derive(Debug)]
struct Exchange {
    id: StreamId,
    sending: Sending,
    reader: Reader,
    /// Bytes handed out that were not released.
    unreleased: usize,
    /// A stream goes one way at least.
    is_stream: bool,
    /// The server ends the connection after the response.
    closes: bool,
    wants_room: bool,
}

/// How far a request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sending {
    /// So many bytes of its body are to come.
    Length(u64),
    Chunks,
    All,
}

/// An event that stands by itself.
#[derive(Debug)]
enum Notice {
    Last(StreamId, Vec<u8>),
    Ended(StreamId, Ending),
    Refused(StreamId, u8, Cow<'static, str>),
    Room(StreamId),
    /// The server ends the connection after the response that is over.
    Goodbye,
    NextTurn,
}

/// An event whose data may lie in the input.
enum Ready {
    Notice(Notice),
    Response { id: StreamId, status: u16 },
    Here { id: StreamId, len: usize, ended: bool },
    Whole { id: StreamId, message: Vec<u8>, cost: usize, ended: bool },
    Raw { id: StreamId, len: usize, ended: bool },
}

fn broken(why: &'static str) -> Broken {
    Broken::new(Code::PROTOCOL_ERROR, why)
}

impl Http1Client {
    /// A fresh connection.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            options,
            input: Input::default(),
            output: Output::default(),
            fields: Fields::new(options.max_header_list),
            looked_through: 0,
            reading: Reading::Head,
            exchange: None,
            last: 0,
            notices: VecDeque::new(),
            patience: Patience::new(options.useless_burst, options.useless_per_second),
            most_decompressed: options.max_message,
            holds_credit: false,
            wants_turn: false,
            is_over: false,
            is_cut: false,
            broken: None,
        }
    }

    /// See [`Session::space`](crate::Session::space).
    pub fn space(&mut self) -> &mut [u8] {
        self.input.space()
    }

    /// See [`Session::arrived`](crate::Session::arrived).
    ///
    /// # Panics
    /// If there was no room for so many.
    pub fn arrived(&mut self, len: usize) {
        self.input.arrived(len);
    }

    /// Bytes that somebody else has read.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.input.feed(bytes);
    }

    /// What is to be written, in order.
    #[must_use]
    pub fn unsent(&self) -> &[u8] {
        self.output.unsent()
    }

    /// So many bytes of [`unsent`](Self::unsent) are written.
    ///
    /// # Panics
    /// If there were not so many.
    pub fn sent(&mut self, len: usize) {
        self.output.sent(len, false);
        let little = self.output.len() <= self.options.send_queue / 2;
        if let Some(exchange) = self.exchange.as_mut().filter(|exchange| little && exchange.wants_room) {
            exchange.wants_room = false;
            self.notices.push_back(Notice::Room(exchange.id));
        }
    }

    /// Bytes of [`unsent`](Self::unsent).
    #[must_use]
    pub fn queued(&self) -> usize {
        self.output.len()
    }

    /// Bytes that are kept of what the server has sent, and nobody has taken.
    #[must_use]
    pub fn held(&self) -> usize {
        self.input.held() + self.fields.held() + self.unfinished()
    }

    /// Bytes of a message that has not come completely.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.exchange.as_ref().map_or(0, |exchange| exchange.reader.held())
    }

    /// Whether [`next_event`](Self::next_event) has something to look at.
    #[must_use]
    pub fn has_arrived(&self) -> bool {
        !self.notices.is_empty() || self.input.len() > 0
    }

    /// Whether more should be read: not while as much has come as may before it is taken.
    #[must_use]
    pub fn takes_more(&self) -> bool {
        let is_taken = |exchange: &Exchange| exchange.unreleased < self.options.stream_window as usize;
        !self.holds_credit && self.exchange.as_ref().is_none_or(is_taken)
    }

    /// Whether more than the server has sent is kept back from it, because as much is kept of it as may be.
    pub fn hold_credit(&mut self, hold: bool) {
        self.holds_credit = hold;
    }

    /// See [`Session::limit_decompression`](crate::Session::limit_decompression).
    pub fn limit_decompression(&mut self, most: usize) {
        self.most_decompressed = most;
    }

    /// Whether the connection is to be cut off, because what is under way on it is wanted no longer.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The head of a request; all of it if it `ends` with that.
    ///
    /// # Errors
    /// Nothing was begun: [`SendError::TooManyStreams`], [`SendError::Occupied`], [`SendError::GoingAway`],
    /// [`SendError::Unfit`], [`SendError::TooMuchMetadata`].
    pub fn request(&mut self, head: &RequestHead<'_>, ends: bool) -> Result<StreamId, SendError> {
        if self.is_over || self.broken.is_some() {
            return Err(SendError::GoingAway);
        }
        match &self.exchange {
            // Its caller may be the one who asks, and would wait for himself.
            Some(Exchange { is_stream: true, .. }) => return Err(SendError::Occupied),
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
        let out = self.output.buffer();
        let _ = write!(out, "{} {} HTTP/1.1\r\n", head.method, head.path);
        put_field(out, "host", head.authority.as_bytes());
        for (name, value) in head.headers {
            put_field(out, name, value);
        }
        if sending == Sending::Chunks {
            put_field(out, "transfer-encoding", b"chunked");
        }
        out.extend_from_slice(b"\r\n");
        // As in HTTP/2, and never 0.
        self.last = self.last.wrapping_add(2) | 1;
        self.exchange = Some(Exchange {
            id: self.last,
            sending,
            reader: Reader::new(Body::Raw),
            unreleased: 0,
            is_stream: sending == Sending::Chunks,
            closes: false,
            wants_room: false,
        });
        Ok(self.last)
    }

    fn of(&mut self, id: StreamId) -> Option<&mut Exchange> {
        self.exchange.as_mut().filter(|exchange| exchange.id == id)
    }

    /// A part of the body of a request, of which `pieces` are the parts end to end. It is taken however much waits: the owner
    /// has to look at what is returned.
    ///
    /// # Errors
    /// [`SendError::Gone`].
    pub fn send_data(&mut self, id: StreamId, pieces: &[&[u8]], last: bool) -> Result<Sent, SendError> {
        let limit = self.options.send_queue;
        let exchange = self.exchange.as_mut().filter(|exchange| exchange.id == id && exchange.sending != Sending::All);
        let exchange = exchange.ok_or(SendError::Gone)?;
        let len = put_body(self.output.buffer(), pieces, exchange.sending == Sending::Chunks);
        if let Sending::Length(left) = &mut exchange.sending {
            *left = left.saturating_sub(len as u64);
        }
        if last {
            self.end(id)?;
            return Ok(Sent::Ready);
        }
        if self.output.len() < limit {
            return Ok(Sent::Ready);
        }
        exchange.wants_room = true;
        Ok(Sent::Full)
    }

    /// The request is complete.
    ///
    /// # Errors
    /// [`SendError::Gone`].
    pub fn end(&mut self, id: StreamId) -> Result<(), SendError> {
        let exchange = self.exchange.as_mut().filter(|exchange| exchange.id == id && exchange.sending != Sending::All);
        let exchange = exchange.ok_or(SendError::Gone)?;
        if std::mem::replace(&mut exchange.sending, Sending::All) == Sending::Chunks {
            self.output.buffer().extend_from_slice(LAST_CHUNK);
        }
        Ok(())
    }

    /// Gives up what is under way: HTTP/1.1 has no other way to say so than to end the connection. A request that is gone is
    /// left alone.
    pub fn reset(&mut self, id: StreamId) {
        if self.of(id).is_some() {
            self.cut();
        }
    }

    fn cut(&mut self) {
        (self.exchange, self.is_cut) = (None, true);
        self.output.sent(self.output.len(), false);
        self.say_goodbye();
        if std::mem::take(&mut self.wants_turn) {
            self.notices.push_back(Notice::NextTurn);
        }
    }

    /// Nothing more is begun.
    fn say_goodbye(&mut self) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.notices.push_back(Notice::Goodbye);
        }
    }

    /// See [`Session::read_as`](crate::Session::read_as).
    pub fn read_as(&mut self, id: StreamId, reads: Reads) {
        if let Some(exchange) = self.of(id) {
            exchange.reader.read_as(reads);
        }
    }

    /// The application has taken a message of this cost.
    pub fn release(&mut self, id: StreamId, cost: usize) {
        if let Some(exchange) = self.of(id) {
            exchange.unreleased = exchange.unreleased.saturating_sub(cost);
        }
    }

    /// The next event in what has arrived; `None` if more has to be read first.
    ///
    /// # Errors
    /// The connection is over.
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, Broken> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        match self.step() {
            Ok(None) => Ok(None),
            Ok(Some(ready)) => Ok(Some(self.event(ready))),
            Err(broken) => {
                self.broken = Some(broken);
                Err(broken)
            }
        }
    }

    fn event(&self, ready: Ready) -> Event<'_> {
        match ready {
            Ready::Response { id, status } => Event::Response { stream: id, response: Response(&self.fields, status) },
            Ready::Here { id, len, ended } => {
                Event::Message { stream: id, message: self.input.skipped(len).into(), cost: len, ended }
            }
            Ready::Whole { id, message, cost, ended } => {
                Event::Message { stream: id, message: message.into(), cost, ended }
            }
            Ready::Raw { id, len, ended } => {
                Event::Data { stream: id, data: self.input.skipped(len), cost: len, ended }
            }
            Ready::Notice(notice) => match notice {
                Notice::Last(stream, message) => {
                    Event::Message { stream, message: message.into(), cost: 0, ended: true }
                }
                Notice::Ended(stream, ending) => Event::Ended { stream, ending },
                Notice::Refused(stream, code, why) => Event::Refused { stream, code, why },
                Notice::Room(stream) => Event::Room { stream },
                Notice::Goodbye => Event::GoAway { last: self.last, code: Code::NO_ERROR, why: String::new() },
                Notice::NextTurn => Event::StreamsFree,
            },
        }
    }

    fn step(&mut self) -> Result<Option<Ready>, Broken> {
        loop {
            if let Some(notice) = self.notices.pop_front() {
                return Ok(Some(Ready::Notice(notice)));
            }
            let len = self.input.len();
            if self.is_cut {
                self.input.skip(len);
                return Ok(None);
            }
            if len == 0 {
                return Ok(None);
            }
            if self.exchange.is_none() {
                return Err(broken("the server sends what nobody has asked for"));
            }
            let (taken, ready) = match &mut self.reading {
                Reading::Head => match self.next_head()? {
                    Some(ready) => return Ok(Some(ready)),
                    // Neither the head of something before the response, nor one that was refused.
                    None if self.input.len() == len && self.notices.is_empty() => return Ok(None),
                    None => continue,
                },
                Reading::Length(left) => {
                    let len = usize::try_from(*left).unwrap_or(usize::MAX).min(len);
                    let last = len as u64 == *left;
                    self.take(len, last)
                }
                Reading::Chunks(chunks) => {
                    let (skipped, len) = chunks.next(self.input.data()).map_err(|bad| broken(bad.0))?;
                    self.input.skip(skipped);
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

    /// Looks for a response's head. `None`: it has not come completely, is one before the response, or cannot be taken.
    fn next_head(&mut self) -> Result<Option<Ready>, Broken> {
        let data = self.input.data();
        // Whatever else it may be, no megabytes are waited for to find out.
        let start = &b"HTTP/1."[..data.len().min(7)];
        if !data.starts_with(start) {
            return Err(broken("the server does not speak HTTP/1.1"));
        }
        let most = self.options.max_header_list;
        let Some(len) = head::end_of(data, self.looked_through).filter(|&len| len <= most) else {
            self.looked_through = data.len();
            if data.len() > most {
                self.refuse_head();
            }
            return Ok(None);
        };
        self.looked_through = 0;
        let read = head::read_response(&data[..len], &mut self.fields).map_err(broken)?;
        self.input.skip(len);
        let Some(head) = read else {
            self.refuse_head();
            return Ok(None);
        };
        if head.status < 200 {
            if head.status == 101 {
                return Err(broken("the server speaks another protocol from here on, which nobody has asked for"));
            }
            self.patience.spend("the server sends too many provisional responses")?;
            return Ok(None);
        }
        let Some(exchange) = self.exchange.as_mut() else { return Ok(None) };
        self.patience.earn(1);
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

    /// The response has more headers than are taken.
    fn refuse_head(&mut self) {
        let why = "the response has more metadata than this side takes";
        if let Some(exchange) = &self.exchange {
            self.notices.push_back(Notice::Refused(exchange.id, RESOURCE_EXHAUSTED, why.into()));
        }
        self.cut();
    }

    /// Takes up to so many bytes of the body. How many it took, and what they made.
    fn take(&mut self, len: usize, last: bool) -> (usize, Option<Ready>) {
        let limits = self.limits();
        let Some(exchange) = self.exchange.as_mut() else { return (0, None) };
        let id = exchange.id;
        let (reader, unreleased) = (&mut exchange.reader, &mut exchange.unreleased);
        let (taken, made) = take_body(reader, unreleased, &mut self.input, len, last, limits);
        let ready = match made {
            Taken::Nothing => None,
            Taken::Here { len, ended } => Some(Ready::Here { id, len, ended }),
            Taken::Whole { message, cost, ended } => Some(Ready::Whole { id, message, cost, ended }),
            Taken::Raw { len, ended } => Some(Ready::Raw { id, len, ended }),
            Taken::Refused(code, why) => {
                self.cut();
                Some(Ready::Notice(Notice::Refused(id, code, why)))
            }
        };
        if ready.is_some() {
            self.patience.earn(1);
        }
        (taken, ready)
    }

    fn limits(&self) -> Limits {
        Limits { message: self.options.max_message, decompressed: self.most_decompressed }
    }

    /// The whole response has come. `is_told`: an event that says so is on its way.
    fn response_is_over(&mut self, is_told: bool) {
        let limits = self.limits();
        self.reading = Reading::Head;
        let Some(mut exchange) = self.exchange.take() else { return };
        let id = exchange.id;
        if !is_told {
            self.notices.push_back(match exchange.reader.end(limits) {
                Given::Message(message, _) => Notice::Last(id, message),
                Given::Refused(code, why) => Notice::Refused(id, code, why),
                Given::End(end) => Notice::Ended(id, Ending::Stream(end)),
                Given::Nothing | Given::Here(_) => Notice::Ended(id, Ending::Plain),
            });
        }
        if exchange.sending != Sending::All {
            // Half a request cannot be taken back, and the rest of it is not wanted.
            self.cut();
        } else if exchange.closes {
            self.say_goodbye();
        }
        if std::mem::take(&mut self.wants_turn) {
            self.notices.push_back(Notice::NextTurn);
        }
    }
}
