//! Locks that a fork does no harm: who waits is known to the kernel alone.
//!
//! `parking_lot` keeps its waiting threads in one table for the whole process, in the threads' own memory. A child by
//! `fork` inherits the table but not the threads; its first threads get that memory, and waiting for any lock at all may
//! then follow a pointer into it. Here nothing is shared between locks: what the parent's threads waited for stays in locks
//! that the child does not use.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lock_api::{GuardSend, RawMutex, RawMutexTimed};
use rustix::thread::futex;

/// A mutex. It is not poisoned: a panic is a fault here, and ends the call or the process anyway.
pub type Mutex<T> = lock_api::Mutex<RawLock, T>;
/// Holds a [`Mutex`] until it is dropped.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawLock, T>;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody may sleep until it is not.
const AWAITED: u32 = 2;
/// Looks at a lock that is held before the thread goes to sleep; most are held for some instructions only. The first ones
/// are for a holder that runs on another CPU, the others for one that was interrupted on this one: who yields to it need
/// not be woken.
const SPINS: u32 = 3;
const YIELDS: u32 = 7;

/// The state of a [`Mutex`].
pub struct RawLock(AtomicU32);

impl RawLock {
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
                std::thread::yield_now();
            }
        }
        let mut taken = false;
        around_sleep(&mut || taken = self.sleep_until_taken(until));
        taken
    }

    fn sleep_until_taken(&self, until: Option<Instant>) -> bool {
        // Whoever has slept cannot know whether others still do, and so takes it as one that is awaited.
        // Acquire: after the Release of `unlock`.
        while self.0.swap(AWAITED, Ordering::Acquire) != FREE {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            sleep(&self.0, AWAITED, left);
        }
        true
    }
}

// SAFETY: `lock` and `try_lock` succeed only when they change the word from FREE, and only `unlock` changes it to FREE.
unsafe impl RawMutex for RawLock {
    // lock_api asks for a constant: it is only ever copied into a new lock.
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self(AtomicU32::new(FREE));
    type GuardMarker = GuardSend;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.lock_contended(None);
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // Acquire: after the Release of `unlock`.
        self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    unsafe fn unlock(&self) {
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
unsafe impl RawMutexTimed for RawLock {
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
/// need meanwhile (an interpreter), and takes it again. So no lock is waited for with the interpreter held, and a thread
/// that holds a lock can always have the interpreter. The first one counts.
pub fn set_around_sleep(around: AroundSleep) {
    AROUND_SLEEP.get_or_init(|| around);
}

#[cold]
fn around_sleep(wait: &mut (dyn FnMut() + Send)) {
    match AROUND_SLEEP.get() {
        Some(around) => around(wait),
        None => wait(),
    }
}

/// Sleeps while the word is `value`, for at most `timeout`; sometimes for a shorter time.
fn sleep(word: &AtomicU32, value: u32, timeout: Option<Duration>) {
    // What is too long for the system is for ever.
    let timeout = timeout.and_then(|timeout| timeout.try_into().ok());
    // A signal, a word that has changed and the end of the time are all reasons to look again.
    let _ = futex::wait(word, futex::Flags::PRIVATE, value, timeout.as_ref());
}

fn wake(word: &AtomicU32, most: u32) {
    // It fails only for an address that is none.
    let _ = futex::wake(word, futex::Flags::PRIVATE, most);
}
