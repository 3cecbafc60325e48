//! The protocol between a side that goes to sleep and the peer that must wake it. It uses one word and no clock, so
//! that a model checker can try every interleaving.

use crate::sync::{AtomicU32, Ordering, fence};

/// The state of a side, asleep or awake, as both sides see it.
///
/// The sleeping side calls [`Parking::park`], looks for work once more, and only then sleeps. The peer publishes work
/// and then calls [`Parking::claim_wake`]. One of the two always notices the other.
#[repr(transparent)]
#[derive(Debug)]
pub struct Parking(
    /// 1 while this side sleeps (or is about to) and wants to be woken.
    AtomicU32,
);

impl Parking {
    /// A side that is awake.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Whether the side sleeps.
    #[inline]
    #[must_use]
    pub fn is_parked(&self) -> bool {
        // Relaxed: a hint for deciding whether to spin.
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Declares that this side is about to sleep. The caller must look for work once more after this, then sleep.
    pub fn park(&self) {
        self.0.store(1, Ordering::Relaxed);
        // SeqCst fence: pairs with the fence in `claim_wake`: either the peer sees that this side sleeps, or this side
        // sees what the peer published. Also pairs with the fence in `Producer::declare_starved`: either this side sees
        // that the producer starves, or the producer sees the room that this side made.
        fence(Ordering::SeqCst);
    }

    /// Declares that this side is awake.
    pub fn unpark(&self) {
        // Relaxed: only this side sets the word, so it sees the word while it is set, and a bell rung for nothing is
        // harmless. The word is read first, so that being awake costs the peer no cache miss. It is swapped to have its
        // place in the order of the peer's claims.
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.swap(0, Ordering::Relaxed);
        }
    }

    /// Called by the peer after publishing work. Whether this side sleeps and the caller must wake it: true for one
    /// caller only, and only once per sleep.
    #[inline]
    #[must_use]
    pub fn claim_wake(&self) -> bool {
        // SeqCst fence: pairs with the one in `park`.
        fence(Ordering::SeqCst);
        // Relaxed: this only decides who wakes the side; the lane's own words order what was published.
        let parked = self.0.load(Ordering::Relaxed);
        parked != 0 && self.0.compare_exchange(parked, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl Default for Parking {
    fn default() -> Self {
        Self::new()
    }
}
