//! The basis of locks: atomics, the kernel's sleep on a word, the clock, and the spins before the sleep. All atomics of
//! this crate come from here, so that loom can replace them (`crates/models`).

pub(crate) use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
pub(crate) use std::thread::yield_now;
pub(crate) use std::time::Instant;

use std::time::Duration;

use rustix::thread::futex;

/// How often to look at a held lock before the thread sleeps: most locks are held for a few instructions only. The
/// first looks are for a holder on another CPU, the others for one that was interrupted on this CPU: a thread that
/// yields to it need not be woken.
pub(crate) const SPINS: u32 = 3;
/// See [`SPINS`].
pub(crate) const YIELDS: u32 = 7;
/// How long a thread that frees a lock fairly lets a sleeping one wake and take it: longer than a virtual machine takes
/// to wake a processor.
pub(crate) const FAIR: Duration = Duration::from_micros(200);

/// Sleeps while the word is `value`, for at most `timeout`. May wake earlier.
pub(crate) fn sleep(word: &AtomicU32, value: u32, timeout: Option<Duration>) {
    // A timeout that is too long for the system means no timeout.
    let timeout = timeout.and_then(|timeout| timeout.try_into().ok());
    // A signal, a changed word and the end of the timeout are all reasons to look again.
    let _ = futex::wait(word, futex::Flags::PRIVATE, value, timeout.as_ref());
}

/// Wakes up to `most` threads that sleep on the word.
pub(crate) fn wake(word: &AtomicU32, most: u32) {
    // Fails only for an invalid address.
    let _ = futex::wake(word, futex::Flags::PRIVATE, most);
}

/// How many locks this thread holds. Counted in debug builds only.
#[cfg(debug_assertions)]
pub(crate) mod held {
    use std::cell::Cell;

    thread_local! {
        static HELD: Cell<usize> = const { Cell::new(0) };
    }

    pub(crate) fn taken() {
        HELD.set(HELD.get() + 1);
    }

    pub(crate) fn freed() {
        HELD.set(HELD.get() - 1);
    }

    pub(crate) fn here() -> usize {
        HELD.get()
    }
}

/// How many locks this thread holds. Counted in debug builds only.
#[cfg(not(debug_assertions))]
pub(crate) mod held {
    #[inline(always)]
    pub(crate) fn taken() {}

    #[inline(always)]
    pub(crate) fn freed() {}

    #[inline(always)]
    pub(crate) fn here() -> usize {
        0
    }
}

/// Whether this thread holds an outer lock.
pub(crate) mod outer {
    use std::cell::Cell;

    thread_local! {
        /// How many, since a thread may serve one server inside a handler of another.
        static OUTER: Cell<u32> = const { Cell::new(0) };
    }

    #[inline]
    pub(crate) fn taken() {
        OUTER.set(OUTER.get() + 1);
    }

    #[inline]
    pub(crate) fn freed() {
        OUTER.set(OUTER.get() - 1);
    }

    pub(crate) fn here() -> bool {
        OUTER.get() > 0
    }
}
