//! A call's two streams of messages: what the core may be given of the peer's, and the credit it gets back for its own.

use std::sync::Arc;

use nearcall_http::{SendError, Sent, StreamId};
use nearcall_wire::flow::{WINDOW, cost, granted};
use nearcall_wire::{FrameHead, Kind};
use smallvec::SmallVec;

use super::frames::{Frames, credit, unsent, with_message};
use super::held::Held;
use crate::errors::LinkError;
use crate::frame::incoming::{INLINE, Incoming};
use crate::limits::budget::Account;

/// The messages of one call that come from the peer.
#[derive(Debug)]
pub(super) struct Inflow {
    /// The call's number in the core.
    call: u32,
    /// Credit that the core has left, in bytes as the core counts them.
    allowance: i64,
    /// Bytes given to the core that it has granted no new credit for, as HTTP/2 counts them.
    untaken: usize,
    /// Messages that have arrived and exceed the core's credit.
    held: Held,
    /// The frame that ends the stream. It waits behind the held messages.
    end: Option<Box<Incoming>>,
}

impl Inflow {
    pub(super) fn new(call: u32) -> Self {
        Self { call, allowance: WINDOW, untaken: 0, held: Held::default(), end: None }
    }

    /// A message has arrived. It takes `size` bytes of HTTP/2's window.
    pub(super) fn item(
        &mut self,
        message: SmallVec<[u8; INLINE]>,
        size: usize,
        compressed: bool,
        frames: &mut Frames,
        account: &Arc<Account>,
    ) {
        self.untaken += size;
        if self.held.is_empty() && self.allowance > 0 {
            self.give(message, compressed, frames, account);
        } else {
            self.held.push(&message, compressed, account);
        }
    }

    fn give(&mut self, message: SmallVec<[u8; INLINE]>, compressed: bool, frames: &mut Frames, account: &Arc<Account>) {
        self.allowance -= cost(message.len());
        let item = with_message(FrameHead::new(Kind::Item, self.call), message, account);
        frames.push_back(item.that_was_compressed(compressed));
    }

    /// The stream has ended. The core gets `end` behind all items.
    pub(super) fn end(&mut self, end: Incoming, frames: &mut Frames) {
        if self.held.is_empty() {
            frames.push_back(end);
        } else {
            self.end = Some(Box::new(end));
        }
    }

    /// The core grants credit by the payload of its frame. As much is released in HTTP/2's window.
    pub(super) fn grant(
        &mut self,
        payload: &[u8],
        stream: StreamId,
        release: impl FnOnce(StreamId, usize),
        frames: &mut Frames,
        account: &Arc<Account>,
    ) {
        let more = granted(payload).unwrap_or(0);
        self.allowance = self.allowance.saturating_add(more);
        // The core counts more for each item than HTTP/2 does.
        let taken = self.untaken.min(usize::try_from(more).unwrap_or(usize::MAX));
        self.untaken -= taken;
        release(stream, taken);
        while self.allowance > 0
            && let Some((message, compressed)) = self.held.pop()
        {
            self.give(message, compressed, frames, account);
        }
        if self.held.is_empty() {
            frames.extend(self.end.take().map(|end| *end));
        }
    }

    /// Whether the stream has ended and the core does not know yet.
    pub(super) fn has_end(&self) -> bool {
        self.end.is_some()
    }

    /// Bytes of messages that the core has no credit for.
    pub(super) fn waiting(&self) -> usize {
        self.held.len()
    }

    /// The core wants no more: drops what waits.
    pub(super) fn clear(&mut self) {
        (self.held, self.end) = (Held::default(), None);
    }
}

/// The stream of messages that the core sends. The core gets its credit back while little of the stream waits to be
/// sent.
#[derive(Debug, Default)]
pub(super) struct Outflow {
    /// Credit that the core has spent and not got back.
    spent: i64,
    /// Much waits to be sent.
    is_full: bool,
}

impl Outflow {
    /// An item was sent. Returns the credit to give back now, if it is worth a frame.
    fn item(&mut self, len: usize, sent: Sent) -> Option<i64> {
        self.spent += cost(len);
        self.is_full |= sent == Sent::Full;
        (!self.is_full && self.spent >= WINDOW / 2).then(|| std::mem::take(&mut self.spent))
    }

    /// Notes that an item of `len` bytes was sent for the core's call `number`, and gives credit back when it is worth
    /// a frame.
    pub(super) fn sent(
        outflow: Option<&mut Self>,
        sent: Result<Sent, SendError>,
        len: usize,
        number: u32,
        frames: &mut Frames,
    ) -> Result<(), LinkError> {
        match sent {
            Ok(sent) => {
                let back = outflow.and_then(|outflow| outflow.item(len, sent));
                frames.extend(back.map(|back| credit(number, back)));
                Ok(())
            }
            Err(error) => unsent(error),
        }
    }

    /// There is room to send again. Returns the credit to give back.
    pub(super) fn room(&mut self) -> i64 {
        self.is_full = false;
        std::mem::take(&mut self.spent)
    }
}
