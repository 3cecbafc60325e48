//! Which CPU we are on, and what time it is: the two questions the wait strategy asks all the time.

/// The CPU this thread runs on right now (a few nanoseconds: the kernel keeps it in the thread's rseq area).
#[inline]
#[must_use]
pub fn current() -> u32 {
    // SAFETY: sched_getcpu has no preconditions.
    let cpu = unsafe { libc::sched_getcpu() };
    u32::try_from(cpu).unwrap_or(0)
}

/// How many CPUs this process may run on.
#[must_use]
pub fn available() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Nanoseconds on the system's monotonic clock, the same for all processes of this machine.
#[inline]
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
