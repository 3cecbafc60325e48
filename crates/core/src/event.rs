//! A frame that belongs to a call, divided into head and payload.

use std::any::Any;
use std::borrow::Cow;
use std::mem::MaybeUninit;

use nearcall_transport::{Charge, Incoming, Lease};
use nearcall_wire::{Failure, FrameHead, Kind, Malformed, PartsTable};
use smallvec::SmallVec;

/// A frame for a call.
#[derive(Debug)]
pub struct Event {
    /// What it says.
    pub head: FrameHead,
    /// What it carries.
    pub payload: Payload,
}

/// The payload of a frame: private bytes, or shared memory on lease, and parts of it in buffers that were handed over.
#[derive(Debug)]
pub struct Payload {
    incoming: Incoming,
    at: usize,
}

/// Bytes of a ping: it is answered by whoever receives, while others wait.
const MOST_PING: usize = 1024;

// Each call moves it through many hands, and what has more bytes is moved by calls of `memcpy`.
const _: () = assert!(size_of::<Option<Event>>() <= 128);

impl Event {
    #[inline]
    pub(crate) fn parse(incoming: Incoming) -> Result<Self, Malformed> {
        let (head, at) = FrameHead::decode(&incoming.bytes)?;
        // The usual frame is neither long nor divided.
        if incoming.is_plain() && head.extras().is_none() && !head.kind.is_ping() {
            return Ok(Self { head, payload: Payload { incoming, at } });
        }
        Self { head, payload: Payload { incoming, at } }.checked()
    }

    /// The same, if head and payload fit together.
    #[inline(never)]
    fn checked(self) -> Result<Self, Malformed> {
        let Self { head, payload } = &self;
        if payload.incoming.lease().is_some() && payload.at != payload.incoming.bytes.len() {
            return Err(Malformed("a frame has a payload both in the ring and beside it"));
        }
        if head.kind.is_ping() && payload.len() > MOST_PING {
            return Err(Malformed("a ping or pong has more than 1,024 bytes"));
        }
        let parts = head.extras().and_then(|extras| extras.parts.as_ref());
        if let Some(parts) = parts {
            parts.check(payload.len())?;
        }
        if !payload.incoming.handed_over().is_empty() {
            payload.check_handed_over(parts)?;
        }
        Ok(self)
    }

    /// An event that was not received but happened here, such as the loss of the connection.
    pub(crate) fn local(call: u32, failure: &Failure) -> Self {
        let incoming = Incoming::new(failure.encode().into());
        Self { head: FrameHead::new(Kind::Error, call), payload: Payload { incoming, at: 0 } }
    }

    /// Takes the payload out. What else there is of the event stays.
    pub fn take_payload(&mut self) -> Payload {
        let mut payload = self.payload.take();
        if let Some(kept) = payload.incoming.take_kept() {
            self.keep(kept);
        }
        payload
    }

    /// Keeps something for as long as the event.
    pub(crate) fn keep(&mut self, what: Box<dyn Any + Send + Sync>) {
        self.payload.incoming.keep(what);
    }

    /// The part of the payload that is msgpack, if the message has the form of values: what is beside it are buffers.
    pub(crate) fn values(&self) -> Cow<'_, [u8]> {
        let parts = self.head.extras().and_then(|extras| extras.parts.as_ref());
        // A table that does not fit was refused when the frame came.
        let len =
            parts.and_then(|parts| parts.ranges(self.payload.len()).ok()).map_or(self.payload.len(), |(body, _)| body);
        if let Some(bytes) = self.payload.inline() {
            return Cow::Borrowed(&bytes[..len]);
        }
        let mut bytes = self.payload.to_vec();
        bytes.truncate(len);
        Cow::Owned(bytes)
    }

    /// Whether the server says nothing more about the call after this.
    pub(crate) fn ends_call(&self) -> bool {
        matches!(self.head.kind, Kind::Reply | Kind::End | Kind::Error)
    }

    /// The failure an error event carries.
    ///
    /// # Errors
    /// [`Malformed`] if the payload is no failure.
    pub fn failure(&self) -> Result<Failure, Malformed> {
        match self.payload.inline() {
            Some(bytes) => Failure::decode(bytes),
            None => Failure::decode(&self.payload.to_vec()),
        }
    }
}

