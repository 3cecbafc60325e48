//! A frame that has arrived.

use std::any::Any;
use std::borrow::Cow;
use std::mem::MaybeUninit;
use std::sync::Arc;

use nearcall_wire::{Failure, FrameHead, HEAD_LEN, Kind, Malformed, Metadata, PartsTable, flags};
use smallvec::SmallVec;

use crate::errors::LinkError;
use crate::limits::budget::{Account, Charge};
use crate::limits::spares;
use crate::memory::{HandedOver, Lease};

/// Frames up to this many bytes are kept without an allocation.
pub const INLINE: usize = 64;

/// Frames up to this many bytes are not charged, nor is metadata that takes no more. Their number has other limits.
pub const FREE: usize = 1024;

/// A bit of a head's flags that no frame has on the wire: the message arrived compressed, over HTTP.
const COMPRESSED: u8 = 128;
/// In an error frame, the same bit says that the call's connection was lost.
const LOST: u8 = COMPRESSED;
const _: () = assert!(COMPRESSED & flags::ALL == 0);

/// The most bytes of a ping: the receiving thread answers it itself, and other work waits.
const MOST_PING: usize = 1024;

/// Whether a frame of this length is not charged.
#[inline]
pub(crate) fn is_free(len: usize) -> bool {
    len <= FREE
}

/// A received frame of any transport: its head, and its payload.
#[derive(Debug)]
pub struct Incoming {
    /// The kind of the frame, its call and its options.
    pub head: FrameHead,
    /// The frame's contents.
    pub payload: Payload,
}

/// The payload of a frame: private bytes, shared memory on lease, and parts that lie in buffers that were handed over.
#[derive(Debug)]
pub struct Payload {
    /// The bytes that are neither on lease nor handed over.
    bytes: SmallVec<[u8; INLINE]>,
    /// Where in `bytes` the payload begins.
    at: usize,
    /// Boxed, because a short frame has none of it and is moved often.
    long: Option<Box<Long>>,
}

/// Parts of a payload that only few frames have, above all long ones.
#[derive(Debug, Default)]
pub(crate) struct Long {
    /// Charges the frame to its sender's account while it lives.
    pub(crate) charge: Option<Charge>,
    /// The payload, if it lies in memory of its own.
    pub(crate) lease: Option<Lease>,
    /// Parts of the payload that lie in buffers.
    pub(crate) handed_over: HandedOver,
    pub(crate) kept: Option<Box<dyn Any + Send + Sync>>,
}

// A call moves this often, and more bytes than this would be moved by calls of `memcpy`.
const _: () = assert!(size_of::<Result<Option<Incoming>, LinkError>>() <= 128);

impl Long {
    /// A frame with a charge, and nothing else.
    pub(crate) fn charged(charge: Charge) -> Self {
        Self { charge: Some(charge), ..Self::default() }
    }
}

impl Incoming {
    /// Decodes a frame in nearcall's own encoding: its bytes, and memory beside them.
    ///
    /// # Errors
    /// [`LinkError::Broken`]: the frame is malformed.
    #[inline]
    pub(crate) fn decode(bytes: SmallVec<[u8; INLINE]>, long: Option<Long>) -> Result<Self, LinkError> {
        let (head, at) = FrameHead::decode(&bytes)?;
        // The usual frame is neither long nor divided into parts.
        if long.is_none() && head.extras().is_none() && !head.kind.is_ping() {
            return Ok(Self { head, payload: Payload { bytes, at, long: None } });
        }
        Self { head, payload: Payload { bytes, at, long: long.map(Box::new) } }.checked()
    }

    /// Fills an empty slot with a frame of `len` bytes, at most [`INLINE`], that `copy` copies.
    ///
    /// # Errors
    /// As [`Incoming::decode`]; then the slot stays empty.
    #[inline]
    pub(crate) fn decode_in(
        slot: &mut Option<Self>,
        len: usize,
        copy: impl FnOnce(&mut [u8]),
    ) -> Result<(), LinkError> {
        // A fixed length makes clearing it a few instructions.
        Self::fill(slot, SmallVec::from_buf_and_len([0; INLINE], len), copy)
    }

