//! The common part of both ends of a connection of HTTP/1.1: input and output, one exchange at a time, and its state.

use std::borrow::Cow;
use std::collections::VecDeque;

use crate::code::{Broken, Code};
use crate::event::{Ending, Event, Sent, StreamId};
use crate::fields::{Request, Response};
use crate::hpack::Fields;
use crate::options::Options;
use crate::patience::Patience;
use crate::reading::{Body, Given, Limits, Reader, Reads};
use crate::session::input::Input;
use crate::session::output::Output;

use super::head;

/// One end of a connection, without the parts that only a server or only a client has. `X` is that end's own state of
/// an exchange.
#[derive(Debug)]
pub(super) struct Endpoint<X> {
    pub(super) options: Options,
    pub(super) input: Input,
    pub(super) output: Output,
    pub(super) fields: Fields,
    /// How many bytes of the input were searched for the end of a head.
    looked_through: usize,
    pub(super) exchange: Option<Exchange<X>>,
    /// The number of the last request.
    last: StreamId,
    pub(super) notices: VecDeque<Notice>,
    pub(super) patience: Patience,
    most_decompressed: usize,
    holds_credit: bool,
    broken: Option<Broken>,
}

/// A request, and its response.
#[derive(Debug)]
pub(super) struct Exchange<X> {
    pub(super) id: StreamId,
    pub(super) reader: Reader,
    /// Bytes that were handed out and not released.
    pub(super) unreleased: usize,
    /// The connection ends after the response.
    pub(super) closes: bool,
    /// The owner waits for room to send.
    pub(super) wants_room: bool,
    /// The state that only this end has.
    pub(super) own: X,
}

/// An event with data of its own.
#[derive(Debug)]
pub(super) enum Notice {
    /// The only message of a complete body, and whether it arrived compressed.
    Last(StreamId, Vec<u8>, bool),
    Ended(StreamId, Ending),
    Refused(StreamId, u8, Cow<'static, str>),
    Room(StreamId),
    /// The server ends the connection after the response that is over.
    Goodbye,
    /// Another request can be begun.
    NextTurn,
}

/// An event whose data may lie in the input or in the fields.
pub(super) enum Ready {
    Notice(Notice),
    Request { id: StreamId, ended: bool },
    Response { id: StreamId, status: u16 },
    Here { id: StreamId, len: usize, ended: bool },
    Whole { id: StreamId, message: Vec<u8>, cost: usize, compressed: bool, ended: bool },
    Raw { id: StreamId, len: usize, ended: bool },
}

/// The result of looking for a head.
pub(super) enum Found {
    /// A head of this many bytes.
    Head(usize),
    /// The head has not arrived completely.
    Nothing,
    /// The head is longer than this end accepts.
    TooLong,
}

impl<X> Endpoint<X> {
    pub(super) fn new(options: Options) -> Self {
        Self {
            options,
            input: Input::default(),
            output: Output::default(),
            fields: Fields::new(options.max_header_list),
            looked_through: 0,
            exchange: None,
            last: 0,
            notices: VecDeque::new(),
            patience: Patience::new(options.useless_burst, options.useless_per_second),
            most_decompressed: options.max_message,
            holds_credit: false,
            broken: None,
        }
    }

    /// Begins an exchange, and returns its number.
    pub(super) fn begin(&mut self, closes: bool, own: X) -> StreamId {
        // Odd as in HTTP/2, and never 0.
        self.last = self.last.wrapping_add(2) | 1;
        let (id, reader) = (self.last, Reader::new(Body::Raw));
        self.exchange = Some(Exchange { id, reader, unreleased: 0, closes, wants_room: false, own });
        id
    }

    /// The exchange with this number, if it is under way.
    pub(super) fn of(&mut self, id: StreamId) -> Option<&mut Exchange<X>> {
        self.exchange.as_mut().filter(|exchange| exchange.id == id)
    }

    /// Notes that `len` bytes of the output are written.
    pub(super) fn sent(&mut self, len: usize) {
        self.output.sent(len, false);
        let little = self.output.len() <= self.options.send_queue / 2;
        if let Some(exchange) = self.exchange.as_mut().filter(|exchange| little && exchange.wants_room) {
            exchange.wants_room = false;
            self.notices.push_back(Notice::Room(exchange.id));
        }
    }

    /// Part of a body was added to the output. Returns whether there is room for more; if not, an event tells when
    /// there is.
    pub(super) fn has_sent_part(&mut self) -> Sent {
        if self.output.len() < self.options.send_queue {
            return Sent::Ready;
        }
        if let Some(exchange) = &mut self.exchange {
            exchange.wants_room = true;
        }
        Sent::Full
    }

    pub(super) fn held(&self) -> usize {
        self.input.held() + self.fields.held() + self.unfinished()
    }

    pub(super) fn unfinished(&self) -> usize {
        self.exchange.as_ref().map_or(0, |exchange| exchange.reader.held())
    }

    pub(super) fn hold_credit(&mut self, hold: bool) {
        self.holds_credit = hold;
    }

    pub(super) fn limit_decompression(&mut self, most: usize) {
        self.most_decompressed = most;
    }

    /// Whether to read more of a body: the application has taken what arrived, except for what may wait.
    pub(super) fn takes_more(&self) -> bool {
        let is_taken = |exchange: &Exchange<X>| exchange.unreleased < self.options.stream_window as usize;
        !self.holds_credit && self.exchange.as_ref().is_none_or(is_taken)
    }

