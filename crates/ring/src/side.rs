//! What a process publishes about itself, so that the peer knows whether to spin and whether to ring the bell.

use nearcall_platform::{clock, cpu};

use crate::parking::Parking;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The words of one side in shared memory. They change rarely, so the peer reads them from its own cache.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Side {
    /// The CPU that this side last ran on, plus one; 0 before it was published.
    cpu: AtomicU32,
    parking: Parking,
    /// When the peer last rang the bell, in nanoseconds on the monotonic clock. The sleeping side computes the cost of
    /// a wake-up from it.
    rung_at: AtomicU64,
    /// 1 once this side has closed the connection properly.
    gone: AtomicU32,
}

impl Side {
    /// Publishes the CPU that this thread runs on. Cheap enough for every call: it writes only after a change.
    #[inline]
    pub fn publish_cpu(&self) {
        let now = cpu::current() + 1;
        // Relaxed: a hint for the peer's next decision, which orders nothing.
        if self.cpu.load(Ordering::Relaxed) != now {
            self.cpu.store(now, Ordering::Relaxed);
        }
    }

    /// Whether the peer, whose side this is, last ran on another CPU than this thread.
    #[inline]
    #[must_use]
    pub fn runs_elsewhere(&self) -> bool {
        // Relaxed: as in `publish_cpu`.
        self.cpu.load(Ordering::Relaxed) != cpu::current() + 1
    }

    /// Whether the peer, whose side this is, sleeps.
    #[inline]
    #[must_use]
    pub fn is_parked(&self) -> bool {
        self.parking.is_parked()
    }

    /// See [`Parking::park`].
    pub fn park(&self) {
        self.parking.park();
    }

    /// See [`Parking::unpark`].
    pub fn unpark(&self) {
        self.parking.unpark();
    }

    /// See [`Parking::claim_wake`]. Also notes the time, for the sleeping side.
    #[inline]
    #[must_use]
    pub fn claim_wake(&self) -> bool {
        let claimed = self.parking.claim_wake();
        if claimed {
            self.rung_at.store(clock::monotonic_ns(), Ordering::Relaxed);
        }
        claimed
    }

    /// Tells the peer that this side reads and writes no more.
    pub fn leave(&self) {
        // Relaxed: only the end of the socket counts. This merely saves the peer a call that would not be read.
        self.gone.store(1, Ordering::Relaxed);
    }

    /// Whether the peer, whose side this is, has closed the connection properly.
    #[inline]
    #[must_use]
    pub fn has_left(&self) -> bool {
        // Relaxed: as in `leave`.
        self.gone.load(Ordering::Relaxed) != 0
    }

    /// What the last wake-up cost: nanoseconds since the bell was rung for this side, if that was a moment ago.
    #[must_use]
    pub fn wake_cost_ns(&self) -> Option<u64> {
        // Relaxed and limited: the peer's word is only a hint, and a wrong value must do no harm.
        let rung = self.rung_at.swap(0, Ordering::Relaxed);
        let cost = clock::monotonic_ns().checked_sub(rung)?;
        (rung != 0 && cost < 1_000_000).then_some(cost)
    }
}