    /// The same with one of at most [`FREE`] bytes.
    #[inline(never)]
    pub(crate) fn decode_longer_in(
        slot: &mut Option<Self>,
        len: usize,
        copy: impl FnOnce(&mut [u8]),
    ) -> Result<(), LinkError> {
        #[expect(clippy::slow_vector_initialization, reason = "zeros of the allocator come from none of its caches")]
        // A `SmallVec` would write them one by one.
        let mut bytes = Vec::with_capacity(len);
        bytes.resize(len, 0);
        Self::fill(slot, SmallVec::from_vec(bytes), copy)
    }

    #[inline]
    fn fill(
        slot: &mut Option<Self>,
        bytes: SmallVec<[u8; INLINE]>,
        copy: impl FnOnce(&mut [u8]),
    ) -> Result<(), LinkError> {
        let head = FrameHead::new(Kind::Call, 0);
        let this = slot.insert(Self { head, payload: Payload { bytes, at: 0, long: None } });
        copy(&mut this.payload.bytes);
        if this.head.fill(&this.payload.bytes) && !this.head.kind.is_ping() {
            this.payload.at = HEAD_LEN;
            return Ok(());
        }
        Self::decode_again(slot)
    }

    /// Decodes a frame that is not of the usual kind, of which only the bytes are in their slot.
    #[inline(never)]
    fn decode_again(slot: &mut Option<Self>) -> Result<(), LinkError> {
        let bytes = slot.take().map(|mut frame| std::mem::take(&mut frame.payload.bytes)).unwrap_or_default();
        *slot = Some(Self::decode(bytes, None)?);
        Ok(())
    }

    /// Checks that head and payload fit together.
    #[inline(never)]
    fn checked(mut self) -> Result<Self, LinkError> {
        if let Some(metadata) = self.head.metadata()
            && let Some(charge) = self.payload.long.as_mut().and_then(|long| long.charge.as_mut())
        {
            charge.grow(metadata.held());
        }
        let Self { head, payload } = &self;
        if payload.lease().is_some() && payload.at != payload.bytes.len() {
            return Err(Malformed("a frame has a payload both in the ring and beside it").into());
        }
        if head.kind.is_ping() && payload.len() > MOST_PING {
            return Err(Malformed("a ping or pong has more than 1,024 bytes").into());
        }
        let parts = head.extras().and_then(|extras| extras.parts.as_ref());
        if let Some(parts) = parts {
            parts.check(payload.len())?;
        }
        if !payload.handed_over().is_empty() {
            payload.check_handed_over(parts)?;
        }
        Ok(self)
    }

    /// A frame without a charge.
    #[must_use]
    pub fn new(head: FrameHead, payload: &[u8]) -> Self {
        Self { head, payload: payload.into() }
    }

    /// A frame of another protocol than nearcall's own, with its charge.
    pub(crate) fn charged(head: FrameHead, payload: SmallVec<[u8; INLINE]>, charge: Option<Charge>) -> Self {
        let long = charge.map(|charge| Box::new(Long::charged(charge)));
        Self { head, payload: Payload { bytes: payload, at: 0, long } }
    }

    /// The end of a call that this side makes itself, for example when the connection is lost.
    #[must_use]
    pub fn local(call: u32, failure: &Failure) -> Self {
        let payload = Payload { bytes: failure.encode().into(), at: 0, long: None };
        Self { head: FrameHead::new(Kind::Error, call), payload }
    }

    /// The end of a call that the server has certainly not begun, so that it may be sent again.
    #[must_use]
    pub fn refused(call: u32, failure: &Failure) -> Self {
        let mut end = Self::local(call, failure);
        end.head.flags = flags::UNBEGUN;
        end
    }

