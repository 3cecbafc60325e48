//! The CPU that a thread runs on, and the number of CPUs.

/// The CPU that this thread runs on now (takes a few nanoseconds: the kernel keeps it in the thread's rseq area).
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
