//! A frame that has arrived.

use std::any::Any;
use std::mem::MaybeUninit;
use std::sync::Arc;

use nearcall_ring::Mapping;
use smallvec::SmallVec;

use crate::budget::{Account, Charge};
use crate::buffers::Buffer;
use crate::link::LinkError;
use crate::shm::{Hold, Pin, RegionHold, Window};
use crate::sync::{AtomicU32, Ordering};

/// Frames up to this many bytes are kept without an allocation.
pub const INLINE: usize = 64;

/// A frame as it was received: private bytes, and for a long payload the shared memory it lies in.
#[derive(Debug)]
pub struct Incoming {
    /// The frame; without its payload if there is a lease, and without what is handed over.
    pub bytes: SmallVec<[u8; INLINE]>,
    /// Apart, because a short frame has none of it and passes through many hands: what has more than 128 bytes is moved by
    /// calls of `memcpy`.
    long: Option<Box<Long>>,
}

/// What only few frames have, long ones above all.
#[derive(Debug, Default)]
struct Long {
    lease: Option<Lease>,
    charge: Option<Charge>,
    handed_over: Handed,
    kept: Option<Box<dyn Any + Send + Sync>>,
}

/// Parts of a payload that lie in buffers: where in the payload each belongs, in order. They do not overlap, and what is
/// between them is as long as the rest of the payload.
pub(crate) type Handed = SmallVec<[(usize, Lease); 2]>;

/// Frames up to this many bytes cost nothing: how many of them are kept is limited by other means.
const FREE: usize = 1024;

/// Whether a frame of so many bytes costs nothing.
#[inline]
pub(crate) fn is_free(len: usize) -> bool {
    len <= FREE
}

impl Incoming {
    /// A frame that is nothing but its bytes.
    #[must_use]
    #[inline]
    pub fn new(bytes: SmallVec<[u8; INLINE]>) -> Self {
        Self { bytes, long: None }
    }

    /// A frame, what it costs the peer's account as long as it is kept, its payload if that was handed over in memory of its
    /// own, and parts of the payload that lie in buffers.
    pub(crate) fn long(
        bytes: SmallVec<[u8; INLINE]>,
        charge: Option<Charge>,
        lease: Option<Lease>,
        handed_over: Handed,
    ) -> Self {
        Self { bytes, long: Some(Box::new(Long { lease, charge, handed_over, kept: None })) }
    }

    /// Whether the frame is nothing but its bytes.
    #[must_use]
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.long.is_none()
    }

    /// Keeps something for as long as the frame.
    pub fn keep(&mut self, what: Box<dyn Any + Send + Sync>) {
        self.long.get_or_insert_default().kept = Some(what);
    }

    /// Takes that out.
    pub fn take_kept(&mut self) -> Option<Box<dyn Any + Send + Sync>> {
        self.long.as_mut()?.kept.take()
    }

    /// The payload, if it was handed over in memory of its own.
    #[must_use]
    #[inline]
    pub fn lease(&self) -> Option<&Lease> {
        self.long.as_ref()?.lease.as_ref()
    }

    /// Parts of the payload that lie in buffers, and where in the payload: in order, without overlaps.
    #[must_use]
    #[inline]
    pub fn handed_over(&self) -> &[(usize, Lease)] {
        self.long.as_ref().map_or(&[], |long| &long.handed_over)
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
    #[inline]
    pub fn take_charge(&mut self) -> Option<Charge> {
        self.long.as_mut()?.charge.take()
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

/// A payload in shared memory, ours until dropped; then its owner may use the memory again.
///
/// Its owner could change the bytes at any time, so no Rust reference to them is ever made: they are copied out once, or
/// shown to the user as a view, whose contents are then the owner's responsibility.
#[derive(Debug)]
pub struct Lease {
    memory: Leased,
    offset: usize,
    len: usize,
}

/// What keeps the memory of a lease.
#[derive(Debug)]
enum Leased {
    /// A region of the peer's.
    Region(RegionHold),
    /// A buffer of the peer's.
    Lent(Arc<Window>, #[expect(dead_code, reason = "it is there to be dropped")] Hold),
    /// A buffer of this side that the peer has handed back.
    Own(Arc<Buffer>),
    /// A region of this side that the peer has handed back.
    Pinned(Pin),
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
        // Acquire: pairs with the release in `give_back`; the reader is done with the bytes.
        self.state.load(Ordering::Acquire) == 0
    }

    pub(crate) fn take(&self) {
        // Relaxed: the ring record that announces the region publishes this too.
        self.state.store(1, Ordering::Relaxed);
    }

    pub(crate) fn give_back(&self) {
        // Release: our reads of the payload happen before the sender's next writes.
        self.state.store(0, Ordering::Release);
    }
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

    /// Where the payload starts. Valid while `self` lives; it may be memory that must not be written to.
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

    /// Copies bytes out of the payload; all of `into` is set afterwards.
    ///
    /// # Panics
    /// If the range is not inside.
    pub fn copy(&self, offset: usize, into: &mut [MaybeUninit<u8>]) {
        assert!(offset.checked_add(into.len()).is_some_and(|end| end <= self.len), "read past the payload");
        self.mapping().read_new(self.offset + offset, into);
    }
}