    /// The end of a call whose connection was lost while the link's other connections go on.
    #[must_use]
    pub(crate) fn lost(call: u32, failure: &Failure) -> Self {
        let mut end = Self::local(call, failure);
        end.head.flags = LOST;
        end
    }

    /// Whether the call that this frame ends has lost its connection. The server may have begun the call.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.head.kind == Kind::Error && self.head.flags & LOST != 0
    }

    /// Whether the server has certainly not begun the call that this frame ends.
    #[must_use]
    pub fn is_unbegun(&self) -> bool {
        self.head.kind == Kind::Error && self.head.flags & flags::UNBEGUN != 0
    }

    /// Whether the other side has not read the call that this frame ends, and holds no references given with it.
    #[must_use]
    pub fn is_unread(&self) -> bool {
        self.head.kind == Kind::Error && self.head.flags & flags::UNREAD != 0
    }

    /// The same frame, marked as one whose message arrived compressed if `was` is set.
    pub(crate) fn that_was_compressed(mut self, was: bool) -> Self {
        if was {
            self.head.flags |= COMPRESSED;
        }
        self
    }

    /// Whether the message with this head arrived compressed.
    #[must_use]
    pub fn was_compressed(head: &FrameHead) -> bool {
        head.flags & COMPRESSED != 0
    }

    /// Takes the payload out. The head, and what the frame [keeps](Self::keep), stay.
    pub fn take_payload(&mut self) -> Payload {
        let mut payload = self.payload.take();
        if let Some(kept) = payload.take_kept() {
            self.keep(kept);
        }
        payload
    }

    /// Keeps a value alive as long as the frame.
    pub fn keep(&mut self, what: Box<dyn Any + Send + Sync>) {
        self.payload.long.get_or_insert_default().kept = Some(what);
    }

    /// The msgpack part of the payload, if the message holds values. The rest of the payload is buffers.
    #[must_use]
    pub fn values(&self) -> Cow<'_, [u8]> {
        self.payload.values(&self.head)
    }

    /// Whether this is the server's last frame of the call.
    #[must_use]
    pub fn ends_call(&self) -> bool {
        matches!(self.head.kind, Kind::Reply | Kind::End | Kind::Error)
    }

    /// The failure in a frame that ends a call.
    ///
    /// # Errors
    /// [`Malformed`] if the payload is no failure.
    pub fn failure(&self) -> Result<Failure, Malformed> {
        match self.payload.inline() {
            Some(bytes) => Failure::decode(bytes),
            None => Failure::decode(&self.payload.to_vec()),
        }
    }

    /// Bytes that the frame takes beside itself, and that are not charged because it is short.
    #[must_use]
    pub fn uncharged(&self) -> usize {
        if self.payload.long.as_ref().is_some_and(|long| long.charge.is_some()) {
            return 0;
        }
        let bytes = &self.payload.bytes;
        let payload = if bytes.spilled() { bytes.capacity() } else { 0 };
        payload + self.head.metadata().map_or(0, Metadata::held)
    }

    /// Somebody takes the frame, which has waited for that.
    pub fn begin_work(&mut self) {
        if let Some(charge) = self.payload.long.as_mut().and_then(|long| long.charge.as_mut()) {
            charge.begin_work();
        }
    }

    /// The charge for a frame of `len` bytes.
    ///
    /// # Errors
    /// [`LinkError::OverBudget`].
    #[inline]
    pub(crate) fn charge(account: &Arc<Account>, len: usize) -> Result<Option<Charge>, LinkError> {
        if is_free(len) { Ok(None) } else { account.charge(len).map(Some).ok_or(LinkError::OverBudget) }
    }
}

impl Drop for Payload {
    #[inline]
    fn drop(&mut self) {
        // A payload without `long` is short, and its memory is not worth keeping.
        if self.long.is_some() {
            spares::give_back(&mut self.bytes);
        }
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes: SmallVec::from_vec(bytes), at: 0, long: None }
    }
}

impl From<&[u8]> for Payload {
    fn from(bytes: &[u8]) -> Self {
        Self { bytes: SmallVec::from_slice(bytes), at: 0, long: None }
    }
}

