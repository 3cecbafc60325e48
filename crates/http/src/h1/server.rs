//! The server's end of a connection of HTTP/1.1: reads requests and writes responses, one after the other.

use nearcall_wire::Failure;

use crate::calls::{Calls, Connection};
use crate::code::{Broken, Code};
use crate::event::{Ending, Event, SendError, Sent, StreamId};
use crate::fields::Request;
use crate::options::Options;
use crate::reading::{Body, Given, Reads};
use crate::session::Session;

use super::chunks::Chunks;
use super::endpoint::{Endpoint, Found, Notice, Ready, connection_of_endpoint};
use super::head::{self, Framing, Head, Refusal};

/// How many bytes are read ahead behind a request that is not answered yet.
const AHEAD: usize = 16 << 10;
/// How many unwanted bytes of a body are read so that the connection can go on.
pub(super) const MOST_UNWANTED: usize = 256 << 10;
/// When a client has left this many bytes of responses unread, no more of its requests begin.
const MOST_UNREAD: usize = 256 << 10;

/// The state of one connection of HTTP/1.1 that carries calls, at a server. It does no input or output itself and never
/// waits. [`Session`] is its counterpart for HTTP/2.
#[derive(Debug)]
pub struct Http1 {
    pub(super) endpoint: Endpoint<Responding>,
    is_secure: bool,
    pub(super) reading: Reading,
    /// After the answer to the current request, no more requests are accepted.
    pub(super) draining: bool,
    /// Unwanted bytes that were read, of the current body or after the last response.
    unwanted: usize,
}

/// What the next bytes belong to.
#[derive(Debug)]
pub(super) enum Reading {
    /// A request's head.
    Head,
    /// This many bytes of a body.
    Length(u64),
    Chunks(Chunks),
    /// Nothing is read before the response is out.
    Answered,
    /// Nothing any more: further bytes are dropped.
    Nothing,
}

/// The state of an exchange that only a server has.
#[derive(Debug)]
pub(super) struct Responding {
    /// The request is of HTTP/1.0.
    pub(super) is_old: bool,
    /// The client waits for permission to send the body.
    pub(super) waits: bool,
    /// The request is a HEAD: the response has no body, whatever its head says.
    pub(super) is_bodiless: bool,
    pub(super) written: Written,
}

/// How much of a response was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    Nothing,
    /// The head, and part of a body whose length the head has named.
    Length,
    Chunks,
    /// Part of a body that ends with the connection, because HTTP/1.0 has no chunks.
    UntilEnd,
    /// The head of a response to a HEAD. The response has no body, whatever its head says.
    Nowhere,
    All,
}

impl Http1 {
    /// A new connection. `is_secure`: it is encrypted.
    #[must_use]
    pub fn new(options: Options, is_secure: bool) -> Self {
        let endpoint = Endpoint::new(options);
        Self { endpoint, is_secure, reading: Reading::Head, draining: false, unwanted: 0 }
    }

