//! One connection of HTTP/1.1 (RFC 9112). [`Http1`] is a server's: requests in, responses out, one after the other;
//! [`Http1Client`] is the other end of one.
//!
//! A request that comes before the one in front of it is answered waits in the input, of which little is read then. So
//! responses are in order, and no client has more than one call under way on a connection.

mod chunks;
mod client;
mod head;
mod sending;
mod writing;

use std::collections::VecDeque;

use crate::code::{Broken, Code};
use crate::event::{Ending, Event, StreamId};
use crate::fields::Request;
use crate::hpack::Fields;
use crate::options::Options;
use crate::patience::Patience;
use crate::reading::{Body, Given, Limits, Reader, Reads};
use crate::session::input::Input;
use crate::session::output::Output;

use chunks::Chunks;
pub use client::Http1Client;
use head::{Framing, Head, Refusal};
use writing::Written;
pub use writing::refusal_of_http1;

/// Bytes that are read of what comes behind a request which is not answered yet.
const AHEAD: usize = 16 << 10;
/// Bytes of a body that nobody wants that are read so that the connection can go on.
const MOST_UNWANTED: usize = 256 << 10;
/// Bytes of responses that a client has not read when no more of its requests are begun.
const MOST_UNREAD: usize = 256 << 10;

/// The state of one connection of HTTP/1.1 that carries calls, at a server. It does no input or output by itself and never
/// waits; see [`Session`](crate::Session), its counterpart for HTTP/2.
#[derive(Debug)]
pub struct Http1 {
    options: Options,
    is_secure: bool,
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
    /// No request is taken any more when the one under way is answered.
    draining: bool,
    /// Bytes read that nobody wants, of the present body or after the last response.
    unwanted: usize,
    over: Option<Broken>,
}

/// What the next bytes are.
#[derive(Debug)]
enum Reading {
    /// A request's head.
    Head,
    /// So many bytes of a body.
    Length(u64),
    Chunks(Chunks),
    /// Nothing before the response is out.
    Answered,
    /// Nothing any more: what comes is thrown away.
    Nothing,
}

/// A request, and its response.
#[derive(Debug)]
struct Exchange {
    id: StreamId,
    reader: Reader,
    /// Bytes handed out that were not released.
    unreleased: usize,
    /// HTTP/1.0.
    is_old: bool,
    /// The connection ends with the response.
    closes: bool,
    /// The client waits to be told to send the body.
    waits: bool,
    /// It was a HEAD: the response has no body, whatever it says.
    is_bodiless: bool,
    written: Written,
    wants_room: bool,
}

/// An event that stands by itself.
#[derive(Debug)]
enum Notice {
    Last(StreamId, Vec<u8>),
    Ended(StreamId),
    Refused(StreamId, u8, std::borrow::Cow<'static, str>),
    Room(StreamId),
}

/// An event whose data may lie in the input.
enum Ready {
    Notice(Notice),
    Request { id: StreamId, ended: bool },
    Here { id: StreamId, len: usize, ended: bool },
    Whole { id: StreamId, message: Vec<u8>, cost: usize, ended: bool },
    Raw { id: StreamId, len: usize, ended: bool },
}

impl Http1 {
    /// A fresh connection. `is_secure`: it is encrypted.
    #[must_use]
    pub fn new(options: Options, is_secure: bool) -> Self {
        Self {
            options,
            is_secure,
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
            draining: false,
            unwanted: 0,
            over: None,
        }
    }

    /// Room to read into, never empty. What was read there is announced with [`arrived`](Self::arrived).
    pub fn space(&mut self) -> &mut [u8] {
        self.input.space()
    }

    /// So many bytes were read into [`space`](Self::space).
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

    /// Bytes that are kept of what the client has sent, and nobody has taken.
    #[must_use]
    pub fn held(&self) -> usize {
        self.input.held() + self.fields.held() + self.unfinished()
    }

    /// Bytes of a message that has not come completely.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.exchange.as_ref().map_or(0, |exchange| exchange.reader.held())
    }

    /// The same, and its call.
    #[must_use]
    pub fn longest_unfinished(&self) -> Option<(StreamId, usize)> {
        let exchange = self.exchange.as_ref()?;
        Some((exchange.id, exchange.reader.held())).filter(|&(_, held)| held > 0)
    }

