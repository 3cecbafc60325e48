//! Clients that are not read from, because they send more than the server takes on now, or do not read themselves.

use std::sync::Arc;
use std::time::Duration;

use crate::server::inbound::{Inbound, StallReason};
use crate::server::request::Request;
use crate::sync::Ordering;

/// How long the server sleeps at first while it waits for its own handlers to read on from a client. Whoever finishes a one-way
/// call does not know of those that wait for it. Whoever frees memory does, and wakes it.
const LOOK: Duration = Duration::from_millis(1);
/// After so many looks in vain it sleeps twice as long: a client that waits for long waits a little longer for that.
const IN_VAIN: u32 = 4;
/// It does so at most so often.
const LONGER: u32 = 5;

#[derive(Default)]
pub(super) struct Stalled {
    clients: Vec<(Arc<Inbound<Request>>, StallReason)>,
    /// How often the server has looked at them in vain.
    looks: u32,
}

impl Stalled {
    pub(super) fn push(&mut self, client: Arc<Inbound<Request>>, reason: StallReason) {
        self.clients.push((client, reason));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Whether that one is among them.
    pub(super) fn has(&self, client: &Arc<Inbound<Request>>) -> bool {
        self.clients.iter().any(|(stalled, _)| Arc::ptr_eq(stalled, client))
    }

    pub(super) fn clear(&mut self) {
        self.clients.clear();
    }

    /// Takes out the next client for which there may be room now. `at`: so many were looked at and stay.
    pub(super) fn next_ready(&mut self, at: &mut usize) -> Option<(Arc<Inbound<Request>>, StallReason)> {
        while let Some((client, reason)) = self.clients.get(*at) {
            // Relaxed: set and read by whoever holds the reactor.
            if client.hung_up.load(Ordering::Relaxed) {
                client.end_calls();
            }
            if client.may_go_on(reason) {
                return Some(self.clients.swap_remove(*at));
            }
            *at += 1;
        }
        None
    }

    /// Whether one waits for memory that others keep.
    pub(super) fn wait_for_room(&self) -> bool {
        self.clients.iter().any(|(_, reason)| matches!(reason, StallReason::Budget))
    }

    /// Whether one waits for this server's own handlers, who do not know.
    pub(super) fn wait_for_handlers(&self) -> bool {
        self.clients.iter().any(|(_, reason)| !matches!(reason, StallReason::Answer(..) | StallReason::Deferred(_)))
    }

    /// How long to sleep until the next look at those that wait for handlers.
    pub(super) fn next_look(&mut self) -> Duration {
        let look = LOOK * (1 << (self.looks / IN_VAIN).min(LONGER));
        self.looks = self.looks.saturating_add(1);
        look
    }

    /// Frames have come: what waits may soon go on.
    pub(super) fn note_arrivals(&mut self) {
        self.looks = 0;
    }
}
