//! What calls have to look at before they begin, in one byte: while it is zero, no call looks at anything.

use std::sync::atomic::{AtomicU8, Ordering};

/// A surrounding block was entered, in this process. Counting the blocks that are open now would not do: a task that was
/// made in a block is in it for as long as it runs.
pub(crate) const BLOCKS: u8 = 1;
/// An event loop of a server has begun to run coroutine handlers, in this process.
pub(crate) const HANDLER_LOOPS: u8 = 2;
/// The program runs greenlets, which go on while others wait.
pub(crate) const GREENLETS: u8 = 4;

static NOTED: AtomicU8 = AtomicU8::new(0);

/// Notes something, for good.
pub(crate) fn note(what: u8) {
    // Relaxed, all: a thread always sees what it has noted itself, and a thread that gets a block's context from another
    // thread sees what that thread saw. The load comes first, because a store takes the cache line from all other cores.
    if NOTED.load(Ordering::Relaxed) & what == 0 {
        NOTED.fetch_or(what, Ordering::Relaxed);
    }
}

/// What was noted.
#[inline]
pub(crate) fn noted() -> u8 {
    // Relaxed: see `note`.
    NOTED.load(Ordering::Relaxed)
}
