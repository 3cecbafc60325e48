//! A payload that lies in shared memory, and the right to use it.

use std::mem::MaybeUninit;
use std::sync::Arc;

use nearcall_ring::Mapping;
use smallvec::SmallVec;

use super::buffers::Buffer;
use super::pages::RegionHold;
use super::region::{Pin, REGION_HEAD};
use super::window::{Hold, Window};

/// Parts of a payload that lie in buffers, each with its offset in the payload, in order. They do not overlap, and the
/// gaps between them are as long as the rest of the payload.
pub(crate) type HandedOver = SmallVec<[(usize, Lease); 2]>;

/// A payload in shared memory. While the lease lives, the owner must not use the memory again.
///
/// The owner could still change the bytes at any time, so no Rust reference to them is ever made: they are copied out
/// once, or shown to the user as a view, whose contents are then the owner's responsibility.
#[derive(Debug)]
pub struct Lease {
    memory: Leased,
    offset: usize,
    len: usize,
}

/// The memory of a lease, and what keeps it from going back.
#[derive(Debug)]
enum Leased {
    /// A region of the peer.
    Region(RegionHold),
    /// A buffer of the peer.
    Lent(Arc<Window>, #[expect(dead_code, reason = "it is there to be dropped")] Hold),
    /// A buffer of this side that the peer has handed back.
    Own(Arc<Buffer>),
    /// A region of this side that the peer has handed back.
    Pinned(Pin),
}

impl Lease {
    pub(crate) fn region(hold: RegionHold, len: usize) -> Self {
        debug_assert!(len + REGION_HEAD <= hold.pages().mapping().len());
        Self { memory: Leased::Region(hold), offset: REGION_HEAD, len }
    }

    pub(crate) fn lent(window: Arc<Window>, hold: Hold, offset: usize, len: usize) -> Self {
        debug_assert!(offset + len <= window.mapping().len());
        Self { memory: Leased::Lent(window, hold), offset, len }
    }

    pub(crate) fn own(buffer: Arc<Buffer>, offset: usize, len: usize) -> Self {
        debug_assert!(offset + len <= buffer.mapping().len());
        Self { memory: Leased::Own(buffer), offset, len }
    }

    pub(crate) fn pinned(pin: Pin, offset: usize, len: usize) -> Self {
        debug_assert!(offset + len <= pin.mapping().len());
        Self { memory: Leased::Pinned(pin), offset, len }
    }

    fn mapping(&self) -> &Mapping {
        match &self.memory {
            Leased::Region(hold) => hold.pages().mapping(),
            Leased::Lent(window, _) => window.mapping(),
            Leased::Own(buffer) => buffer.mapping(),
            Leased::Pinned(pin) => pin.mapping(),
        }
    }

    /// Bytes of payload.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the payload is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the payload starts. Valid while `self` lives. The memory may be read-only.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.mapping().address().as_ptr().wrapping_add(self.offset)
    }

    /// A private copy.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.mapping().read(self.offset, &mut bytes);
        bytes
    }

    /// Copies bytes out of the payload. All of `into` is initialized afterwards.
    ///
    /// # Panics
    /// If the range is not inside the payload.
    pub fn copy(&self, offset: usize, into: &mut [MaybeUninit<u8>]) {
        assert!(offset.checked_add(into.len()).is_some_and(|end| end <= self.len), "read past the payload");
        self.mapping().read_new(self.offset + offset, into);
    }
}
