//! What one process tells the other about itself, so that each knows whether to spin and whether to ring the bell.

use crate::cpu;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// One side's words in shared memory. They change rarely, so the peer reads them from its own cache.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Side {
    /// The CPU this side last ran on, plus one; 0 until it said so.
    cpu: AtomicU32,
    /// 1 while this side sleeps (or is about to) and wants to be woken.
    parked: AtomicU32,
    /// When the peer last rang the bell, nanoseconds on the monotonic clock: tells the sleeper what a wake-up costs.
    rung_at: AtomicU64,
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
        // Relaxed: a hint, used to decide whether spinning is worth while.
        self.parked.load(Ordering::Relaxed) != 0
    }

    /// Declares that this side is about to sleep. The caller must look for work once more after this, then sleep.
    pub fn park(&self) {
        self.parked.store(1, Ordering::Relaxed);
        // SeqCst fence: pairs with the one in `ring_bell`. Either the peer sees `parked`, or we see what it published.
        fence(Ordering::SeqCst);
    }

    /// Declares that this side is awake.
    pub fn unpark(&self) {
        // Relaxed: a bell rung for nothing is harmless.
        self.parked.store(0, Ordering::Relaxed);
    }

    /// Called by the peer after publishing something: whether this side sleeps and the peer must wake it. True for one
    /// caller only, and only once per sleep.
    #[inline]
    #[must_use]
    pub fn claim_wake(&self) -> bool {
        // SeqCst fence: pairs with the one in `park`.
        fence(Ordering::SeqCst);
        if self.parked.load(Ordering::Relaxed) == 0 || self.parked.swap(0, Ordering::AcqRel) == 0 {
            return false;
        }
        self.rung_at.store(cpu::monotonic_ns(), Ordering::Relaxed);
        true
    }

    /// Nanoseconds since the bell was rung for this side, if that was a moment ago: what the wake-up cost.
    #[must_use]
    pub fn wake_cost_ns(&self) -> Option<u64> {
        // Relaxed and clamped: the peer's word is only a hint, and a lie must do no harm.
        let rung = self.rung_at.swap(0, Ordering::Relaxed);
        let cost = cpu::monotonic_ns().checked_sub(rung)?;
        (rung != 0 && cost < 1_000_000).then_some(cost)
    }
}