    /// Whether [`next_event`](Self::next_event) has something to look at.
    #[must_use]
    pub fn has_arrived(&self) -> bool {
        !self.notices.is_empty() || (self.input.len() > 0 && !self.waits_for_response())
    }

    /// Whether the next bytes are read only when a response is out, or when the client reads those that are.
    fn waits_for_response(&self) -> bool {
        let is_unread = self.output.len() > MOST_UNREAD;
        matches!(self.reading, Reading::Answered)
            || (matches!(self.reading, Reading::Head) && (self.exchange.is_some() || is_unread))
    }

    /// Whether more should be read: not while as much has come as may before it is answered or taken.
    #[must_use]
    pub fn takes_more(&self) -> bool {
        let is_taken = |exchange: &Exchange| exchange.unreleased < self.options.stream_window as usize;
        let has_room = !self.waits_for_response() || self.input.len() < AHEAD;
        has_room && !self.holds_credit && self.exchange.as_ref().is_none_or(is_taken)
    }

    /// Whether more than the client has sent is kept back from it, because as much is kept of it as may be.
    pub fn hold_credit(&mut self, hold: bool) {
        self.holds_credit = hold;
    }

    /// See [`Session::limit_decompression`](crate::Session::limit_decompression).
    pub fn limit_decompression(&mut self, most: usize) {
        self.most_decompressed = most;
    }

