//! What one process tells the other about itself, so that each knows whether to spin and whether to ring the bell.

use nearcall_platform::{clock, cpu};

use crate::parking::Parking;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// One side's words in shared memory. They change rarely, so the peer reads them from its own cache.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Side {
    /// The CPU this side last ran on, plus one; 0 until it said so.
    cpu: AtomicU32,
    parking: Parking,
    /// When the peer last rang the bell, nanoseconds on the monotonic clock: tells the sleeper what a wake-up costs.
    rung_at: AtomicU64,
    /// 1 once this side has ended the connection in good order.
    gone: AtomicU32,
}

impl Side {
    /// Publishes the CPU this thread runs on. Cheap enough for every call: it writes only when it changed.
    #[inline]
    pub fn publish_cpu(&self) {
        let now = cpu::current() + 1;
        // Relaxed: a hint for the peer's next decision; nothing is ordered by it.
        if self.cpu.load(Ordering::Relaxed) != now {
            self.cpu.store(now, Ordering::Relaxed);
        }
    }

    /// Whether the peer, whose side this is, last ran on another CPU than this thread does now.
    #[inline]
    #[must_use]
    pub fn runs_elsewhere(&self) -> bool {
        // Relaxed: as above.
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

    /// See [`Parking::claim_wake`]. Notes the time for the sleeper.
    #[inline]
    #[must_use]
    pub fn claim_wake(&self) -> bool {
        let claimed = self.parking.claim_wake();
        if claimed {
            self.rung_at.store(clock::monotonic_ns(), Ordering::Relaxed);
        }
        claimed
    }

    /// Says that this side reads and writes no more.
    pub fn leave(&self) {
        // Relaxed: the hang-up of the socket is what counts; this only spares the peer a call that nobody would read.
        self.gone.store(1, Ordering::Relaxed);
    }

    /// Whether the peer, whose side this is, has ended the connection in good order.
    #[inline]
    #[must_use]
    pub fn has_left(&self) -> bool {
        // Relaxed: as above.
        self.gone.load(Ordering::Relaxed) != 0
    }

    /// Nanoseconds since the bell was rung for this side, if that was a moment ago: what the wake-up cost.
    #[must_use]
    pub fn wake_cost_ns(&self) -> Option<u64> {
        // Relaxed and clamped: the peer's word is only a hint, and a lie must do no harm.
        let rung = self.rung_at.swap(0, Ordering::Relaxed);
        let cost = clock::monotonic_ns().checked_sub(rung)?;
        (rung != 0 && cost < 1_000_000).then_some(cost)
    }
}