    /// Adds bytes that were read elsewhere.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.endpoint.input.feed(bytes);
    }

    /// Whether to read on only when a response is out, or when the client has read earlier responses.
    fn waits_for_response(&self) -> bool {
        let is_unread = self.endpoint.output.len() > MOST_UNREAD;
        matches!(self.reading, Reading::Answered)
            || (matches!(self.reading, Reading::Head) && (self.endpoint.exchange.is_some() || is_unread))
    }

    /// Whether this side writes nothing more after the current output. The owner then shuts down its side of the
    /// connection.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self.reading, Reading::Nothing) && self.endpoint.exchange.is_none()
    }

    fn step(&mut self) -> Result<Option<Ready>, Broken> {
        loop {
            if let Some(notice) = self.endpoint.notices.pop_front() {
                return Ok(Some(Ready::Notice(notice)));
            }
            let len = self.endpoint.input.len();
            if self.waits_for_response() || len == 0 {
                return Ok(None);
            }
            match &mut self.reading {
                Reading::Head => match self.next_head()? {
                    Some(ready) => return Ok(Some(ready)),
                    None if matches!(self.reading, Reading::Head) && self.endpoint.exchange.is_none() => {
                        return Ok(None);
                    }
                    None => {}
                },
                Reading::Length(left) => {
                    let len = usize::try_from(*left).unwrap_or(usize::MAX).min(len);
                    let last = len as u64 == *left;
                    let (taken, ready) = self.take(len, last);
                    if let Reading::Length(left) = &mut self.reading {
                        *left -= taken as u64;
                        if *left == 0 {
                            self.body_is_over(ready.is_some());
                        }
                    }
                    if ready.is_some() {
                        return Ok(ready);
                    }
                }
                Reading::Chunks(chunks) => match chunks.next(self.endpoint.input.data()) {
                    Ok((skipped, len)) => {
                        self.endpoint.input.skip(skipped);
                        let (taken, ready) = if len > 0 { self.take(len, false) } else { (0, None) };
                        if let Reading::Chunks(chunks) = &mut self.reading {
                            chunks.took(taken);
                            if chunks.is_over() {
                                self.body_is_over(false);
                            }
                        }
                        if ready.is_some() {
                            return Ok(ready);
                        }
                    }
                    Err(bad) => {
                        self.endpoint.input.skip(len);
                        self.break_body(bad.0);
                    }
                },
                Reading::Answered => return Ok(None),
                Reading::Nothing => {
                    self.endpoint.input.skip(len);
                    self.unwanted += len;
                    // Closing a connection with unread bytes resets it, and the client may lose the response. So as
                    // many bytes are read as a message over the limit may have, even in base64.
                    if self.unwanted > self.endpoint.options.max_message.saturating_mul(2).saturating_add(MOST_UNWANTED)
                    {
                        return Err(Broken::new(Code::ENHANCE_YOUR_CALM, "the client goes on after the last response"));
                    }
                    return Ok(None);
                }
            }
        }
    }

    /// Looks for a request's head. `None`: it has not arrived completely, or was refused.
    fn next_head(&mut self) -> Result<Option<Ready>, Broken> {
        let endpoint = &mut self.endpoint;
        // Empty lines before a request are skipped: some clients send one after a body.
        while endpoint.input.data().starts_with(b"\r\n") {
            endpoint.patience.spend("the client sends too many empty lines")?;
            endpoint.skip_before_head(2);
        }
        let len = match endpoint.find_head() {
            Found::Head(len) => len,
            Found::Nothing => return Ok(None),
            Found::TooLong => {
                let most = endpoint.options.max_header_list;
                let refusal = if endpoint.input.data()[..most].contains(&b'\n') {
                    Refusal { status: 431, why: "the headers of the request are more than the server takes" }
                } else {
                    Refusal { status: 414, why: "the first line of the request is longer than the server takes" }
                };
                self.refuse(refusal);
                return Ok(None);
            }
        };
        match head::read(&endpoint.input.data()[..len], self.is_secure, &mut endpoint.fields) {
            Ok(head) => {
                endpoint.input.skip(len);
                Ok(Some(self.begin(&head)))
            }
            Err(refusal) => {
                self.refuse(refusal);
                Ok(None)
            }
        }
    }

    fn begin(&mut self, head: &Head) -> Ready {
        self.endpoint.patience.earn(1);
        let ended = head.framing == Framing::Length(0);
        self.reading = match head.framing {
            Framing::Length(0) => Reading::Answered,
            Framing::Length(len) => Reading::Length(len),
            Framing::Chunked => Reading::Chunks(Chunks::new()),
        };
        self.unwanted = 0;
        let is_bodiless = Request(&self.endpoint.fields).method() == "HEAD";
        let responding = Responding { is_old: head.is_old, waits: head.waits, is_bodiless, written: Written::Nothing };
        Ready::Request { id: self.endpoint.begin(head.closes, responding), ended }
    }

    /// Takes up to `len` bytes of the body. Returns how many it took, and the event they made.
    fn take(&mut self, len: usize, last: bool) -> (usize, Option<Ready>) {
        // Without an exchange, the response was out before the request was complete.
        let exchange = self.endpoint.exchange.as_ref();
        if exchange.is_none_or(|exchange| exchange.reader.body == Body::Discarded) {
            self.unwanted(len);
            return (len, None);
        }
        self.endpoint.take(len, last)
    }

    /// Drops unwanted bytes of a body. Too many of them end the connection after the response.
    fn unwanted(&mut self, len: usize) {
        self.endpoint.input.skip(len);
        self.unwanted += len;
        if self.unwanted > MOST_UNWANTED {
            self.stop_reading();
        }
    }

    /// Stops processing input. The connection ends when the response is out.
    pub(super) fn stop_reading(&mut self) {
        if let Some(exchange) = &mut self.endpoint.exchange {
            exchange.closes = true;
        }
        self.reading = Reading::Nothing;
        self.unwanted = 0;
        self.next_request();
    }

    /// The whole body has been read. `is_told`: an event that may say so is on its way.
    fn body_is_over(&mut self, is_told: bool) {
        let limits = self.endpoint.limits();
        self.reading = Reading::Answered;
        if let Some(exchange) = &mut self.endpoint.exchange {
            let id = exchange.id;
            let needs_none = exchange.reader.body == Body::Discarded || (is_told && !exchange.reader.is_inside());
            if !needs_none {
                self.endpoint.notices.push_back(match exchange.reader.end(limits) {
                    Given::Message { message, compressed, .. } => Notice::Last(id, message, compressed),
                    Given::Refused(code, why) => {
                        exchange.reader.discard();
                        Notice::Refused(id, code, why)
                    }
                    _ => Notice::Ended(id, Ending::Plain),
                });
            }
        }
        self.next_request();
    }

    /// The body is malformed. Refuses the call if it still goes on, and ends the connection after it.
    fn break_body(&mut self, why: &'static str) {
        if let Some(exchange) =
            self.endpoint.exchange.as_mut().filter(|exchange| exchange.reader.body != Body::Discarded)
        {
            exchange.reader.discard();
            self.endpoint.notices.push_back(Notice::Refused(exchange.id, Failure::INVALID_ARGUMENT, why.into()));
        }
        self.stop_reading();
    }

    /// Goes on to the next request, if this one is read and answered.
    pub(super) fn next_request(&mut self) {
        let is_out = self.endpoint.exchange.as_ref().is_none_or(|exchange| exchange.own.written == Written::All);
        if !is_out {
            return;
        }
        let closes = self.endpoint.exchange.as_ref().is_some_and(|exchange| exchange.closes);
        match self.reading {
            Reading::Answered if closes || self.draining => {
                (self.reading, self.endpoint.exchange, self.unwanted) = (Reading::Nothing, None, 0);
            }
            Reading::Answered => (self.reading, self.endpoint.exchange) = (Reading::Head, None),
            Reading::Nothing => self.endpoint.exchange = None,
            // The rest of the body has to be read first.
            _ => {}
        }
    }
}

