//! Detects forks. What a process inherits belongs to its parent: a child must not use its connections, nor close them.

use std::sync::Once;

use crate::sync::{AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);
static WATCH: Once = Once::new();

extern "C" fn in_child() {
    // Relaxed: the child has one thread here.
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// From the first call with this `once` on, runs `run` in every forked child, even if a C library forks. `run` must do
/// only what a signal handler may, because other threads may have held any lock.
pub(crate) fn in_children(once: &'static Once, run: extern "C" fn()) {
    once.call_once(|| {
        // SAFETY: the handler is an `extern "C" fn` that lives as long as the program, and does only what is allowed after a
        // fork, as its caller promises.
        let result = unsafe { libc::pthread_atfork(None, None, Some(run)) };
        assert_eq!(result, 0, "no memory to watch for forks");
    });
}

/// How many forks lie between this process and the first.
#[inline]
fn generation() -> u32 {
    // Relaxed: it changes only while there is a single thread.
    GENERATION.load(Ordering::Relaxed)
}

/// The process that something belongs to, because it made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner(u32);

impl Owner {
    /// This process. From the first call on, every fork is noticed, even if a C library forks.
    #[must_use]
    pub fn this_process() -> Self {
        in_children(&WATCH, in_child);
        Self(generation())
    }

    /// Whether it is this process. If not, this process was forked from the owner.
    #[inline]
    #[must_use]
    pub fn is_this_process(self) -> bool {
        self.0 == generation()
    }
}

/// Something that only the process may use that made it: its forked children do not get at it.
#[derive(Debug)]
pub struct Owned<T> {
    value: T,
    owner: Owner,
}

impl<T> Owned<T> {
    /// `value` belongs to this process from now on.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self { value, owner: Owner::this_process() }
    }

    /// The value; `None` in a forked child.
    #[inline]
    #[must_use]
    pub fn get(&self) -> Option<&T> {
        self.owner.is_this_process().then_some(&self.value)
    }

    /// The value, in a forked child as well: for parts of it that never change and have no lock.
    #[inline]
    #[must_use]
    pub fn even_in_child(&self) -> &T {
        &self.value
    }
}
