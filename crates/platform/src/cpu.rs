//! The CPU that a thread runs on, the number of CPUs, and how long a thread has run on any.

use std::time::Duration;

/// The clock of one thread's processor time. Any thread of the process can read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadClock(libc::clockid_t);

impl ThreadClock {
    /// The calling thread's.
    #[must_use]
    pub fn mine() -> Self {
        let mut clock = 0;
        // SAFETY: it has no preconditions.
        let thread = unsafe { libc::pthread_self() };
        // SAFETY: the thread is alive, and the clock is written to a variable of this function. It cannot fail for the
        // calling thread; if it did, the clock would be the system's, and not a thread's.
        unsafe { libc::pthread_getcpuclockid(thread, &raw mut clock) };
        Self(clock)
    }

    /// As a number, to be kept in an atomic.
    #[must_use]
    pub fn to_bits(self) -> u32 {
        self.0.cast_unsigned()
    }

    /// What [`ThreadClock::to_bits`] gave.
    #[must_use]
    pub fn from_bits(bits: u32) -> Self {
        Self(bits.cast_signed())
    }

    /// How long the thread has run; `None` if it has ended. One system call, 0.1 to 0.2 µs.
    #[must_use]
    pub fn time(self) -> Option<Duration> {
        // SAFETY: all zeros are a valid timespec.
        let mut time: libc::timespec = unsafe { std::mem::zeroed() };
        // SAFETY: the time is written to a variable of this function; a clock that does not exist is an error.
        let read = unsafe { libc::clock_gettime(self.0, &raw mut time) };
        (read == 0).then(|| Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32))
    }
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
        let (tell, told) = std::sync::mpsc::channel();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let clock = ThreadClock::mine();
            let begun = clock.time().expect("alive");
            while clock.time().expect("alive") < begun + Duration::from_millis(2) {}
            tell.send((clock.to_bits(), begun)).expect("read below");
            wait.recv().expect("sent below");
        });
        let (bits, begun) = told.recv().expect("sent above");
        let clock = ThreadClock::from_bits(bits);
        let used = clock.time().expect("the thread waits");
        assert!(used >= begun + Duration::from_millis(2));
        assert_ne!(clock, ThreadClock::mine());
        go.send(()).expect("waited for");
        thread.join().expect("no panic");
        assert!(clock.time().is_none_or(|later| later >= used), "a clock never goes back");
    }
}
