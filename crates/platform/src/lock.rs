//! Locks that a fork does no harm: who waits is known to the kernel alone.
//!
//! `parking_lot` keeps its waiting threads in one table for the whole process, in the threads' own memory. A child by
//! `fork` inherits the table but not the threads; its first threads get that memory, and waiting for any lock at all may
//! then follow a pointer into it. Here nothing is shared between locks: what the parent's threads waited for stays in locks
//! that the child does not use.

use std::sync::OnceLock;
use std::time::Duration;

use lock_api::{GuardNoSend, RawMutex, RawMutexTimed};

use crate::sync::{self, AtomicU32, Instant, Ordering, SPINS, YIELDS, held, sleep, wake};

/// A mutex. It is not poisoned: a panic is a fault here, and ends the call or the process anyway.
pub type Mutex<T> = lock_api::Mutex<RawLock, T>;
/// A mutex for threads that may hold another one, and that nobody has for longer than some copying takes: whoever waits
/// for it keeps the interpreter, because with a lock held it must not be waited for.
pub type InnerMutex<T> = lock_api::Mutex<RawLock<true>, T>;
/// Holds a [`Mutex`] until it is dropped.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawLock, T>;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody may sleep until it is not.
const AWAITED: u32 = 2;

/// The state of a [`Mutex`], or of an [`InnerMutex`].
pub struct RawLock<const INNER: bool = false>(AtomicU32);

impl<const INNER: bool> RawLock<INNER> {
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
        // Whoever has slept cannot know whether others still do, and so takes it as one that is awaited.
        // Acquire: after the Release of `unlock`.
        while self.0.swap(AWAITED, Ordering::Acquire) != FREE {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            if INNER {
                sleep(&self.0, AWAITED, left);
            } else {
                around_sleep(&mut || sleep(&self.0, AWAITED, left));
            }
        }
        held::taken();
        true
    }
}

// SAFETY: `lock` and `try_lock` succeed only when they change the word from FREE, and only `unlock` changes it to FREE.
unsafe impl<const INNER: bool> RawMutex for RawLock<INNER> {
    // lock_api asks for a constant: it is only ever copied into a new lock.
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self(AtomicU32::new(FREE));
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.lock_contended(None);
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // Acquire: after the Release of `unlock`.
        let taken = self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if taken {
            held::taken();
        }
        taken
    }

    #[inline]
    unsafe fn unlock(&self) {
        held::freed();
        // Release: before the Acquire of `try_lock` and `lock_contended`.
        if self.0.swap(FREE, Ordering::Release) == AWAITED {
            wake(&self.0, 1);
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        // Relaxed: it may be otherwise a moment later.
        self.0.load(Ordering::Relaxed) != FREE
    }
}

// SAFETY: as for `RawMutex`.
unsafe impl<const INNER: bool> RawMutexTimed for RawLock<INNER> {
    type Duration = Duration;
    type Instant = Instant;

    #[inline]
    fn try_lock_for(&self, timeout: Duration) -> bool {
        self.try_lock() || self.lock_contended(Instant::now().checked_add(timeout))
    }

    #[inline]
    fn try_lock_until(&self, timeout: Instant) -> bool {
        self.try_lock() || self.lock_contended(Some(timeout))
    }
}

/// How many locks the calling thread holds. Counted in debug builds, for the rule that nobody who holds one waits for
/// something else; always 0 in others.
#[must_use]
pub fn held_here() -> usize {
    held::here()
}

/// Lets threads that hold a [`Mutex`] wait until another one has changed what is in it. It may wake for nothing.
#[derive(Debug, Default)]
pub struct Condvar {
    /// How often it was notified.
    notified: AtomicU32,
    /// How many wait, so that notifying nobody costs nothing.
    waiting: AtomicU32,
}

impl Condvar {
    /// One that nobody waits for.
    #[must_use]
    pub const fn new() -> Self {
        Self { notified: AtomicU32::new(0), waiting: AtomicU32::new(0) }
    }

    /// Lets go of the lock until notified.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_at_most(guard, None);
    }

    /// Lets go of the lock until notified, for at most `timeout`.
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) {
        self.wait_at_most(guard, Some(timeout));
    }

    fn wait_at_most<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Option<Duration>) {
        // Relaxed, both: who notifies has held the lock since, or did before this thread looked.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let seen = self.notified.load(Ordering::Relaxed);
        MutexGuard::unlocked(guard, || around_sleep(&mut || sleep(&self.notified, seen, timeout)));
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Wakes one of those that wait.
    pub fn notify_one(&self) {
        self.notify(1);
    }

    /// Wakes all that wait.
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

/// Runs a closure that sleeps.
type AroundSleep = fn(&mut (dyn FnMut() + Send));

static AROUND_SLEEP: OnceLock<AroundSleep> = OnceLock::new();

/// Whoever sleeps in a lock or a condition does so inside this function: it lets go of what the thread holds and others
/// need meanwhile (an interpreter), and takes it again. The lock is taken after that: so no lock is waited for with the
/// interpreter held, and none is held while the interpreter is waited for. The first one counts.
pub fn set_around_sleep(around: AroundSleep) {
    AROUND_SLEEP.get_or_init(|| around);
}

/// Sleeps for another reason inside of that function. No lock may be held.
#[cold]
pub fn around_sleep(wait: &mut (dyn FnMut() + Send)) {
    match AROUND_SLEEP.get() {
        Some(around) => around(wait),
        None => wait(),
    }
}