    pub(super) fn release(&mut self, id: StreamId, cost: usize) {
        if let Some(exchange) = self.of(id) {
            exchange.unreleased = exchange.unreleased.saturating_sub(cost);
        }
    }

    pub(super) fn read_as(&mut self, id: StreamId, reads: Reads) {
        if let Some(exchange) = self.of(id) {
            exchange.reader.read_as(reads);
        }
    }

    pub(super) fn limits(&self) -> Limits {
        Limits { message: self.options.max_message, decompressed: self.most_decompressed, name: self.options.limit }
    }

    /// Fails if the connection is broken.
    pub(super) fn check(&self) -> Result<(), Broken> {
        self.broken.map_or(Ok(()), Err)
    }

    /// Makes an event from the result of a step. A broken connection stays broken.
    pub(super) fn event(&mut self, step: Result<Option<Ready>, Broken>) -> Result<Option<Event<'_>>, Broken> {
        let ready = step.inspect_err(|&broken| self.broken = Some(broken))?;
        Ok(ready.map(|ready| self.shown(ready)))
    }

    fn shown(&self, ready: Ready) -> Event<'_> {
        match ready {
            Ready::Request { id, ended } => Event::Request { stream: id, request: Request(&self.fields), ended },
            Ready::Response { id, status } => Event::Response { stream: id, response: Response(&self.fields, status) },
            Ready::Here { id, len, ended } => Event::Message {
                stream: id,
                message: self.input.skipped(len).into(),
                cost: len,
                compressed: false,
                ended,
            },
            Ready::Whole { id, message, cost, compressed, ended } => {
                Event::Message { stream: id, message: message.into(), cost, compressed, ended }
            }
            Ready::Raw { id, len, ended } => {
                Event::Data { stream: id, data: self.input.skipped(len), cost: len, ended }
            }
            Ready::Notice(notice) => match notice {
                Notice::Last(stream, message, compressed) => {
                    Event::Message { stream, message: message.into(), cost: 0, compressed, ended: true }
                }
                Notice::Ended(stream, ending) => Event::Ended { stream, ending },
                Notice::Refused(stream, code, why) => Event::Refused { stream, code, why },
                Notice::Room(stream) => Event::Room { stream },
                Notice::Goodbye => Event::GoAway { last: self.last, code: Code::NO_ERROR, why: String::new() },
                Notice::NextTurn => Event::StreamsFree,
            },
        }
    }

    /// Skips bytes in front of a head.
    pub(super) fn skip_before_head(&mut self, len: usize) {
        self.input.skip(len);
        self.looked_through = 0;
    }

    /// Looks for a head at the beginning of the input.
    pub(super) fn find_head(&mut self) -> Found {
        let (data, most) = (self.input.data(), self.options.max_header_list);
        if let Some(len) = head::end_of(data, self.looked_through).filter(|&len| len <= most) {
            self.looked_through = 0;
            return Found::Head(len);
        }
        self.looked_through = data.len();
        if data.len() > most { Found::TooLong } else { Found::Nothing }
    }

    /// Takes up to `len` bytes of an exchange's body from the input. Returns how many it took, and the event they made;
    /// a refusal if the rest is dropped. `last`: the body ends with these bytes.
    pub(super) fn take(&mut self, len: usize, last: bool) -> (usize, Option<Ready>) {
        let limits = self.limits();
        let Some(exchange) = self.exchange.as_mut() else { return (0, None) };
        let (id, reader, unreleased) = (exchange.id, &mut exchange.reader, &mut exchange.unreleased);
        if reader.body == Body::Raw {
            *unreleased += len;
            self.input.skip(len);
            self.patience.earn(1);
            return (len, Some(Ready::Raw { id, len, ended: last }));
        }
        let is_whole = reader.body == Body::Whole;
        let (taken, given) = reader.take(&self.input.data()[..len], last, limits);
        let ended = last && taken == len && !reader.is_inside();
        self.input.skip(taken);
        let ready = match given {
            Given::Nothing | Given::End(_) => return (taken, None),
            Given::Here(len) => {
                *unreleased += len;
                Ready::Here { id, len, ended }
            }
            Given::Message { message, len, compressed } => {
                let cost = if is_whole { 0 } else { len };
                *unreleased += cost;
                Ready::Whole { id, message, cost, compressed, ended }
            }
            Given::Refused(code, why) => {
                reader.discard();
                Ready::Notice(Notice::Refused(id, code, why))
            }
        };
        self.patience.earn(1);
        (taken, Some(ready))
    }
}

/// The methods of [`Connection`](crate::Connection) that the endpoint implements.
macro_rules! connection_of_endpoint {
    () => {
        fn space(&mut self) -> &mut [u8] {
            self.endpoint.input.space()
        }

        fn arrived(&mut self, len: usize) {
            self.endpoint.input.arrived(len);
        }

        fn unsent(&self) -> &[u8] {
            self.endpoint.output.unsent()
        }

        fn sent(&mut self, len: usize) {
            self.endpoint.sent(len);
        }

        fn queued(&self) -> usize {
            self.endpoint.output.len()
        }

        fn waiting(&self) -> usize {
            0
        }

        fn held(&self) -> usize {
            self.endpoint.held()
        }

        fn unfinished(&self) -> usize {
            self.endpoint.unfinished()
        }

        fn hold_credit(&mut self, hold: bool) {
            self.endpoint.hold_credit(hold);
        }
    };
}

pub(super) use connection_of_endpoint;
