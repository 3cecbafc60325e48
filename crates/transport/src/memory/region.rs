//! Regions: memory for one long payload at a time. It is used again once the reader has released it.

use std::sync::Arc;

use nearcall_ring::Mapping;

use crate::sync::{AtomicU32, Ordering};

/// The first bytes of a region of shared memory: whether the reader has the region.
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
        // Release: this side's reads of the payload happen before the sender's next writes.
        self.state.store(0, Ordering::Release);
    }
}

/// The memory of a region of this side. The peer may hand back the message in it.
#[derive(Debug)]
pub(crate) struct RegionMemory {
    mapping: Mapping,
    pins: AtomicU32,
}

impl RegionMemory {
    pub(crate) fn new(mapping: Mapping) -> Arc<Self> {
        Arc::new(Self { mapping, pins: AtomicU32::new(0) })
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Says whether the peer has the region.
    pub(crate) fn head(&self) -> &RegionHead {
        RegionHead::of(&self.mapping)
    }

    /// Whether the next message may be written to it.
    pub(crate) fn is_free(&self) -> bool {
        // Acquire: pairs with the release in `Pin::drop`, after which this side is done with the bytes, too. The head
        // is looked at first: the peer holds the region until the message that it hands back is pinned.
        self.head().is_free() && self.pins.load(Ordering::Acquire) == 0
    }
}

/// A region of this side with a message that the peer has handed back.
#[derive(Debug)]
pub(crate) struct Pin(Arc<RegionMemory>);

impl Pin {
    pub(crate) fn new(memory: Arc<RegionMemory>) -> Self {
        // Relaxed: the ring tells the peer, and that orders it.
        memory.pins.fetch_add(1, Ordering::Relaxed);
        Self(memory)
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        self.0.mapping()
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // Release: what this side reads, it reads before the region is written to again.
        self.0.pins.fetch_sub(1, Ordering::Release);
    }
}
