//! Ended calls whose late items may still give references.

use std::collections::VecDeque;
use std::sync::OnceLock;

use nearcall_platform::lock::Mutex;

/// These calls, by the client's numbers; made for a connection with the first such call. In an item of any other call, bytes
/// that look like a reference may be the user's own.
#[derive(Debug, Default)]
pub(super) struct EndedGiving(OnceLock<Mutex<VecDeque<u32>>>);

/// How many calls are remembered. Older ones are forgotten; references given in their items count until the connection
/// ends.
const MOST_ENDED: usize = 1024;

impl EndedGiving {
    /// A call begins: what comes with its number is its own from now on.
    #[inline]
    pub(super) fn begin(&self, call: u32) {
        if let Some(calls) = self.0.get() {
            calls.lock().retain(|&ended| ended != call);
        }
    }

    /// A call has ended whose late items may still give references.
    pub(super) fn end(&self, call: u32) {
        let mut calls = self.0.get_or_init(Mutex::default).lock();
        if calls.len() >= MOST_ENDED {
            calls.pop_front();
        }
        calls.push_back(call);
    }

    /// Whether an item of that call may give references.
    pub(super) fn is_of(&self, call: u32) -> bool {
        self.0.get().is_some_and(|calls| calls.lock().contains(&call))
    }
}
