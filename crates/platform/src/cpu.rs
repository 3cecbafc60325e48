//! The CPU that a thread runs on, the number of CPUs, and how long this thread has run on any.

use std::time::Duration;

/// How long the calling thread has run. One system call, 0.1 to 0.2 µs.
#[must_use]
pub fn thread_time() -> Duration {
    // SAFETY: all zeros are a valid timespec.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: the time is written to a variable of this function. It cannot fail for the calling thread's own clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_sleeps_uses_no_time_and_one_that_computes_does() {
        let begun = thread_time();
        while thread_time() < begun + Duration::from_millis(2) {}
        let slept = Duration::from_millis(200);
        let before = thread_time();
        std::thread::sleep(slept);
        assert!(thread_time() < before + slept);
    }
}
