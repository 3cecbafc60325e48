//! Locks that survive a fork: only the kernel knows which threads wait.
//!
//! `parking_lot` keeps its waiting threads in one table for the whole process, in the threads' own memory. A child by
//! `fork` inherits the table but not the threads. Its first threads get that memory, and waiting for any lock may then
//! follow a pointer into it. Here locks share nothing: what the parent's threads waited for stays in locks that the
//! child does not use.

use std::sync::OnceLock;
use std::time::Duration;

use lock_api::{GuardNoSend, RawMutex, RawMutexFair, RawMutexTimed};

use crate::sync::{self, AtomicU32, FAIR, Instant, Ordering, SPINS, YIELDS, held, outer, sleep, wake};

/// A mutex. It is not poisoned: a panic is a bug in this project, and ends the call or the process anyway.
pub type Mutex<T> = lock_api::Mutex<RawLock, T>;
/// A mutex for threads that may hold another one, held no longer than some copying takes. A thread that waits for it
/// keeps the interpreter, because a thread with a lock must not wait for the interpreter.
pub type InnerMutex<T> = lock_api::Mutex<RawLock<INNER>, T>;
/// A mutex under which a thread takes others that are a [`Mutex`] to threads without it. Such a thread waits for these
/// as for an [`InnerMutex`].
pub type OuterMutex<T> = lock_api::Mutex<RawLock<OUTER>, T>;
/// Holds a [`Mutex`] until it is dropped.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawLock, T>;
/// Holds an [`InnerMutex`] until it is dropped.
pub type InnerMutexGuard<'a, T> = lock_api::MutexGuard<'a, RawLock<INNER>, T>;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a thread may sleep until it is free.
const AWAITED: u32 = 2;

/// The kind of a [`Mutex`].
const PLAIN: u8 = 0;
/// The kind of an [`InnerMutex`].
const INNER: u8 = 1;
/// The kind of an [`OuterMutex`].
const OUTER: u8 = 2;

/// The state of a mutex of one of the three kinds.
pub struct RawLock<const KIND: u8 = PLAIN>(AtomicU32);

impl<const KIND: u8> RawLock<KIND> {
    /// To be called before the lock is waited for. In debug builds a thread that holds another lock is checked as if it
    /// had to sleep now: mostly the lock is free, and no test would see what happens when it is not.
    #[inline]
    fn may_wait() {
        if cfg!(debug_assertions) && KIND != INNER && held::here() > 0 && !outer::here() {
            around_sleep(&mut || ());
        }
    }

    #[inline]
    fn note_taken() {
        held::taken();
        if KIND == OUTER {
            outer::taken();
        }
    }

    #[cold]
    fn lock_contended(&self, until: Option<Instant>) -> bool {
        for look in 0..SPINS + YIELDS {
            // Relaxed: only a hint.
            if self.0.load(Ordering::Relaxed) == FREE && self.try_lock() {
                return true;
            }
            if look < SPINS {
                (0..2 << look).for_each(|_| std::hint::spin_loop());
            } else {
                sync::yield_now();
            }
        }
        // A thread that has slept cannot know whether others still sleep, so it marks the lock as awaited when it takes
        // it.
        // Acquire: after the Release of `unlock`.
        while self.0.swap(AWAITED, Ordering::Acquire) != FREE {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            if KIND == INNER || outer::here() {
                sleep(&self.0, AWAITED, left);
            } else {
                around(&mut |gives_up| {
                    sleep(&self.0, AWAITED, left);
                    if gives_up {
                        self.pass_on();
                    }
                });
            }
        }
        Self::note_taken();
        true
    }
}

impl<const KIND: u8> RawLock<KIND> {
    /// The calling thread has slept, perhaps until it was woken, and has to wait for something else before it can take
    /// the lock. Another thread that sleeps here is to have the wake-up: it may need nothing else, or hold the very thing.
    #[cold]
    fn pass_on(&self) {
        // Relaxed, both: nothing is read under the lock. Who frees it then finds the mark, and wakes a thread.
        if self.0.compare_exchange(HELD, AWAITED, Ordering::Relaxed, Ordering::Relaxed) == Err(FREE) {
            wake(&self.0, 1);
        }
    }
}

