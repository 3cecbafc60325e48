//! What a handler can learn of its call, and say beside its result.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use nearcall_platform::lock::Mutex;
use nearcall_transport::{Body, BufferPool, Charge, Compress, FREE, LinkError, Outgoing, Peer};
use nearcall_wire::{Kind, Metadata};

use crate::server::call::server_call::ServerCall;
use crate::server::call::under_way::{Held, UnderWay};
use crate::server::connection::ServerConnection;
use crate::server::shared::early_ends::{EarlyEnds, Errand, Watched};
use crate::server::shared::roster::ConnectionRow;
use crate::server::shared::statistics::Snapshot;

/// The circumstances of one call. Made only when a handler asks for them, or when something may ask that outlives the
/// call. Whoever keeps this after the call keeps nothing of a client that is gone: no socket, no memory, no permit.
#[derive(Debug)]
pub struct CallContext {
    pub(in crate::server) connection: Weak<ServerConnection>,
    pub(in crate::server) peer: Arc<Peer>,
    pub(in crate::server) id: u32,
    pub(in crate::server) ordinal: u64,
    pub(in crate::server) call: Weak<ServerCall>,
    pub(in crate::server) oneway: bool,
    /// When the caller stops waiting.
    pub deadline: Option<Instant>,
    /// What the caller sent beside the arguments.
    pub metadata: Metadata,
    /// The metadata's bytes, once the call is over: the request's own charge ends with it.
    pub(in crate::server) charge: OnceLock<Charge>,
    /// What goes back with the end of the call.
    pub trailing: Mutex<Metadata>,
    pub(in crate::server) watched: Arc<Watched>,
    pub(in crate::server) held: Held,
    pub(in crate::server) known: Mutex<Known>,
}

/// What changes of a call's circumstances.
#[derive(Debug, Default)]
pub(in crate::server) struct Known {
    /// The handler has been told that the call was cancelled.
    pub(in crate::server) cancelled: bool,
    pub(in crate::server) compress: Compress,
    /// The arguments came compressed; once the call is over: the message that was taken last.
    pub(in crate::server) was_compressed: bool,
}

impl CallContext {
    /// The client's connection. `None` once the client is gone and its calls are over.
    #[must_use]
    pub fn connection(&self) -> Option<Arc<ServerConnection>> {
        self.connection.upgrade()
    }

    /// Who called.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The pool of memory for what will be sent to the caller.
    #[must_use]
    pub fn pool(&self) -> Arc<BufferPool> {
        self.connection().map_or_else(BufferPool::common, |connection| connection.link.pool())
    }

    /// Sends metadata ahead of the first item or the result.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn send_head(&self, metadata: Metadata) -> Result<(), LinkError> {
        if self.oneway {
            return Ok(());
        }
        let mut frame = Outgoing::new(Kind::Head, Body::Whole(&[]));
        frame.metadata = Some(metadata);
        frame.compress = self.compress();
        self.connection().ok_or(LinkError::Closed)?.send(self.id, &frame)
    }

    /// Sets whether messages sent from here on are compressed, where the protocol can do that and the caller reads it;
    /// `None`: as the server's options say.
    pub fn set_compress(&self, compress: Option<bool>) {
        let said = &mut self.known.lock().compress;
        *said = match compress {
            None => Compress::AsUsual,
            Some(true) => Compress::Yes,
            Some(false) if matches!(*said, Compress::Yes | Compress::NotThis) => Compress::NotThis,
            Some(false) => Compress::No,
        };
    }

    /// What [`CallContext::set_compress`] has set.
    #[must_use]
    pub fn compress(&self) -> Compress {
        self.known.lock().compress
    }

    /// Whether the caller's message that was taken last came compressed: the arguments, or an item of its stream.
    #[must_use]
    pub fn was_compressed(&self) -> bool {
        self.call.upgrade().and_then(|call| call.was_compressed()).unwrap_or_else(|| self.known.lock().was_compressed)
    }

    /// What the server measures. It begins to measure when the first client watches, and goes on until the client is
    /// gone or [stops watching](CallContext::stop_watching). `None` if the client is gone.
    #[must_use]
    pub fn watch(&self) -> Option<Snapshot> {
        let connection = self.connection()?;
        connection.watch();
        Some(connection.shared.snapshot(1))
    }

    /// What is known of the first connections of the server whose numbers are greater than `after`, at most `limit`. `None`
    /// if the client is gone.
    #[must_use]
    pub fn connection_rows(&self, after: u64, limit: usize) -> Option<Vec<ConnectionRow>> {
        Some(self.connection()?.shared.connection_rows(after, limit))
    }

    /// The client stops watching.
    pub fn stop_watching(&self) {
        if let Some(connection) = self.connection() {
            connection.unwatch();
        }
    }

    /// Lets `ends` run the errand if nobody waits for the call any more before its handler is through. `false` if the
    /// handler is through already. `errand` gets what keeps the call under way: whoever runs the errand drops it afterwards.
    pub fn when_early(&self, ends: &Arc<EarlyEnds>, errand: impl FnOnce(Arc<UnderWay>) -> Errand) -> bool {
        let Some(connection) = self.connection() else { return false };
        let place = ends.put(self.deadline, errand(self.held.hold(&connection)));
        if !self.watched.add(ends, place, (self.id, self.ordinal), &connection.watched_calls) {
            ends.forget(place);
            return false;
        }
        // Checked after the errand was added: a cancellation from here on is noted.
        if self.is_cancelled() {
            ends.note(place);
        }
        true
    }

    /// What keeps the call under way beyond its handler, if callbacks of the handler have yet to run.
    pub(in crate::server) fn under_way(&self) -> Option<Arc<UnderWay>> {
        self.held.get()
    }

    /// The handler is through, and its caller is about to hear of that.
    pub(in crate::server) fn dismiss_watchers(&self, connection: &ServerConnection) {
        self.watched.dismiss((self.id, self.ordinal), &connection.watched_calls, || {
            self.is_cancelled() || self.deadline.is_some_and(|deadline| deadline <= Instant::now())
        });
    }

    /// Charges the metadata for as long as this is kept after the call.
    pub(in crate::server) fn charge_metadata(&self, empty: impl FnOnce() -> Charge) {
        let held = self.metadata.held();
        if held > FREE {
            let mut charge = empty();
            charge.set(held);
            // Only if this comes twice is there one already, and then this one ends here.
            let _ = self.charge.set(charge);
        }
    }

    /// Notes what is known of the call when it is over, for whoever asks later.
    pub(in crate::server) fn note_over(&self, call: &ServerCall) {
        let (was_compressed, cancelled) = (call.was_compressed(), call.is_cancelled());
        let mut known = self.known.lock();
        known.was_compressed = was_compressed.unwrap_or(known.was_compressed);
        known.cancelled |= cancelled;
    }

    /// Whether the caller gave the call up, or is gone.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        // The connection may forget a cancellation; for a handler that was told of it, it stays true.
        let cancelled = self.known.lock().cancelled
            || self.call.upgrade().is_some_and(|call| call.is_cancelled())
            || self.connection().is_none_or(|connection| {
                connection.is_dead() || connection.past_calls.was_cancelled(self.id, self.ordinal)
            });
        self.known.lock().cancelled |= cancelled;
        cancelled
    }
}
