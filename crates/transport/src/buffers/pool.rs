//! Memory that waits for its next use.

use std::fmt::Debug;
use std::sync::{Arc, LazyLock, Weak};

use super::memory::{Buffer, Memory};
use nearcall_platform::lock::InnerMutex;

/// Bytes kept for further uses in one pool; the memory that has waited longest goes first.
const KEPT: usize = 64 << 20;

/// Where memory waits for its next use. Whoever has been shown any of it may be shown what is written to it next: the
/// servers that this process has chosen, or one client of a server here.
#[derive(Debug, Default)]
pub struct BufferPool(InnerMutex<Vec<Arc<Memory>>>);

impl BufferPool {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// That of this process, for what only servers see.
    #[must_use]
    pub fn common() -> Arc<Self> {
        static COMMON: LazyLock<Arc<BufferPool>> = LazyLock::new(BufferPool::new);
        Arc::clone(&COMMON)
    }

    pub(super) fn put(&self, memory: Arc<Memory>) {
        let mut surplus = Vec::new();
        let mut kept = self.0.lock();
        kept.push(memory);
        let mut bytes: usize = kept.iter().map(|memory| memory.len()).sum();
        while bytes > KEPT {
            let oldest = kept.remove(0);
            bytes -= oldest.len();
            surplus.push(oldest);
        }
        drop(kept);
        // Unmapping takes its time: not with the lock held.
        drop(surplus);
    }

    /// The smallest that has `size` bytes, unless it is much larger.
    pub(super) fn take(&self, size: usize) -> Option<Arc<Memory>> {
        let mut kept = self.0.lock();
        if kept.first().is_some_and(|memory| memory.is_inherited()) {
            // All of it is the parent's, who goes on using it.
            let inherited = std::mem::take(&mut *kept);
            drop(kept);
            drop(inherited);
            return None;
        }
        let fits = |memory: &Memory| memory.len() >= size && memory.len() <= size + size / 4;
        let fitting = kept.iter().enumerate().filter(|(_, memory)| fits(memory));
        let at = fitting.min_by_key(|(_, memory)| memory.len()).map(|(at, _)| at)?;
        Some(kept.remove(at))
    }
}

/// A connection on which buffers are lent.
pub(crate) trait Lender: Debug + Send + Sync {
    /// The buffers that its peer has given back; they are dropped when no lock is held.
    fn given_back(&self) -> Vec<Arc<Buffer>>;
}

static LENDERS: InnerMutex<Vec<Weak<dyn Lender>>> = InnerMutex::new(Vec::new());

/// From now on it is asked for what was given back, as long as it lives.
pub(crate) fn watch_lender(lender: Weak<dyn Lender>) {
    let mut lenders = LENDERS.lock();
    lenders.retain(|lender| lender.strong_count() > 0);
    lenders.push(lender);
}

/// Looks for memory that peers have given back since somebody last asked.
pub(super) fn ask_lenders() {
    let lenders: Vec<_> = LENDERS.lock().iter().filter_map(Weak::upgrade).collect();
    let given_back: Vec<_> = lenders.iter().flat_map(|lender| lender.given_back()).collect();
    drop(given_back);
}
