//! What is remembered of a client's calls that are over, or that nothing here was registered for.

use std::collections::VecDeque;
use std::sync::OnceLock;

use nearcall_platform::lock::Mutex;

/// How many calls are remembered that were cancelled, for handlers that may ask, and how many that have ended and may still
/// give references. Older ones are forgotten; references given in their items count until the connection ends.
const MOST_REMEMBERED: usize = 1024;

#[derive(Debug, Default)]
pub(in crate::server) struct PastCalls {
    /// Cancelled calls that nothing here was registered for, as their handlers may ask: their numbers, and how many calls
    /// had arrived by then. A later call with the same number is another one.
    cancelled: Mutex<VecDeque<(u32, u64)>>,
    /// Ended calls whose late items may still give references, by the client's numbers; made with the first such call. In an
    /// item of any other call, bytes that look like a reference may be the user's own.
    ended_giving: OnceLock<Mutex<VecDeque<u32>>>,
}

fn remember<T>(calls: &mut VecDeque<T>, call: T) {
    if calls.len() >= MOST_REMEMBERED {
        calls.pop_front();
    }
    calls.push_back(call);
}

impl PastCalls {
    /// Notes the cancellation of a call without a registered `ServerCall`, when so many calls had arrived.
    pub(super) fn note_cancelled(&self, call: u32, arrived: u64) {
        remember(&mut self.cancelled.lock(), (call, arrived));
    }

    /// Whether the call with this number and this ordinal was cancelled.
    pub(in crate::server) fn was_cancelled(&self, call: u32, ordinal: u64) -> bool {
        self.cancelled.lock().iter().any(|&(number, arrived)| number == call && arrived > ordinal)
    }

    /// A call begins: items with its number are its own from now on.
    #[inline]
    pub(in crate::server) fn note_begun(&self, call: u32) {
        if let Some(calls) = self.ended_giving.get() {
            calls.lock().retain(|&ended| ended != call);
        }
    }

    /// A call has ended here whose late items may still give references.
    pub(in crate::server) fn note_ended(&self, call: u32) {
        remember(&mut self.ended_giving.get_or_init(Mutex::default).lock(), call);
    }

    /// Whether an item for that call, which is not under way, may still give references.
    pub(super) fn may_give(&self, call: u32) -> bool {
        self.ended_giving.get().is_some_and(|calls| calls.lock().contains(&call))
    }
}