impl Payload {
    pub(crate) fn empty() -> Self {
        Self { incoming: Incoming::new(SmallVec::new()), at: 0 }
    }

    /// Takes all of it: an empty one is left.
    #[must_use]
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Self::empty())
    }

    /// Lets go of all of it: the sender may use memory again that it has handed over.
    #[inline]
    pub fn clear(&mut self) {
        if self.incoming.is_plain() {
            self.incoming.bytes.clear();
            self.at = 0;
        } else {
            drop(self.take());
        }
    }

    /// Takes out what it costs its sender's account, to be kept for longer than the payload.
    pub(crate) fn take_charge(&mut self) -> Option<Charge> {
        self.incoming.take_charge()
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        if self.incoming.is_plain() {
            return self.incoming.bytes.len() - self.at;
        }
        let handed_over: usize = self.incoming.handed_over().iter().map(|(_, lease)| lease.len()).sum();
        self.rest_len() + handed_over
    }

    /// The same without what was handed over.
    fn rest_len(&self) -> usize {
        self.incoming.lease().map_or(self.incoming.bytes.len() - self.at, Lease::len)
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What was handed over lies inside, and each buffer of the payload in one piece.
    fn check_handed_over(&self, parts: Option<&PartsTable>) -> Result<(), Malformed> {
        const OUTSIDE: Malformed = Malformed("a part that is handed over lies outside its message");
        let len = self.len();
        if self.incoming.handed_over().last().is_some_and(|(at, lease)| at + lease.len() > len) {
            return Err(OUTSIDE);
        }
        let ranges = match parts {
            Some(parts) => parts.ranges(len)?.1,
            None => vec![(0, len)],
        };
        let whole = ranges.iter().all(|&(offset, len)| self.find(offset).1 >= len);
        if whole { Ok(()) } else { Err(Malformed("a buffer of a message is handed over in pieces")) }
    }

    /// Where the byte at `offset` is: in what was handed over, or in the rest, and how many more are there from it on.
    fn find(&self, offset: usize) -> (Spot<'_>, usize) {
        let mut before = 0;
        for (at, lease) in self.incoming.handed_over() {
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

    /// The bytes, if they are private to this process.
    #[must_use]
    pub fn inline(&self) -> Option<&[u8]> {
        let private =
            self.incoming.is_plain() || self.incoming.lease().is_none() && self.incoming.handed_over().is_empty();
        private.then(|| &self.incoming.bytes[self.at..])
    }

    /// Copies `into.len()` bytes from `offset`: all of `into` is set afterwards.
    ///
    /// # Panics
    /// If the range is not inside.
    pub fn copy(&self, mut offset: usize, mut into: &mut [MaybeUninit<u8>]) {
        assert!(offset.checked_add(into.len()).is_some_and(|end| end <= self.len()), "read past the payload");
        while !into.is_empty() {
            let (spot, left) = self.find(offset);
            let (now, later) = into.split_at_mut(left.min(into.len()));
            match (spot, self.incoming.lease()) {
                (Spot::HandedOver(lease, inside), _) | (Spot::Rest(inside), Some(lease)) => lease.copy(inside, now),
                (Spot::Rest(inside), None) => self.incoming.copy(self.at + inside, now),
            }
            offset += now.len();
            into = later;
        }
    }

    /// A private copy.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = Vec::with_capacity(self.len());
        let len = self.len();
        self.copy(0, &mut bytes.spare_capacity_mut()[..len]);
        // SAFETY: so many bytes were reserved, and copying has set all of them.
        unsafe { bytes.set_len(len) };
        bytes
    }

    /// Where the byte at `offset` lies, for a view that keeps `self` alive. A buffer of the message, or all of it if it has
    /// none, follows in one piece.
    #[must_use]
    pub fn address(&self, offset: usize) -> *const u8 {
        let rest = || self.incoming.lease().map_or(self.incoming.bytes[self.at..].as_ptr(), Lease::as_ptr);
        match self.find(offset).0 {
            Spot::HandedOver(lease, inside) => lease.as_ptr().wrapping_add(inside),
            Spot::Rest(inside) => rest().wrapping_add(inside),
        }
    }
}

/// Where a byte of a payload is.
enum Spot<'a> {
    HandedOver(&'a Lease, usize),
    Rest(usize),
}
