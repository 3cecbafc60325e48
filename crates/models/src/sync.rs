//! Stand-ins for `crate::sync` of the crates whose files are tested here.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use loom::sync::{Condvar, Mutex, MutexGuard};

pub(crate) use loom::sync::atomic::fence;
pub(crate) use loom::thread::yield_now;
pub(crate) use std::sync::atomic::Ordering;

/// In a model a spin only lets other threads run, and so does a sleep: the sleep is enough.
pub(crate) const SPINS: u32 = 0;
pub(crate) const YIELDS: u32 = 0;
/// In a model nobody is sooner because he need not be woken.
pub(crate) const FAIR: Duration = Duration::ZERO;

/// An atomic that can be made in a constant, as loom's own cannot. Loom's atomic is made at the first use, which has to
/// be in the thread that made this one (see `models::settled`).
macro_rules! atomic {
    ($name:ident, $value:ty $(, $arithmetic:ident)*) => {
        #[derive(Debug, Default)]
        pub(crate) struct $name {
            first: $value,
            loom: OnceLock<loom::sync::atomic::$name>,
        }

        impl $name {
            pub(crate) const fn new(first: $value) -> Self {
                Self { first, loom: OnceLock::new() }
            }

            #[track_caller]
            fn get(&self) -> &loom::sync::atomic::$name {
                self.loom.get_or_init(|| loom::sync::atomic::$name::new(self.first))
            }

            #[track_caller]
            pub(crate) fn load(&self, order: Ordering) -> $value {
                self.get().load(order)
            }

            #[track_caller]
            pub(crate) fn store(&self, value: $value, order: Ordering) {
                self.get().store(value, order);
            }

            #[track_caller]
            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                self.get().swap(value, order)
            }

            #[track_caller]
            pub(crate) fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.get().compare_exchange(current, new, success, failure)
            }

            $(#[track_caller]
            pub(crate) fn $arithmetic(&self, value: $value, order: Ordering) -> $value {
                self.get().$arithmetic(value, order)
            })*
        }
    };
}

atomic!(AtomicBool, bool);
atomic!(AtomicU32, u32, fetch_add, fetch_sub);
atomic!(AtomicUsize, usize, fetch_add, fetch_sub, fetch_or, fetch_and);
atomic!(AtomicU64, u64, fetch_add, fetch_sub, fetch_or);

loom::lazy_static! {
    static ref LAST_NUMBER: Mutex<u32> = Mutex::new(0);
}

loom::thread_local! {
    static NUMBER: u32 = {
        let mut last = LAST_NUMBER.lock().expect("no panic");
        *last += 1;
        *last
    };
}

/// A number for the calling thread that no other thread of this execution has or had. Not 0.
pub(crate) fn thread_number() -> u32 {
    NUMBER.with(|number| *number)
}

/// Threads that can be unparked. Loom's own threads forget that if they sleep for another reason at that moment.
pub(crate) mod thread {
    use super::{Arc, Condvar, Duration, Mutex};

    #[cfg(test)]
    pub(crate) use loom::thread::spawn;

    /// A thread, and whether it was unparked since it last parked.
    #[derive(Debug, Clone)]
    pub(crate) struct Thread(Arc<(Mutex<bool>, Condvar, ThreadId)>);

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct ThreadId(u32);

    loom::thread_local! {
        static CURRENT: Thread =
            Thread(Arc::new((Mutex::new(false), Condvar::new(), ThreadId(super::thread_number()))));
    }

    impl Thread {
        pub(crate) fn id(&self) -> ThreadId {
            self.0.2
        }

        pub(crate) fn unpark(&self) {
            *self.0.0.lock().expect("no panic") = true;
            self.0.1.notify_one();
        }
    }

    pub(crate) fn current() -> Thread {
        CURRENT.with(Thread::clone)
    }

    /// Sleeps until the thread is unparked: a model must not need the timeout.
    pub(crate) fn park_timeout(_at_most: Duration) {
        let me = current();
        let mut unparked = me.0.0.lock().expect("no panic");
        while !*unparked {
            unparked = me.0.1.wait(unparked).expect("no panic");
        }
        *unparked = false;
    }
}

/// The part of the kernel that lets threads sleep, and its clock, which moves only when a model says so.
#[derive(Default)]
struct Kernel {
    now: u64,
    /// A sleep with a timeout finds it over at once.
    flies: bool,
    sleepers: Vec<Sleeper>,
}

struct Sleeper {
    word: usize,
    until: Option<u64>,
    woken: Arc<Condvar>,
}

loom::lazy_static! {
    static ref KERNEL: Mutex<Kernel> = Mutex::new(Kernel::default());
}

fn kernel() -> MutexGuard<'static, Kernel> {
    KERNEL.lock().expect("no panic")
}

