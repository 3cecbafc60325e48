//! The state of one stream.

use nearcall_wire::Metadata;

use crate::grpc::{CONTENT_TYPE, Encoding, Encodings};
use crate::reading::{Body, Reader};

/// The receiving side of a stream.
#[derive(Debug)]
pub(super) struct Incoming {
    /// Bytes that the peer may still send.
    pub(super) window: i64,
    /// Bytes by which the window may grow, and of which the peer was not told yet.
    pub(super) credit: usize,
    /// Bytes that were handed out and not released.
    pub(super) unreleased: usize,
    /// Bytes granted beyond the window, for a message that is longer than the window.
    pub(super) lent: usize,
    pub(super) reader: Reader,
    /// Bytes of the body that the peer has announced and not yet sent.
    pub(super) content_left: Option<u64>,
    /// Client: the response's headers have arrived.
    pub(super) has_head: bool,
    pub(super) is_ended: bool,
}

/// The sending side of a stream.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// Bytes that this side may still send; negative if the peer made its window smaller.
    pub(super) window: i64,
    waiting: Vec<u8>,
    /// How many bytes of `waiting` were taken for frames.
    taken: usize,
    /// What follows `waiting`.
    pub(super) end: Option<End>,
    pub(super) has_head: bool,
    pub(super) is_ended: bool,
    /// Whether it is in the queue of streams that can send.
    pub(super) is_scheduled: bool,
    pub(super) wants_room: bool,
    /// The next message may go [beyond](super::Session::may_go_beyond) what may be kept.
    pub(super) may_go_beyond: bool,
    /// Of the bytes that wait the first so many have done so.
    pub(super) beyond: usize,
    /// Whether a message has gone out.
    pub(super) has_sent: bool,
    pub(super) accepts: Encodings,
    /// The content type of a server's reply.
    pub(super) content_type: &'static str,
    /// The encoding that the headers have named.
    pub(super) encoding: Option<Encoding>,
}

/// How a stream ends.
#[derive(Debug)]
pub(super) enum End {
    Plain,
    Trailers(Box<Trailers>),
}

/// A status that waits for the messages in front of it.
#[derive(Debug)]
pub(super) struct Trailers {
    pub(super) code: u8,
    pub(super) message: String,
    pub(super) details: Vec<u8>,
    pub(super) metadata: Option<Metadata>,
}

impl Trailers {
    pub(super) fn cost(&self) -> usize {
        let pairs = self.metadata.as_ref().map_or(&[][..], Metadata::pairs);
        let metadata: usize = pairs.iter().map(|(key, value)| key.len() + value.len() + 64).sum();
        self.message.len() + self.details.len() + metadata
    }
}

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) incoming: Incoming,
    pub(super) outgoing: Outgoing,
}

impl Stream {
    pub(super) fn new(receive_window: u32, send_window: u32, body: Body) -> Self {
        let incoming = Incoming {
            window: i64::from(receive_window),
            credit: 0,
            unreleased: 0,
            lent: 0,
            reader: Reader::new(body),
            content_left: None,
            has_head: false,
            is_ended: false,
        };
        let outgoing = Outgoing {
            window: i64::from(send_window),
            waiting: Vec::new(),
            taken: 0,
            end: None,
            has_head: false,
            is_ended: false,
            is_scheduled: false,
            wants_room: false,
            may_go_beyond: false,
            beyond: 0,
            has_sent: false,
            accepts: Encodings::default(),
            content_type: CONTENT_TYPE,
            encoding: None,
        };
        Self { incoming, outgoing }
    }

    /// Bytes that wait to be sent, including a status behind them.
    pub(super) fn waiting(&self) -> usize {
        let after = if let Some(End::Trailers(trailers)) = &self.outgoing.end { trailers.cost() } else { 0 };
        self.outgoing.left() + after
    }
}

impl Incoming {
    /// Credit that the peer needs to send the rest of a message longer than the window. Only if little is kept of
    /// earlier messages: a stream of such messages is held back like any other.
    pub(super) fn lend(&mut self, window: u32) -> Option<usize> {
        let (whole, missing) = (window as usize, self.reader.missing());
        let is_needed = missing > 0 && self.window < missing.min(whole / 2) as i64;
        if self.is_ended || !is_needed || self.unreleased > whole / 2 {
            return None;
        }
        let more = missing.min(whole) - self.window.max(0) as usize;
        // Credit that would be returned anyway is used first.
        let lent = more.saturating_sub(self.credit);
        let more = lent + self.credit;
        self.lent += lent;
        self.credit = 0;
        self.window += more as i64;
        Some(more)
    }

    /// Notes that the application is done with `bytes`. Returns the credit to send, if it is worth a frame.
    pub(super) fn release(&mut self, bytes: usize, window: u32) -> Option<usize> {
        let bytes = bytes.min(self.unreleased);
        self.unreleased -= bytes;
        let repaid = bytes.min(self.lent);
        self.lent -= repaid;
        self.give_back(bytes - repaid, window)
    }

    /// Returns credit for bytes that no application takes, such as padding.
    pub(super) fn give_back(&mut self, bytes: usize, window: u32) -> Option<usize> {
        self.credit += bytes;
        if self.is_ended || self.credit < window as usize / 4 {
            return None;
        }
        let more = std::mem::take(&mut self.credit);
        self.window += more as i64;
        Some(more)
    }
}

impl Outgoing {
    pub(super) fn left(&self) -> usize {
        self.waiting.len() - self.taken
    }

    /// The buffer to which waiting bytes are appended.
    pub(super) fn tail(&mut self) -> &mut Vec<u8> {
        if self.taken == self.waiting.len() {
            self.waiting.clear();
            self.taken = 0;
        } else if self.taken > self.waiting.len() / 2 {
            self.waiting.drain(..self.taken);
            self.taken = 0;
        }
        &mut self.waiting
    }

    /// The next waiting bytes. They count as sent afterwards.
    pub(super) fn take(&mut self, len: usize) -> &[u8] {
        self.taken += len;
        &self.waiting[self.taken - len..self.taken]
    }

    /// Frees memory when nothing waits.
    pub(super) fn tidy(&mut self) {
        if self.left() == 0 {
            (self.waiting, self.taken) = (Vec::new(), 0);
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_ended || self.end.is_some()
    }
}