impl Payload {
    fn empty() -> Self {
        Self { bytes: SmallVec::new(), at: 0, long: None }
    }

    /// Whether the payload is only its private bytes.
    #[inline]
    fn is_plain(&self) -> bool {
        self.long.is_none()
    }

    fn take_kept(&mut self) -> Option<Box<dyn Any + Send + Sync>> {
        self.long.as_mut()?.kept.take()
    }

    /// The whole payload, if it lies in memory of its own.
    #[must_use]
    #[inline]
    pub fn lease(&self) -> Option<&Lease> {
        self.long.as_ref()?.lease.as_ref()
    }

    /// The parts of the payload that lie in buffers, each with its offset in the payload: in order, without overlaps.
    #[must_use]
    #[inline]
    pub fn handed_over(&self) -> &[(usize, Lease)] {
        self.long.as_ref().map_or(&[], |long| &long.handed_over)
    }

    /// The private bytes of the payload: everything that is neither on lease nor handed over.
    #[must_use]
    #[inline]
    pub fn copied(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// Takes the payload and leaves an empty one.
    #[must_use]
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Self::empty())
    }

    /// The msgpack part of the payload, if the message with this head holds values. The rest of the payload is buffers.
    #[must_use]
    pub fn values(&self, head: &FrameHead) -> Cow<'_, [u8]> {
        let parts = head.extras().and_then(|extras| extras.parts.as_ref());
        // A table that does not fit was refused when the frame arrived.
        let len = parts.and_then(|parts| parts.ranges(self.len()).ok()).map_or(self.len(), |(body, _)| body);
        if let Some(bytes) = self.inline() {
            return Cow::Borrowed(&bytes[..len]);
        }
        let mut bytes = self.to_vec();
        bytes.truncate(len);
        Cow::Owned(bytes)
    }

    /// Releases the payload. Its sender may then use memory again that it handed over.
    #[inline]
    pub fn clear(&mut self) {
        if self.is_plain() {
            self.bytes.clear();
            self.at = 0;
        } else {
            drop(self.take());
        }
    }

    /// Takes out the payload's charge, to keep it for longer than the payload.
    #[inline]
    pub fn take_charge(&mut self) -> Option<Charge> {
        self.long.as_mut()?.charge.take()
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        if self.is_plain() {
            return self.copied().len();
        }
        let handed_over: usize = self.handed_over().iter().map(|(_, lease)| lease.len()).sum();
        self.rest_len() + handed_over
    }

    /// Length without the parts that were handed over.
    fn rest_len(&self) -> usize {
        self.lease().map_or(self.copied().len(), Lease::len)
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks that the parts that were handed over lie inside, and that each buffer of the payload is in one piece.
    fn check_handed_over(&self, parts: Option<&PartsTable>) -> Result<(), Malformed> {
        const OUTSIDE: Malformed = Malformed("a part that is handed over lies outside its message");
        let len = self.len();
        if self.handed_over().last().is_some_and(|(at, lease)| at + lease.len() > len) {
            return Err(OUTSIDE);
        }
        let ranges = match parts {
            Some(parts) => parts.ranges(len)?.1,
            None => vec![(0, len)],
        };
        let whole = ranges.iter().all(|&(offset, len)| self.find(offset).1 >= len);
        if whole { Ok(()) } else { Err(Malformed("a buffer of a message is handed over in pieces")) }
    }

    /// Where the byte at `offset` is, in a part that was handed over or in the rest, and how many bytes follow there in
    /// one piece.
    fn find(&self, offset: usize) -> (Spot<'_>, usize) {
        let mut before = 0;
        for (at, lease) in self.handed_over() {
            if offset < *at {
                return (Spot::Rest(offset - before), at - offset);
            }
            if offset - at < lease.len() {
                return (Spot::HandedOver(lease, offset - at), lease.len() - (offset - at));
            }
            before += lease.len();
        }
        let offset = offset - before;
        (Spot::Rest(offset), self.rest_len() - offset)
    }

    /// The payload, if it is private to this process.
    #[must_use]
    pub fn inline(&self) -> Option<&[u8]> {
        let private = self.is_plain() || self.lease().is_none() && self.handed_over().is_empty();
        private.then(|| self.copied())
    }

    /// Copies `into.len()` bytes from `offset`. All of `into` is initialized afterwards.
    ///
    /// # Panics
    /// If the range is not inside the payload.
    pub fn copy(&self, mut offset: usize, mut into: &mut [MaybeUninit<u8>]) {
        assert!(offset.checked_add(into.len()).is_some_and(|end| end <= self.len()), "read past the payload");
        while !into.is_empty() {
            let (spot, left) = self.find(offset);
            let (now, later) = into.split_at_mut(left.min(into.len()));
            match (spot, self.lease()) {
                (Spot::HandedOver(lease, inside), _) | (Spot::Rest(inside), Some(lease)) => lease.copy(inside, now),
                (Spot::Rest(inside), None) => {
                    let from = &self.copied()[inside..][..now.len()];
                    // SAFETY: the same bytes, seen as bytes that may be uninitialized.
                    now.copy_from_slice(unsafe { &*(std::ptr::from_ref(from) as *const [MaybeUninit<u8>]) });
                }
            }
            offset += now.len();
            into = later;
        }
    }

    /// Copies `into.len()` bytes from `offset`.
    ///
    /// # Panics
    /// If the range is not inside the payload.
    pub fn copy_to(&self, offset: usize, into: &mut [u8]) {
        // SAFETY: the same bytes, seen as bytes that may be uninitialized; `copy` writes only initialized ones there.
        self.copy(offset, unsafe { &mut *(std::ptr::from_mut(into) as *mut [MaybeUninit<u8>]) });
    }

    /// A private copy.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = Vec::with_capacity(self.len());
        let len = self.len();
        self.copy(0, &mut bytes.spare_capacity_mut()[..len]);
        // SAFETY: `len` bytes were reserved, and copying has initialized all of them.
        unsafe { bytes.set_len(len) };
        bytes
    }

    /// Where the byte at `offset` lies, for a view that keeps `self` alive. The buffer of the message that begins there
    /// follows in one piece; so does the whole payload if the message has no buffers.
    #[must_use]
    pub fn address(&self, offset: usize) -> *const u8 {
        let rest = || self.lease().map_or(self.copied().as_ptr(), Lease::as_ptr);
        match self.find(offset).0 {
            Spot::HandedOver(lease, inside) => lease.as_ptr().wrapping_add(inside),
            Spot::Rest(inside) => rest().wrapping_add(inside),
        }
    }
}

