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

/// The number to keep with something that belongs to this process; see [`generation`]. From the first call on, every
/// fork is noticed, even if a C library forks.
#[must_use]
pub fn mark() -> u32 {
    in_children(&WATCH, in_child);
    generation()
}

/// How many forks lie between this process and the first. Something [marked](mark) with another number belongs to
/// another process.
#[inline]
#[must_use]
pub fn generation() -> u32 {
    // Relaxed: it changes only while there is a single thread.
    GENERATION.load(Ordering::Relaxed)
}