    /// Whether nothing more is said on the connection, when all is written: the owner ends its side of it.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self.reading, Reading::Nothing) && self.exchange.is_none()
    }

    /// No further request is taken. One that is under way is answered.
    pub fn drain_now(&mut self) {
        self.draining = true;
        if self.exchange.is_none() && self.input.len() == 0 && matches!(self.reading, Reading::Head) {
            self.reading = Reading::Nothing;
        }
    }

    /// The application has taken a message of this cost.
    pub fn release(&mut self, id: StreamId, cost: usize) {
        if let Some(exchange) = self.of(id) {
            exchange.unreleased = exchange.unreleased.saturating_sub(cost);
        }
    }

    /// How the body of a request is to be read, before the next event.
    pub fn read_as(&mut self, id: StreamId, reads: Reads) {
        let Some(exchange) = self.of(id) else { return };
        exchange.reader.read_as(reads);
        if std::mem::take(&mut exchange.waits) {
            self.output.buffer().extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
    }

    /// Throws away what is there, and what comes, of a request's body.
    pub fn discard(&mut self, id: StreamId) {
        if let Some(exchange) = self.of(id) {
            exchange.reader.discard();
        }
    }

    fn of(&mut self, id: StreamId) -> Option<&mut Exchange> {
        self.exchange.as_mut().filter(|exchange| exchange.id == id)
    }

    /// The next event in what has arrived; `None` if more has to be read first.
    ///
    /// # Errors
    /// The connection is over.
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, Broken> {
        if let Some(broken) = self.over {
            return Err(broken);
        }
        match self.step() {
            Ok(None) => Ok(None),
            Ok(Some(ready)) => Ok(Some(self.event(ready))),
            Err(broken) => {
                self.over = Some(broken);
                Err(broken)
            }
        }
    }

    fn event(&self, ready: Ready) -> Event<'_> {
        match ready {
            Ready::Request { id, ended } => Event::Request { stream: id, request: Request(&self.fields), ended },
            Ready::Here { id, len, ended } => {
                Event::Message { stream: id, message: self.input.skipped(len).into(), cost: len, ended }
            }
            Ready::Whole { id, message, cost, ended } => {
                Event::Message { stream: id, message: message.into(), cost, ended }
            }
            Ready::Raw { id, len, ended } => {
                Event::Data { stream: id, data: self.input.skipped(len), cost: len, ended }
            }
            Ready::Notice(Notice::Last(stream, message)) => {
                Event::Message { stream, message: message.into(), cost: 0, ended: true }
            }
            Ready::Notice(Notice::Ended(stream)) => Event::Ended { stream, ending: Ending::Plain },
            Ready::Notice(Notice::Refused(stream, code, why)) => Event::Refused { stream, code, why },
            Ready::Notice(Notice::Room(stream)) => Event::Room { stream },
        }
    }

    fn step(&mut self) -> Result<Option<Ready>, Broken> {
        loop {
            if let Some(notice) = self.notices.pop_front() {
                return Ok(Some(Ready::Notice(notice)));
            }
            let len = self.input.len();
            if self.waits_for_response() || len == 0 {
                return Ok(None);
            }
            match &mut self.reading {
                Reading::Head => match self.next_head()? {
                    Some(ready) => return Ok(Some(ready)),
                    None if matches!(self.reading, Reading::Head) && self.exchange.is_none() => return Ok(None),
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
                Reading::Chunks(chunks) => match chunks.next(self.input.data()) {
                    Ok((skipped, len)) => {
                        self.input.skip(skipped);
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
                        self.input.skip(len);
                        self.break_body(bad.0);
                    }
                },
                Reading::Answered => return Ok(None),
                Reading::Nothing => {
                    self.input.skip(len);
                    self.unwanted += len;
                    // A connection that is closed with something unread in it is reset, and the client may lose the
                    // response. So much is read as a message may have that is too long, in base64 too.
                    if self.unwanted > self.options.max_message.saturating_mul(2).saturating_add(MOST_UNWANTED) {
                        return Err(Broken::new(Code::ENHANCE_YOUR_CALM, "the client goes on after the last response"));
                    }
                    return Ok(None);
                }
            }
        }
    }

    /// Looks for a request's head. `None`: it has not come completely, or was refused.
    fn next_head(&mut self) -> Result<Option<Ready>, Broken> {
        // Empty lines before a request are passed over: some clients put one behind a body.
        while self.input.data().starts_with(b"\r\n") {
            self.patience.spend("the client sends too many empty lines")?;
            self.input.skip(2);
            self.looked_through = 0;
        }
        let data = self.input.data();
        let most = self.options.max_header_list;
        let Some(len) = head::end_of(data, self.looked_through).filter(|&len| len <= most) else {
            self.looked_through = data.len();
            if data.len() > most {
                let refusal = if data[..most].contains(&b'\n') {
                    Refusal { status: 431, why: "the headers of the request are more than the server takes" }
                } else {
                    Refusal { status: 414, why: "the first line of the request is longer than the server takes" }
                };
                self.refuse(refusal);
            }
            return Ok(None);
        };
        self.looked_through = 0;
        match head::read(&data[..len], self.is_secure, &mut self.fields) {
            Ok(head) => {
                self.input.skip(len);
                Ok(Some(self.begin(&head)))
            }
            Err(refusal) => {
                self.refuse(refusal);
                Ok(None)
            }
        }
    }

    fn begin(&mut self, head: &Head) -> Ready {
        self.patience.earn(1);
        // As in HTTP/2, and never 0.
        self.last = self.last.wrapping_add(2) | 1;
        let ended = head.framing == Framing::Length(0);
        self.reading = match head.framing {
            Framing::Length(0) => Reading::Answered,
            Framing::Length(len) => Reading::Length(len),
            Framing::Chunked => Reading::Chunks(Chunks::new()),
        };
        self.unwanted = 0;
        self.exchange = Some(Exchange {
            id: self.last,
            reader: Reader::new(Body::Raw),
            unreleased: 0,
            is_old: head.is_old,
            closes: head.closes,
            waits: head.waits,
            is_bodiless: Request(&self.fields).method() == "HEAD",
            written: Written::Nothing,
            wants_room: false,
        });
        Ready::Request { id: self.last, ended }
    }

    /// Takes up to so many bytes of the body. How many it took, and what they made.
    fn take(&mut self, len: usize, last: bool) -> (usize, Option<Ready>) {
        let limits = self.limits();
        let Some(exchange) = self.exchange.as_mut() else {
            // The response was out before the request.
            self.unwanted(len);
            return (len, None);
        };
        let id = exchange.id;
        if exchange.reader.body == Body::Discarded {
            self.unwanted(len);
            return (len, None);
        }
        let (reader, unreleased) = (&mut exchange.reader, &mut exchange.unreleased);
        let (taken, given) = take_body(reader, unreleased, &mut self.input, len, last, limits);
        let ready = match given {
            Taken::Nothing => None,
            Taken::Here { len, ended } => Some(Ready::Here { id, len, ended }),
            Taken::Whole { message, cost, ended } => Some(Ready::Whole { id, message, cost, ended }),
            Taken::Raw { len, ended } => Some(Ready::Raw { id, len, ended }),
            Taken::Refused(code, why) => Some(Ready::Notice(Notice::Refused(id, code, why))),
        };
        if ready.is_some() {
            self.patience.earn(1);
        }
        (taken, ready)
    }

    fn limits(&self) -> Limits {
        Limits { message: self.options.max_message, decompressed: self.most_decompressed }
    }

    /// Reads bytes of a body that nobody wants; too many of them end the connection after the response.
    fn unwanted(&mut self, len: usize) {
        self.input.skip(len);
        self.unwanted += len;
        if self.unwanted > MOST_UNWANTED {
            self.stop_reading();
        }
    }

    /// Nothing more of what comes is looked at: the connection ends when the response is out.
    fn stop_reading(&mut self) {
        if let Some(exchange) = &mut self.exchange {
            exchange.closes = true;
        }
        self.reading = Reading::Nothing;
        self.unwanted = 0;
        self.next_request();
    }

    /// The whole body has come. `is_told`: an event that may say so is on its way.
    fn body_is_over(&mut self, is_told: bool) {
        let limits = self.limits();
        self.reading = Reading::Answered;
        if let Some(exchange) = &mut self.exchange {
            let id = exchange.id;
            let needs_none = exchange.reader.body == Body::Discarded || (is_told && !exchange.reader.is_inside());
            if !needs_none {
                self.notices.push_back(match exchange.reader.end(limits) {
                    Given::Message(message, _) => Notice::Last(id, message),
                    Given::Refused(code, why) => {
                        exchange.reader.discard();
                        Notice::Refused(id, code, why)
                    }
                    _ => Notice::Ended(id),
                });
            }
        }
        self.next_request();
    }

    /// The body is malformed: the call is refused, if it still goes on, and the connection ends after it.
    fn break_body(&mut self, why: &'static str) {
        const INVALID_ARGUMENT: u8 = 3;
        if let Some(exchange) = self.exchange.as_mut().filter(|exchange| exchange.reader.body != Body::Discarded) {
            exchange.reader.discard();
            self.notices.push_back(Notice::Refused(exchange.id, INVALID_ARGUMENT, why.into()));
        }
        self.stop_reading();
    }

    /// Goes on with the next request, if this one is read and answered.
    fn next_request(&mut self) {
        let is_out = self.exchange.as_ref().is_none_or(|exchange| exchange.written == Written::All);
        if !is_out {
            return;
        }
        let closes = self.exchange.as_ref().is_some_and(|exchange| exchange.closes);
        match self.reading {
            Reading::Answered if closes || self.draining => {
                (self.reading, self.exchange, self.unwanted) = (Reading::Nothing, None, 0);
            }
            Reading::Answered => (self.reading, self.exchange) = (Reading::Head, None),
            Reading::Nothing => self.exchange = None,
            // The rest of the body.
            _ => {}
        }
    }
}

