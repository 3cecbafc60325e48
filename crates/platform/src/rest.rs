//! Threads that rest: they wait until another thread gives them something to do. Who has something that only one thread can
//! have, as the interpreter, may keep it for a moment while all others rest.

use std::sync::Once;

use crate::fork::{Owner, in_children};
use crate::sync::{AtomicU64, Ordering};

/// How many threads rest now, and above that, how often that has changed.
static RESTING: AtomicU64 = AtomicU64::new(0);
static WATCH: Once = Once::new();

const CHANGED: u64 = 1 << 32;

/// None of the threads that rest is in the child.
extern "C" fn in_child() {
    // Relaxed: the child has one thread here.
    RESTING.store(0, Ordering::Relaxed);
}

/// The calling thread rests until this is dropped. To be dropped before the thread waits for what others keep.
#[derive(Debug)]
pub struct Rest {
    /// A thread may rest and fork, in a signal handler. The child's count does not know of it.
    owner: Owner,
}

impl Rest {
    /// The calling thread begins to rest.
    #[must_use = "the thread rests until this is dropped"]
    pub fn begin() -> Self {
        in_children(&WATCH, in_child);
        let rest = Self { owner: Owner::this_process() };
        rest.count();
        rest
    }

    /// Does something in the middle of it that others may keep from the thread.
    pub fn interrupted<R>(&self, work: impl FnOnce() -> R) -> R {
        self.uncount();
        let done = work();
        self.count();
        done
    }

    fn count(&self) {
        if self.owner.is_this_process() {
            // Relaxed, here and below: a hint. Who sees a change late keeps for one moment more what another thread wants.
            RESTING.fetch_add(CHANGED + 1, Ordering::Relaxed);
        }
    }

    fn uncount(&self) {
        if self.owner.is_this_process() {
            RESTING.fetch_add(CHANGED - 1, Ordering::Relaxed);
        }
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        self.uncount();
    }
}

/// How many threads rest at a moment. Two moments are equal only if no thread has begun or ended to rest between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resting(u64);

impl Resting {
    /// Now.
    #[inline]
    #[must_use]
    pub fn now() -> Self {
        Self(RESTING.load(Ordering::Relaxed))
    }

    /// The number of threads.
    #[must_use]
    pub fn threads(self) -> u64 {
        self.0 % CHANGED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_seen_and_a_child_begins_with_none() {
        let before = Resting::now();
        let rest = Rest::begin();
        assert_eq!(Resting::now().threads(), before.threads() + 1);
        let second = Rest::begin();
        assert_eq!(Resting::now().threads(), before.threads() + 2);
        second.interrupted(|| assert_eq!(Resting::now().threads(), before.threads() + 1));
        assert_eq!(Resting::now().threads(), before.threads() + 2);
        drop(second);
        drop(rest);
        assert_eq!(Resting::now().threads(), before.threads());
        assert_ne!(Resting::now(), before, "a thread has rested meanwhile");
    }
}
