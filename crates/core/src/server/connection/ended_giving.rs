//! Calls that have ended in whose items references may still be given.

use std::collections::VecDeque;

use nearcall_platform::lock::Mutex;

use crate::sync::{AtomicBool, Ordering};

/// Those calls, by the client's numbers. What looks like a reference in an item of another call may be bytes of its user's.
#[derive(Debug, Default)]
pub(super) struct EndedGiving {
    calls: Mutex<VecDeque<u32>>,
    /// There was such a call.
    any: AtomicBool,
}

/// So many are remembered; older ones are forgotten, and what is given in their items counts until the connection ends.
const MOST_ENDED: usize = 1024;

impl EndedGiving {
    /// A call begins: what comes with its number is its own from now on.
    #[inline]
    pub(super) fn begin(&self, call: u32, gives: bool) {
        // Relaxed: frames are taken in one after the other.
        if gives {
            self.any.store(true, Ordering::Relaxed);
        }
        if self.any.load(Ordering::Relaxed) {
            self.calls.lock().retain(|&ended| ended != call);
        }
    }

    /// A call has ended in whose items references may be given.
    pub(super) fn end(&self, call: u32) {
        let mut calls = self.calls.lock();
        if calls.len() >= MOST_ENDED {
            calls.pop_front();
        }
        calls.push_back(call);
    }

    /// Whether an item of that call may give references.
    pub(super) fn is_of(&self, call: u32) -> bool {
        self.any.load(Ordering::Relaxed) && self.calls.lock().contains(&call)
    }
}