/// Sleeps while the word is `value`, until it is woken or the clock has passed `timeout`.
pub(crate) fn sleep(word: &AtomicU32, value: u32, timeout: Option<Duration>) {
    let address = std::ptr::from_ref(word).addr();
    let mut kernel = kernel();
    // The real kernel orders its look at the word with the wakers; loom's mutex does that here.
    if word.load(Ordering::Relaxed) != value || timeout.is_some_and(|timeout| timeout.is_zero()) {
        return;
    }
    let until = timeout.map(|timeout| kernel.now + ticks(timeout));
    if let Some(until) = until
        && kernel.flies
    {
        kernel.now = until;
        return;
    }
    let woken = Arc::new(Condvar::new());
    kernel.sleepers.push(Sleeper { word: address, until, woken: Arc::clone(&woken) });
    while kernel.sleepers.iter().any(|sleeper| Arc::ptr_eq(&sleeper.woken, &woken)) {
        kernel = woken.wait(kernel).expect("no panic");
    }
}

/// Wakes at most `most` threads that sleep on the word, the one that has slept longest first.
pub(crate) fn wake(word: &AtomicU32, most: u32) {
    let address = std::ptr::from_ref(word).addr();
    let mut left = most;
    kernel().sleepers.retain(|sleeper| {
        let stays = left == 0 || sleeper.word != address;
        if !stays {
            left -= 1;
            sleeper.woken.notify_one();
        }
        stays
    });
}

/// A moment on the model's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(u64);

impl Instant {
    pub(crate) fn now() -> Self {
        Self(kernel().now)
    }

    pub(crate) fn elapsed(self) -> Duration {
        Self::now().saturating_duration_since(self)
    }

    pub(crate) fn checked_add(self, length: Duration) -> Option<Self> {
        self.0.checked_add(ticks(length)).map(Self)
    }

    pub(crate) fn saturating_duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn ticks(length: Duration) -> u64 {
    length.as_nanos() as u64
}

/// From here on, a sleep with a timeout finds it over at once.
#[cfg(test)]
pub(crate) fn let_time_fly() {
    kernel().flies = true;
}

/// Moves the clock on by `length`: sleeps that end by then are over.
#[cfg(test)]
pub(crate) fn pass(length: Duration) {
    let mut kernel = kernel();
    kernel.now += ticks(length);
    let now = kernel.now;
    kernel.sleepers.retain(|sleeper| {
        let stays = sleeper.until.is_none_or(|until| until > now);
        if !stays {
            sleeper.woken.notify_one();
        }
        stays
    });
}

/// How many locks this thread holds.
pub(crate) mod held {
    use std::cell::Cell;

    loom::thread_local! {
        static HELD: Cell<usize> = Cell::new(0);
    }

    pub(crate) fn taken() {
        HELD.with(|held| held.set(held.get() + 1));
    }

    pub(crate) fn freed() {
        HELD.with(|held| held.set(held.get() - 1));
    }

    pub(crate) fn here() -> usize {
        HELD.with(Cell::get)
    }
}

/// Whether this thread holds an outer lock.
pub(crate) mod outer {
    use std::cell::Cell;

    loom::thread_local! {
        static OUTER: Cell<usize> = Cell::new(0);
    }

    pub(crate) fn taken() {
        OUTER.with(|outer| outer.set(outer.get() + 1));
    }

    pub(crate) fn freed() {
        OUTER.with(|outer| outer.set(outer.get() - 1));
    }

    pub(crate) fn here() -> bool {
        OUTER.with(Cell::get) > 0
    }
}

/// The interpreter: one thread at a time has it, and nobody waits for it with a lock held. Here no thread has to give it
/// up after 5 ms: who waits for it waits until its holder sleeps or is through.
#[cfg(test)]
pub(crate) mod interpreter {
    use std::cell::Cell;

    use loom::sync::{Condvar, Mutex};

    loom::lazy_static! {
        static ref TAKEN: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
    }

    loom::thread_local! {
        static MINE: Cell<bool> = Cell::new(false);
    }

    pub(crate) fn is_mine() -> bool {
        MINE.with(Cell::get)
    }

    pub(crate) fn take() {
        assert_eq!(super::held::here(), 0, "it waits for the interpreter with a lock held");
        let mut taken = TAKEN.0.lock().expect("no panic");
        while *taken {
            taken = TAKEN.1.wait(taken).expect("no panic");
        }
        *taken = true;
        MINE.with(|mine| mine.set(true));
    }

    pub(crate) fn give_up() {
        assert!(MINE.with(|mine| mine.replace(false)));
        *TAKEN.0.lock().expect("no panic") = false;
        TAKEN.1.notify_one();
    }

    /// What threads sleep in, as in `crates/python`.
    pub(crate) fn detached(sleep: &mut (dyn FnMut(bool) + Send)) {
        if !is_mine() {
            return sleep(false);
        }
        give_up();
        sleep(true);
        take();
    }
}
