//! Whether tasks of an event loop wait for their replies by letting the others run once.
//!
//! To wait by a future takes asyncio about as long as all the rest of a short call: it is made, waited for, looked up when the
//! reply comes, and its result wakes the task in the loop's next round. A task that yields nothing is run in the next round
//! anyway. That pays where so many calls are under way that replies come within a round, and is a round for nothing where
//! handlers are slow; so it is tried as long as it pays, and now and then again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// One in so many calls tries again when it did not pay.
const TRY_AGAIN: u32 = 64;
/// What a reply that was there is worth at most, and what one costs that was not.
const MOST: u32 = 16;
const MISS: u32 = 2;

/// What was tried lately. All but the count of those under way is a guess that only the loop's thread makes, hence the
/// relaxed atomics; a call may be dropped in any thread.
#[derive(Debug)]
pub(crate) struct Rounds {
    credit: AtomicU32,
    left_out: AtomicU32,
    under_way: AtomicUsize,
}

impl Default for Rounds {
    fn default() -> Self {
        Self { credit: AtomicU32::new(MOST), left_out: AtomicU32::new(0), under_way: AtomicUsize::new(0) }
    }
}

/// A round for which a task lets the others run. It is over when this is dropped.
#[derive(Debug)]
pub(crate) struct Round(Arc<Rounds>);

impl Rounds {
    /// One, if it is to be tried.
    pub(crate) fn begin(self: &Arc<Self>) -> Option<Round> {
        if self.credit.load(Ordering::Relaxed) == 0 {
            let left_out = self.left_out.load(Ordering::Relaxed) + 1;
            self.left_out.store(left_out % TRY_AGAIN, Ordering::Relaxed);
            if left_out < TRY_AGAIN {
                return None;
            }
        }
        self.under_way.fetch_add(1, Ordering::Relaxed);
        Some(Round(Arc::clone(self)))
    }

    /// Whether somebody is to look in the loop's next round.
    pub(crate) fn are_under_way(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) > 0
    }
}

impl Round {
    /// The task has its turn again: whether its reply was there.
    pub(crate) fn end(self, paid: bool) {
        let credit = self.0.credit.load(Ordering::Relaxed);
        let credit = if paid { MOST.min(credit + 1) } else { credit.saturating_sub(MISS) };
        self.0.credit.store(credit, Ordering::Relaxed);
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}