// SAFETY: `lock` and `try_lock` succeed only when they change the word from FREE, and only `unlock` changes it to FREE.
unsafe impl<const KIND: u8> RawMutex for RawLock<KIND> {
    // lock_api asks for a constant. It is only ever copied into a new lock.
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self(AtomicU32::new(FREE));
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock(&self) {
        Self::may_wait();
        if !self.try_lock() {
            self.lock_contended(None);
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // Acquire: after the Release of `unlock`.
        let taken = self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if taken {
            Self::note_taken();
        }
        taken
    }

    #[inline]
    unsafe fn unlock(&self) {
        held::freed();
        if KIND == OUTER {
            outer::freed();
        }
        // Release: before the Acquire of `try_lock` and `lock_contended`.
        if self.0.swap(FREE, Ordering::Release) == AWAITED {
            wake(&self.0, 1);
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        // Relaxed: the answer may change a moment later.
        self.0.load(Ordering::Relaxed) != FREE
    }
}

// SAFETY: as for `RawMutex`.
unsafe impl<const KIND: u8> RawMutexFair for RawLock<KIND> {
    /// Frees the lock. If a thread sleeps for it, lets that one have it: a thread that takes the lock again and again
    /// would else nearly always be sooner.
    unsafe fn unlock_fair(&self) {
        // Relaxed: a hint. Whether a thread sleeps may change a moment later.
        let is_awaited = self.0.load(Ordering::Relaxed) == AWAITED;
        // SAFETY: the caller holds the lock.
        unsafe { self.unlock() };
        if is_awaited {
            let begun = Instant::now();
            // Relaxed: a hint, too.
            while self.0.load(Ordering::Relaxed) == FREE && begun.elapsed() < FAIR {
                sync::yield_now();
            }
        }
    }
}

// SAFETY: as for `RawMutex`.
unsafe impl<const KIND: u8> RawMutexTimed for RawLock<KIND> {
    type Duration = Duration;
    type Instant = Instant;

    #[inline]
    fn try_lock_for(&self, timeout: Duration) -> bool {
        Self::may_wait();
        self.try_lock() || self.lock_contended(Instant::now().checked_add(timeout))
    }

    #[inline]
    fn try_lock_until(&self, timeout: Instant) -> bool {
        Self::may_wait();
        self.try_lock() || self.lock_contended(Some(timeout))
    }
}

/// How many locks the calling thread holds. Counted in debug builds only, to check that a thread with a lock waits for
/// nothing else; always 0 in other builds.
#[must_use]
pub fn held_here() -> usize {
    held::here()
}

/// Lets threads that hold a [`Mutex`] wait until another thread has changed its contents. May wake for nothing.
#[derive(Debug, Default)]
pub struct Condvar {
    /// How often the condition was notified.
    notified: AtomicU32,
    /// How many threads wait, so that a notification without waiting threads costs nothing.
    waiting: AtomicU32,
}

impl Condvar {
    /// A condition without waiting threads.
    #[must_use]
    pub const fn new() -> Self {
        Self { notified: AtomicU32::new(0), waiting: AtomicU32::new(0) }
    }

    /// Releases the lock until notified.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_at_most(guard, None);
    }

    /// Releases the lock until notified, for at most `timeout`.
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) {
        self.wait_at_most(guard, Some(timeout));
    }

    fn wait_at_most<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Option<Duration>) {
        // Relaxed, both: the notifying thread has held the lock since, or did before this thread looked.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let seen = self.notified.load(Ordering::Relaxed);
        MutexGuard::unlocked(guard, || around_sleep(&mut || sleep(&self.notified, seen, timeout)));
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.notify(1);
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.notify(i32::MAX as u32);
    }

    #[inline]
    fn notify(&self, most: u32) {
        // Relaxed: see `wait_at_most`.
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.notified.fetch_add(1, Ordering::Relaxed);
            wake(&self.notified, most);
        }
    }
}

/// Runs a closure that sleeps. Tells it whether the thread has given something up, and waits for that after the sleep.
type AroundSleep = fn(&mut (dyn FnMut(bool) + Send));

static AROUND_SLEEP: OnceLock<AroundSleep> = OnceLock::new();

/// Sets the function inside which threads sleep in locks and conditions. It releases what the thread holds and other
/// threads need meanwhile (an interpreter), and takes it again. The lock is taken after that, so no thread waits for a
/// lock with the interpreter held, nor for the interpreter with a lock held. Only the first call counts.
pub fn set_around_sleep(around: AroundSleep) {
    AROUND_SLEEP.get_or_init(|| around);
}

/// Sleeps for another reason inside that function. The thread must not hold a lock.
#[cold]
pub fn around_sleep(wait: &mut (dyn FnMut() + Send)) {
    around(&mut |_| wait());
}

fn around(wait: &mut (dyn FnMut(bool) + Send)) {
    match AROUND_SLEEP.get() {
        Some(around) => around(wait),
        None => wait(false),
    }
}
