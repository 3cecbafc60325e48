//! The system's monotonic clock.

use std::time::Instant;

/// Nanoseconds on the system's monotonic clock, which is the same for all processes of this machine.
#[inline]
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The same as of the last tick of the system, at most some milliseconds ago. It costs a fraction of the exact time.
#[inline]
#[must_use]
pub fn coarse_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Seconds until a deadline; 0 if it has passed.
#[must_use]
pub fn seconds_left(deadline: Instant) -> f64 {
    deadline.saturating_duration_since(Instant::now()).as_secs_f64()
}

/// Whether a deadline has passed; `None` never does.
#[inline]
#[must_use]
pub fn is_past(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}
