//! What a region of the peer's costs this side: pages that it asks the system for.

use std::io;
use std::sync::{Arc, Weak};

use nearcall_platform::fork::Owner;
use nearcall_ring::Mapping;

use super::places::Registration;
use super::region::{REGION_HEAD, RegionHead};
use crate::limits::budget::Account;
use crate::sync::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// A region of the peer, mapped. The peer may make it as long as it likes and never write to it. Reading it here makes
/// the pages, so this side counts them.
#[derive(Debug)]
pub(crate) struct Pages {
    // First: it must be gone before the mapping.
    _registration: Registration,
    mapping: Mapping,
    /// The numbers of the connection, and of the region on it.
    link: u64,
    id: u32,
    owner: Owner,
    /// The peer has forgotten the region, so no note can name the region to it any more.
    is_forgotten: AtomicBool,
    /// How many threads or messages hold the region, to read it or for the peer. Without holders it goes back.
    holders: AtomicU32,
    account: Arc<Account>,
    /// How many bytes from the start the system was asked for. The rest may be a hole of any size.
    present: AtomicUsize,
    /// How many of those bytes are counted as kept between messages.
    kept: AtomicUsize,
}

impl Pages {
    pub(crate) fn new(mapping: Mapping, link: u64, id: u32, account: Arc<Account>) -> Arc<Self> {
        let (start, len) = (mapping.address().as_ptr().addr(), mapping.len());
        Arc::new_cyclic(|own: &Weak<Self>| Self {
            _registration: Registration::new(start, len, own.clone()),
            mapping,
            link,
            id,
            owner: Owner::this_process(),
            is_forgotten: AtomicBool::new(false),
            holders: AtomicU32::new(0),
            account,
            present: AtomicUsize::new(0),
            kept: AtomicUsize::new(0),
        })
    }

    /// A message in the region has arrived.
    pub(crate) fn take(self: &Arc<Self>) -> RegionHold {
        // Relaxed: dropping a hold orders what was read before.
        self.holders.fetch_add(1, Ordering::Relaxed);
        RegionHold(Arc::clone(self))
    }

    /// Keeps the region from going back, unless it has gone back already.
    pub(crate) fn hold(self: &Arc<Self>) -> Option<RegionHold> {
        if !self.owner.is_this_process() {
            return None;
        }
        // Relaxed: as in `take`.
        let more = |holders: u32| (holders > 0).then_some(holders + 1);
        let held = self.holders.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        held.is_ok().then(|| RegionHold(Arc::clone(self)))
    }

    /// No other note will name the region.
    pub(crate) fn forget(&self) {
        // Relaxed: stored before the message is handed out.
        self.is_forgotten.store(true, Ordering::Relaxed);
    }

    /// The region's number for the peer at the other end of connection `link`, and where in the region the address
    /// lies. `None` if the region belongs to another peer, or that peer has forgotten it.
    pub(crate) fn place_at(&self, link: u64, address: usize) -> Option<(u32, u64)> {
        // Relaxed: see `forget`.
        let known = self.link == link && !self.is_forgotten.load(Ordering::Relaxed);
        known.then(|| (self.id, (address - self.mapping.address().as_ptr().addr()) as u64))
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Asks the system for the first `needed` bytes, at most `part` more of them at once. Whether all are present.
    pub(crate) fn ask_for(&self, needed: usize, part: usize) -> io::Result<bool> {
        // Relaxed, here and below: counts. The ring and the region's head order what is read of the memory.
        let present = self.present.load(Ordering::Relaxed);
        if needed > present {
            let end = needed.min(present + part);
            self.mapping.populate(present, end)?;
            self.present.store(end, Ordering::Relaxed);
            return Ok(end == needed);
        }
        Ok(true)
    }

    /// Counts the pages as kept between messages, if this side may keep them. They then outlive the message: the peer may
    /// go on to read them, which it cannot say here.
    pub(crate) fn keep(&self) -> bool {
        let present = self.present.load(Ordering::Relaxed);
        loop {
            let before = self.kept.load(Ordering::Relaxed);
            let Some(more) = present.checked_sub(before).filter(|&more| more > 0) else { return true };
            let may = self.account.keep(more);
            if may && self.kept.compare_exchange(before, present, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return true;
            }
            self.account.give_back(more);
            if !may {
                return false;
            }
        }
    }

    /// The message in the region is finished. Keeps the pages for the next one if this side may, else gives them back
    /// to the system. To be called before the peer may write to the region again.
    pub(crate) fn let_go(&self) {
        if !self.keep() {
            // All but the page with the region's head, which tells the peer that the region is free.
            self.mapping.discard(REGION_HEAD);
            self.present.store(0, Ordering::Relaxed);
            self.account.give_back(self.kept.swap(0, Ordering::Relaxed));
        }
    }
}

/// Keeps a region from going back to the peer.
#[derive(Debug)]
pub(crate) struct RegionHold(Arc<Pages>);

impl RegionHold {
    pub(crate) fn pages(&self) -> &Pages {
        &self.0
    }
}

impl Drop for RegionHold {
    fn drop(&mut self) {
        let pages = &*self.0;
        // AcqRel: every holder has read before the last one gives the region back. In a forked child, the copies of
        // holds belong to the parent.
        if pages.owner.is_this_process() && pages.holders.fetch_sub(1, Ordering::AcqRel) == 1 {
            pages.let_go();
            RegionHead::of(&pages.mapping).give_back();
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.account.give_back(self.kept.swap(0, Ordering::Relaxed));
    }
}
