//! Ended calls whose late items may still give references.

use std::collections::VecDeque;

use nearcall_platform::lock::Mutex;

use crate::sync::{AtomicBool, Ordering};

/// These calls, by the client's numbers. In an item of any other call, bytes that look like a reference may be the
/// user's own.
#[derive(Debug, Default)]
pub(super) struct EndedGiving {
    calls: Mutex<VecDeque<u32>>,
    /// A call has begun whose items may give references.
    any: AtomicBool,
}

/// How many calls are remembered. Older ones are forgotten; references given in their items count until the connection
/// ends.
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

    /// A call has ended whose late items may still give references.
    pub(super) fn end(&self, call: u32) {
        // Relaxed: as in `begin`. A call that was refused has not passed there.
        self.any.store(true, Ordering::Relaxed);
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