/// Where a byte of a payload is, with its offset there.
enum Spot<'a> {
    HandedOver(&'a Lease, usize),
    Rest(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame that is decoded where it stays is the same, or refused for the same reason, as one that is not.
    #[test]
    fn in_a_place_a_frame_is_decoded_as_elsewhere() {
        let shown = |frame: &Incoming| format!("{:?} {:?}", frame.head, frame.payload.to_vec());
        for bits in 0..=u16::MAX {
            for len in [0, 7, HEAD_LEN, 9, 20, 40, INLINE] {
                let mut bytes: Vec<u8> = (1..=INLINE as u8).collect();
                bytes[..2].copy_from_slice(&bits.to_be_bytes());
                bytes.truncate(len);
                let mut place = None;
                let decoded = Incoming::decode_in(&mut place, len, |to| to.copy_from_slice(&bytes));
                match Incoming::decode(SmallVec::from_slice(&bytes), None) {
                    Ok(frame) => {
                        assert_eq!(decoded, Ok(()));
                        assert_eq!(place.as_ref().map(shown), Some(shown(&frame)));
                    }
                    Err(why) => {
                        assert_eq!(decoded, Err(why));
                        assert!(place.is_none(), "nothing is left of a frame that is refused");
                    }
                }
            }
        }
    }
}
