//! Stalled clients: the server reads nothing from them, because they send more than it can take now, or do not read
//! themselves.

use std::sync::Arc;
use std::time::Duration;

use crate::server::inbound::request::Request;
use crate::server::inbound::{HUNG_UP, Inbound, STALLED};
use crate::server::reactor::routing::StallReason;

/// How long the receiving thread sleeps at first while stalled clients wait for the server's own handlers. A thread
/// that finishes a one-way call does not wake it. A thread that frees memory does.
const FIRST_SLEEP: Duration = Duration::from_millis(1);
/// After so many looks in vain, the sleep is twice as long. So a client that has waited long waits a little longer.
const IN_VAIN: u32 = 4;
/// The sleep is doubled at most so often.
const LONGER: u32 = 5;

#[derive(Default)]
pub(super) struct Stalled {
    clients: Vec<(Arc<Inbound<Request>>, StallReason)>,
    /// How often the receiving thread has looked at the clients in vain.
    looks: u32,
}

impl Stalled {
    pub(super) fn push(&mut self, client: Arc<Inbound<Request>>, reason: StallReason) {
        client.marks.set(STALLED);
        self.clients.push((client, reason));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.clients.clear();
    }

    /// The client is gone.
    pub(super) fn remove(&mut self, client: &Inbound<Request>) {
        if client.marks.has(STALLED) {
            self.clients.retain(|(other, _)| !std::ptr::eq(&raw const **other, client));
        }
    }

    /// Takes out the next client that may go on now. `at` counts the clients that were looked at and stay. `now`:
    /// nanoseconds on the monotonic clock.
    pub(super) fn next_ready(&mut self, at: &mut usize, now: u64) -> Option<Arc<Inbound<Request>>> {
        while let Some(&(ref client, reason)) = self.clients.get(*at) {
            if client.marks.has(HUNG_UP) {
                client.end_calls();
            } else if client.oneway.is_idle() && client.asked.is_due(now) {
                // Who has sent one-way calls may be gone: the question would have its system drop the others.
                client.connection.ask();
            }
            if client.may_go_on(reason) {
                client.marks.clear(STALLED);
                return Some(self.clients.swap_remove(*at).0);
            }
            *at += 1;
        }
        None
    }

    /// Whether a client waits for memory to be freed.
    pub(super) fn wait_for_room(&self) -> bool {
        self.clients.iter().any(|(_, reason)| matches!(reason, StallReason::Budget | StallReason::Items))
    }

    /// Whether a client waits for this server's own handlers, to finish one-way calls or to free memory.
    pub(super) fn wait_for_handlers(&self) -> bool {
        self.clients.iter().any(|(_, reason)| *reason != StallReason::NotReading)
    }

    /// How long to sleep until the next look at the clients that wait for handlers.
    pub(super) fn next_look(&mut self) -> Duration {
        let look = FIRST_SLEEP * (1 << (self.looks / IN_VAIN).min(LONGER));
        self.looks = self.looks.saturating_add(1);
        look
    }

    /// Frames have come: stalled clients may soon go on, so the next sleeps are short again.
    pub(super) fn note_arrivals(&mut self) {
        self.looks = 0;
    }
}
