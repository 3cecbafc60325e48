//! What a region of the peer's costs this side: pages that it asks the system for.

use std::io;
use std::sync::Arc;

use nearcall_ring::Mapping;

use crate::budget::Account;
use crate::message::REGION_HEAD;
use crate::sync::{AtomicUsize, Ordering};

/// A region of the peer's, mapped. A peer may make it as long as it likes and never write to it: the pages come from this
/// side's reading, so they are counted here.
#[derive(Debug)]
pub(crate) struct Pages {
    mapping: Mapping,
    account: Arc<Account>,
    /// So many bytes from the start were asked of the system. The rest may be a hole of any size.
    present: AtomicUsize,
    /// So many of them are counted as kept between messages.
    kept: AtomicUsize,
}

impl Pages {
    pub(crate) fn new(mapping: Mapping, account: Arc<Account>) -> Self {
        Self { mapping, account, present: AtomicUsize::new(0), kept: AtomicUsize::new(0) }
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Asks the system for the first `needed` bytes, at most `part` of them at once. Whether all are here.
    pub(crate) fn ask_for(&self, needed: usize, part: usize) -> io::Result<bool> {
        // Relaxed, here and below: counts. What is read of the memory is ordered by the ring and the region's head.
        let present = self.present.load(Ordering::Relaxed);
        if needed > present {
            let end = needed.min(present + part);
            self.mapping.populate(present, end)?;
            self.present.store(end, Ordering::Relaxed);
            return Ok(end == needed);
        }
        Ok(true)
    }

    /// The message in it is through: the pages are kept for the next one if this side may, else given back. To be called
    /// before the peer may write to them again.
    pub(crate) fn let_go(&self) {
        let present = self.present.load(Ordering::Relaxed);
        if present <= self.kept.load(Ordering::Relaxed) {
            return;
        }
        // Two messages in one region are a peer's mistake; the swaps count right all the same.
        let before = self.kept.swap(present, Ordering::Relaxed);
        if !self.account.keep(present.wrapping_sub(before)) {
            // All but the page with the region's head, by which the peer is told.
            self.mapping.discard(REGION_HEAD);
            self.present.store(0, Ordering::Relaxed);
            self.account.give_back(self.kept.swap(0, Ordering::Relaxed));
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.account.give_back(self.kept.swap(0, Ordering::Relaxed));
    }
}
