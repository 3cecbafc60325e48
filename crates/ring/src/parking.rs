//! The agreement between a side that goes to sleep and the peer that must wake it. One word, no clock: a model checker can
//! try every interleaving of it.

use crate::sync::{AtomicU32, Ordering, fence};

/// Whether a side sleeps, as both sides see it.
///
/// The sleeper calls [`Parking::park`], looks for work once more, and only then sleeps. The peer publishes work and then
/// calls [`Parking::claim_wake`]. One of the two always notices the other.
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
        // Relaxed: a hint, used to decide whether spinning is worth while.
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Declares that this side is about to sleep. The caller must look for work once more after this, then sleep.
    pub fn park(&self) {
        self.0.store(1, Ordering::Relaxed);
        // SeqCst fence: pairs with the one in `claim_wake`: either the peer sees that we sleep, or we see what it published.
        // And with the one in `Producer::declare_starved`: either we see that it starves, or it sees the room we made.
        fence(Ordering::SeqCst);
    }

    /// Declares that this side is awake.
    pub fn unpark(&self) {
        // Relaxed: only we set it, so we see it while it is set; a bell rung for nothing is harmless. Looked at first, so
        // that being awake costs the peer no cache miss. Swapped, so that it has its place in the order of the peer's claims.
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.swap(0, Ordering::Relaxed);
        }
    }

    /// Called by the peer after publishing something: whether this side sleeps and the peer must wake it. True for one
    /// caller only, and only once per sleep.
    #[inline]
    #[must_use]
    pub fn claim_wake(&self) -> bool {
        // SeqCst fence: pairs with the one in `park`.
        fence(Ordering::SeqCst);
        // Relaxed: this only decides who wakes; what was published travels by the lane's own words.
        let parked = self.0.load(Ordering::Relaxed);
        parked != 0 && self.0.compare_exchange(parked, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl Default for Parking {
    fn default() -> Self {
        Self::new()
    }
}
