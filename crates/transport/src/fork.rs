//! What a process inherits by `fork` is its parent's: a child must not speak on its connections, nor end them.

use std::sync::atomic::{AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// To be called in the child after a fork, before anything else of nearcall.
pub fn forked() {
    // Relaxed: the child has one thread here.
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// How many forks lie between this process and the first: what was made under another number is not ours.
#[inline]
#[must_use]
pub fn generation() -> u32 {
    // Relaxed: it changes only while there is one thread.
    GENERATION.load(Ordering::Relaxed)
}