/// What the next bytes of a body are to the owner.
enum Taken {
    Nothing,
    /// A message, or a part of the body as it came: the bytes of the input that were skipped last.
    Here {
        len: usize,
        ended: bool,
    },
    Raw {
        len: usize,
        ended: bool,
    },
    Whole {
        message: Vec<u8>,
        cost: usize,
        ended: bool,
    },
    /// The rest is thrown away.
    Refused(u8, std::borrow::Cow<'static, str>),
}

/// Takes up to `len` bytes of a body out of the input. How many it took, and what they made. `last`: the body ends with them.
fn take_body(
    reader: &mut Reader,
    unreleased: &mut usize,
    input: &mut Input,
    len: usize,
    last: bool,
    limits: Limits,
) -> (usize, Taken) {
    if reader.body == Body::Raw {
        *unreleased += len;
        input.skip(len);
        return (len, Taken::Raw { len, ended: last });
    }
    let is_whole = reader.body == Body::Whole;
    let (taken, given) = reader.take(&input.data()[..len], last, limits);
    let ended = last && taken == len && !reader.is_inside();
    input.skip(taken);
    let made = match given {
        Given::Nothing | Given::End(_) => Taken::Nothing,
        Given::Here(len) => {
            *unreleased += len;
            Taken::Here { len, ended }
        }
        Given::Message(message, cost) => {
            let cost = if is_whole { 0 } else { cost };
            *unreleased += cost;
            Taken::Whole { message, cost, ended }
        }
        Given::Refused(code, why) => {
            reader.discard();
            Taken::Refused(code, why)
        }
    };
    (taken, made)
}
