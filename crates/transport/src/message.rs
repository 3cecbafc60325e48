//! A frame that has arrived.

use std::mem::MaybeUninit;
use std::sync::Arc;

use nearcall_ring::Mapping;
use smallvec::SmallVec;

use crate::budget::{Account, Charge};
use crate::link::LinkError;
use crate::shm::Pages;
use crate::sync::{AtomicU32, Ordering};

/// Frames up to this many bytes are kept without an allocation.
pub const INLINE: usize = 64;

/// A frame as it was received: private bytes, and for a long payload the shared memory it lies in.
#[derive(Debug)]
pub struct Incoming {
    /// The frame; without its payload if there is a lease.
    pub bytes: SmallVec<[u8; INLINE]>,
    /// Apart, because a short frame has none of it and passes through many hands: what has more than 128 bytes is moved by
    /// calls of `memcpy`.
    long: Option<Box<Long>>,
}

/// What only long frames have.
#[derive(Debug)]
struct Long {
    lease: Option<Lease>,
    charge: Option<Charge>,
}

/// Frames up to this many bytes cost nothing: how many of them are kept is limited by other means.
const FREE: usize = 1024;

impl Incoming {
    /// A frame, its payload if that was handed over in memory of its own, and what it costs the peer's account as long as it
    /// is kept.
    #[must_use]
    #[inline]
    pub fn new(bytes: SmallVec<[u8; INLINE]>, lease: Option<Lease>, charge: Option<Charge>) -> Self {
        let is_long = lease.is_some() || charge.is_some();
        Self { bytes, long: is_long.then(|| Box::new(Long { lease, charge })) }
    }

    /// The payload, if it was handed over in memory of its own.
    #[must_use]
    #[inline]
    pub fn lease(&self) -> Option<&Lease> {
        self.long.as_ref()?.lease.as_ref()
    }

    /// Copies bytes of the frame; all of `into` is set afterwards.
    ///
    /// # Panics
    /// If the range is not inside.
    pub fn copy(&self, offset: usize, into: &mut [MaybeUninit<u8>]) {
        let from = &self.bytes[offset..][..into.len()];
        // SAFETY: the same bytes, as ones that need not be set.
        into.copy_from_slice(unsafe { &*(std::ptr::from_ref(from) as *const [MaybeUninit<u8>]) });
    }

    /// Takes out what it costs its sender's account, to be kept for longer than the frame.
    pub fn take_charge(&mut self) -> Option<Charge> {
        self.long.as_mut()?.charge.take()
    }

    /// The charge for a frame of `len` bytes.
    ///
    /// # Errors
    /// [`LinkError::OverBudget`].
    #[inline]
    pub(crate) fn charge(account: &Arc<Account>, len: usize) -> Result<Option<Charge>, LinkError> {
        if len <= FREE { Ok(None) } else { account.charge(len).map(Some).ok_or(LinkError::OverBudget) }
    }
}

/// A payload in shared memory, ours until dropped; then the sender may use the memory again.
///
/// The sender could change the bytes at any time, so no Rust reference to them is ever made: they are copied out once, or
/// shown to the user as a view, whose contents are then the peer's responsibility.
#[derive(Debug)]
pub struct Lease {
    pages: Arc<Pages>,
    len: usize,
}

/// The first bytes of a region of shared memory: who has it.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct RegionHead {
    state: AtomicU32,
}

/// Offset of a region's payload: one cache line, so that arrays are aligned.
pub(crate) const REGION_HEAD: usize = size_of::<RegionHead>();

impl RegionHead {
    pub(crate) fn of(mapping: &Mapping) -> &Self {
        // SAFETY: a region is at least a page and page-aligned; the head is one atomic, which may change at any time.
        unsafe { mapping.address().cast::<Self>().as_ref() }
    }

    pub(crate) fn is_free(&self) -> bool {
        // Acquire: pairs with the release in `Lease::drop`; the reader is done with the bytes.
        self.state.load(Ordering::Acquire) == 0
    }

    pub(crate) fn take(&self) {
        // Relaxed: the ring record that announces the region publishes this too.
        self.state.store(1, Ordering::Relaxed);
    }
}

impl Lease {
    pub(crate) fn new(pages: Arc<Pages>, len: usize) -> Self {
        debug_assert!(len + REGION_HEAD <= pages.mapping().len());
        Self { pages, len }
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

    /// Where the payload starts. Valid while `self` lives.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        // SAFETY: the mapping is longer than its head.
        unsafe { self.pages.mapping().address().as_ptr().add(REGION_HEAD) }
    }

    /// A private copy.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.pages.mapping().read(REGION_HEAD, &mut bytes);
        bytes
    }

    /// Copies bytes out of the payload; all of `into` is set afterwards.
    ///
    /// # Panics
    /// If the range is not inside.
    pub fn copy(&self, offset: usize, into: &mut [MaybeUninit<u8>]) {
        assert!(offset.checked_add(into.len()).is_some_and(|end| end <= self.len), "read past the payload");
        self.pages.mapping().read_new(REGION_HEAD + offset, into);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pages.let_go();
        // Release: our reads of the payload happen before the sender's next writes.
        RegionHead::of(self.pages.mapping()).state.store(0, Ordering::Release);
    }
}
