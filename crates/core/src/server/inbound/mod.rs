//! What comes from one client: its calls under way, and its requests that wait.
//!
//! `routing` makes requests of frames. The type of a request is generic here, because a request holds its `Inbound`.

mod calls;
mod deferred;
mod oneway;
pub(in crate::server) mod request;

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use nearcall_platform::lock::Mutex;
use nearcall_transport::LinkError;

use crate::server::connection::ServerConnection;
use crate::server::inbound::calls::Calls;
use crate::server::inbound::deferred::Deferred;
use crate::server::inbound::oneway::OnewayOrder;
use crate::sync::{AtomicU8, AtomicU64, Ordering};

/// The client is in one of the lists of clients to look at, or is stalled.
pub(in crate::server) const LISTED: u8 = 1;
/// Nothing is read from the client.
pub(in crate::server) const STALLED: u8 = 2;
/// The client has hung up. The one-way calls that it sent before are still handled.
pub(in crate::server) const HUNG_UP: u8 = 4;
/// The client was sent the last goodbye: no call of it begins any more.
pub(in crate::server) const PARTED: u8 = 8;

/// What the thread that holds the reactor notes of a client. Nobody else reads or writes it. An atomic only because clients are shared between threads.
#[derive(Debug, Default)]
pub(in crate::server) struct Marks(AtomicU8);

impl Marks {
    #[inline]
    pub(in crate::server) fn has(&self, mark: u8) -> bool {
        // Relaxed, here and below: the reactor's lock orders what its holders do.
        self.0.load(Ordering::Relaxed) & mark != 0
    }

    /// Sets a mark. Whether it was not set before.
    #[inline]
    pub(in crate::server) fn set(&self, mark: u8) -> bool {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before | mark, Ordering::Relaxed);
        before & mark == 0
    }

    #[inline]
    pub(in crate::server) fn clear(&self, mark: u8) {
        self.0.store(self.0.load(Ordering::Relaxed) & !mark, Ordering::Relaxed);
    }
}

/// When a client from which nothing is read was last asked for a sign of life, or became one: nanoseconds on the monotonic
/// clock. An atomic as [`Marks`].
#[derive(Debug, Default)]
pub(in crate::server) struct Asked(AtomicU64);

/// Nanoseconds between two such questions.
const ASK_AGAIN: u64 = 3_000_000_000;

impl Asked {
    /// Whether to ask now; for a client from which nothing is read, and which is looked at all the time.
    pub(in crate::server) fn is_due(&self, now: u64) -> bool {
        let since = now.saturating_sub(self.0.load(Ordering::Relaxed));
        if since >= ASK_AGAIN {
            self.0.store(now, Ordering::Relaxed);
        }
        // If it was not looked at for longer, it was read from meanwhile.
        (ASK_AGAIN..2 * ASK_AGAIN).contains(&since)
    }
}

/// A client's connection, and what has come over it.
#[derive(Debug)]
pub(in crate::server) struct Inbound<R> {
    pub(in crate::server) connection: Arc<ServerConnection>,
    pub(in crate::server) marks: Marks,
    pub(in crate::server) asked: Asked,
    /// The client was sent a goodbye, because the connection is old, and has time until then.
    pub(in crate::server) parts_until: OnceLock<Instant>,
    pub(in crate::server) calls: Mutex<Calls>,
    pub(in crate::server) oneway: OnewayOrder<R>,
    pub(in crate::server) deferred: Deferred<R>,
}

impl<R> Inbound<R> {
    pub(in crate::server) fn new(connection: Arc<ServerConnection>) -> Arc<Self> {
        Arc::new(Self {
            connection,
            marks: Marks::default(),
            asked: Asked::default(),
            parts_until: OnceLock::new(),
            calls: Mutex::default(),
            oneway: OnewayOrder::default(),
            deferred: Deferred::default(),
        })
    }

    /// The client is gone: its calls are cancelled.
    pub(in crate::server) fn die(&self) {
        self.connection.close();
        self.connection.shared.roster.remove(self.connection.token());
        self.deferred.clear();
        self.connection.unwatch();
        self.cancel_calls();
        self.connection.lose(&LinkError::Closed);
        self.connection.exports.end();
        self.connection.session().end_if_over();
    }

    /// The client is gone, but its last frames cannot be taken in now. Cancels its calls already: their handlers may
    /// keep the very memory for which those frames wait.
    pub(in crate::server) fn end_calls(&self) {
        self.cancel_calls();
        if let Some(caller) = self.connection.caller() {
            caller.end_calls();
        }
    }

    fn cancel_calls(&self) {
        let calls = self.calls.lock().take();
        for call in calls {
            call.cancel();
        }
        self.connection.watched_calls.tell(None);
    }

    /// Tells the keepers of calls whose handlers have returned that the server begins to stop.
    pub(in crate::server) fn nudge_kept(&self) {
        let calls = self.calls.lock().all();
        for call in calls.iter().filter(|call| call.is_kept()) {
            call.nudge();
        }
    }

    /// There may be room again to send to the client: sends the frames that wait, and tells calls that wait for room. For
    /// the thread that holds the reactor. A ring's reader reports room only once. So a ring's queue is flushed even if no
    /// frame is noted: a thread that has just queued one may not have noted it yet.
    pub(in crate::server) fn flush(&self) {
        let connection = &*self.connection;
        if !connection.looking_is_cheap() && !connection.write_interest.is_set() {
            return;
        }
        connection.write_interest.flush(connection);
        if connection.has_room() && connection.take_room_wanted() {
            let calls = self.calls.lock().all();
            for call in &calls {
                call.nudge();
            }
        }
    }

    /// Whether a look may find something that was not there at the last one: a hint, as
    /// [`Wait::may_have_more`](nearcall_transport::Wait::may_have_more).
    #[inline]
    pub(in crate::server) fn may_have_more(&self) -> bool {
        self.connection.link.may_have_more() || !self.deferred.is_empty()
    }

    /// Lets a request wait until the client reads, behind others that wait for that. Gives it back if it may begin now.
    #[cold]
    pub(in crate::server) fn defer(&self, request: Box<R>) -> Option<Box<R>> {
        self.deferred.push(request, || self.connection.has_room())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_read_from_for_long_is_asked_again_and_again() {
        let (asked, begun) = (Asked::default(), 100 * ASK_AGAIN);
        let asks: Vec<u64> = (0..8).filter(|half| asked.is_due(begun + half * ASK_AGAIN / 2)).collect();
        assert_eq!(asks, [2, 4, 6], "not at once");
        assert!(!asked.is_due(begun + 10 * ASK_AGAIN), "it was read from in between");
        assert!(asked.is_due(begun + 11 * ASK_AGAIN));
    }
}