impl Connection for Http1 {
    connection_of_endpoint!();

    fn has_arrived(&self) -> bool {
        !self.endpoint.notices.is_empty() || (self.endpoint.input.len() > 0 && !self.waits_for_response())
    }

    /// Not while as much waits for a response or for the application as may.
    fn takes_more(&self) -> bool {
        let has_room = !self.waits_for_response() || self.endpoint.input.len() < AHEAD;
        has_room && self.endpoint.takes_more()
    }

    fn ends(&self) -> bool {
        self.is_finished()
    }
}

impl Calls for Http1 {
    const IS_HTTP2: bool = false;

    fn next_event(&mut self) -> Result<Option<Event<'_>>, Broken> {
        self.endpoint.check()?;
        let step = self.step();
        self.endpoint.event(step)
    }

    fn read_as(&mut self, id: StreamId, reads: Reads) {
        self.endpoint.read_as(id, reads);
        if self.endpoint.of(id).is_some_and(|exchange| std::mem::take(&mut exchange.own.waits)) {
            self.endpoint.output.buffer().extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
    }

    fn discard(&mut self, id: StreamId) {
        if let Some(exchange) = self.endpoint.of(id) {
            exchange.reader.discard();
        }
    }

    fn release(&mut self, id: StreamId, cost: usize) {
        self.endpoint.release(id, cost);
    }

    fn forget(&mut self, _id: StreamId) {}

    fn respond(&mut self, id: StreamId, status: u16, headers: &[(&str, &[u8])], ends: bool) -> Result<(), SendError> {
        self.put_response(id, status, headers, ends)
    }

    fn send_data(&mut self, id: StreamId, pieces: &[&[u8]], last: bool) -> Result<Sent, SendError> {
        self.put_data(id, pieces, last)
    }

    fn longest_unfinished(&self) -> Option<(StreamId, usize)> {
        let exchange = self.endpoint.exchange.as_ref()?;
        Some((exchange.id, exchange.reader.held())).filter(|&(_, held)| held > 0)
    }

    fn limit_decompression(&mut self, most: usize) {
        self.endpoint.limit_decompression(most);
    }

    fn drain(&mut self) {
        self.draining = true;
    }

    fn drain_now(&mut self) {
        self.drain();
        let is_idle = self.endpoint.exchange.is_none() && self.endpoint.input.len() == 0;
        if is_idle && matches!(self.reading, Reading::Head) {
            self.reading = Reading::Nothing;
        }
    }

    fn http2(&mut self) -> Option<&mut Session> {
        None
    }
}
