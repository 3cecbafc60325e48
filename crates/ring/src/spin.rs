//! Bounded, adaptive spinning.
//!
//! Spinning for as long as one wake-up costs is at most twice as bad as the best choice in hindsight (Karlin, Manasse,
//! McGeoch, Owicki: Competitive randomized algorithms for non-uniform problems, 1990). Each connection measures what a
//! wake-up costs. Where waits turn out longer, the budget shrinks to nothing, and spinning is tried again only now and
//! then.

use std::time::{Duration, Instant};

use nearcall_platform::clock;

/// The user's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SpinPolicy {
    /// Measure and adapt.
    #[default]
    Auto,
    /// Spin up to this long on every wait; zero parks at once.
    Fixed(Duration),
}

/// The longest spin, whatever wake-ups seem to cost.
const LONGEST_NS: u64 = 100_000;
/// A peer on this CPU answers and yields the CPU within this time; other work keeps the CPU for a time slice.
const CROWDED_NS: u64 = 50_000;
/// The assumed cost of a wake-up until one is measured.
const FIRST_GUESS_NS: u64 = 50_000;
/// The most waits that park at once before spinning is tried again.
const LONGEST_PAUSE: u32 = 64;

/// How long the next wait may spin, learned from the waits before it.
#[derive(Debug)]
pub struct SpinBudget {
    policy: SpinPolicy,
    wake_cost_ns: u64,
    /// How many waits in a row have spun in vain.
    misses: u32,
    /// How many further waits park at once.
    pause: u32,
    /// `crowded`: how many further waits park at once because this CPU has other work. `last_crowded`: that number the
    /// last time.
    crowded: u32,
    last_crowded: u32,
}

impl SpinBudget {
    /// A budget without experience.
    #[must_use]
    pub fn new(policy: SpinPolicy) -> Self {
        Self { policy, wake_cost_ns: FIRST_GUESS_NS, misses: 0, pause: 0, crowded: 0, last_crowded: 0 }
    }

    /// How many nanoseconds the wait that begins now may spin.
    #[must_use]
    #[expect(clippy::should_implement_trait, reason = "a budget is asked, not iterated over")]
    pub fn next(&mut self) -> u64 {
        match self.policy {
            SpinPolicy::Fixed(time) => u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
            SpinPolicy::Auto if self.crowded > 0 => {
                self.crowded -= 1;
                0
            }
            SpinPolicy::Auto if self.pause > 0 => {
                self.pause -= 1;
                0
            }
            SpinPolicy::Auto => self.limit(),
        }
    }

    /// The same for a wait that ends at `deadline` at the latest.
    #[must_use]
    pub fn next_until(&mut self, deadline: Option<Instant>) -> u64 {
        let most = self.next();
        deadline.map_or(most, |deadline| {
            let left = deadline.saturating_duration_since(Instant::now()).as_nanos();
            most.min(u64::try_from(left).unwrap_or(u64::MAX))
        })
    }

    /// Whether a wait that began now would spin.
    #[inline]
    #[must_use]
    pub fn may_spin(&self) -> bool {
        match self.policy {
            SpinPolicy::Fixed(time) => !time.is_zero(),
            SpinPolicy::Auto => self.crowded == 0 && self.pause == 0,
        }
    }

    fn limit(&self) -> u64 {
        // One wake-up for this side, and one for a peer that slept when it was called.
        (self.wake_cost_ns * 2).clamp(5_000, LONGEST_NS)
    }

    /// The wait is over, and took `waited_ns` in all, spinning and sleeping.
    pub fn learn(&mut self, waited_ns: u64) {
        if waited_ns <= self.limit() {
            self.misses = 0;
            self.pause = 0;
        } else {
            self.misses = (self.misses + 1).min(16);
            // The first misses are forgiven: a pause between two bursts of calls is one long wait, too.
            if self.misses > 2 {
                self.pause = (1 << (self.misses - 2).min(6)).min(LONGEST_PAUSE);
            }
        }
    }

    /// Yields the CPU in the middle of a spin. `false` if that took so long that other work than the peer must have
    /// run. Spinning here then makes everything slower, and the next waits do not spin.
    #[must_use]
    pub fn share_cpu(&mut self) -> bool {
        let begun = clock::monotonic_ns();
        std::thread::yield_now();
        if clock::monotonic_ns() - begun < CROWDED_NS {
            return true;
        }
        self.last_crowded = (self.last_crowded * 2).clamp(4 * LONGEST_PAUSE, 32 * LONGEST_PAUSE);
        self.crowded = self.last_crowded;
        false
    }

    /// A spin with [`SpinBudget::share_cpu`] has succeeded.
    pub fn uncrowded(&mut self) {
        self.last_crowded /= 2;
    }

    /// A wake-up was measured.
    pub fn learn_wake_cost(&mut self, cost_ns: u64) {
        // An eighth of the new sample: one slow wake-up must not double the budget.
        self.wake_cost_ns = (self.wake_cost_ns * 7 + cost_ns.clamp(1_000, LONGEST_NS)) / 8;
    }
}

/// Calls `ready` until it returns true, for at most `budget_ns`. Every few rounds it asks `worth_while` whether to go
/// on.
///
/// Returns how long it took in nanoseconds, or `None` if the budget is used up or spinning has become pointless. The
/// first rounds, in which the usual reply arrives, do not read the clock and count as no time.
#[inline]
pub fn spin(budget_ns: u64, mut ready: impl FnMut() -> bool, mut worth_while: impl FnMut() -> bool) -> Option<u64> {
    if ready() {
        return Some(0);
    }
    if budget_ns == 0 || !worth_while() {
        return None;
    }
    for _ in 0..CLOCKLESS_ROUNDS {
        std::hint::spin_loop();
        if ready() {
            return Some(0);
        }
    }
    let begun = clock::monotonic_ns();
    loop {
        for _ in 0..ROUNDS {
            std::hint::spin_loop();
            if ready() {
                return Some(clock::monotonic_ns() - begun);
            }
        }
        if clock::monotonic_ns() - begun > budget_ns || !worth_while() {
            return None;
        }
    }
}

/// How often to look before the clock is first read: one to two microseconds.
const CLOCKLESS_ROUNDS: u32 = 100;
/// How often to look between two readings of the clock.
const ROUNDS: u32 = 32;
