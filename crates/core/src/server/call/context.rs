//! What a handler can learn of its call, and say beside its result.

use crate::sync::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Instant;

use nearcall_platform::lock::Mutex;
use nearcall_transport::{Body, BufferPool, Compress, LinkError, Outgoing, Peer};
use nearcall_wire::{Kind, Metadata};

use crate::server::call::server_call::ServerCall;
use crate::server::call::under_way::{Held, UnderWay};
use crate::server::connection::ServerConnection;
use crate::server::early_ends::{EarlyEnds, Errand, Watched};
use crate::server::statistics::Snapshot;

/// The circumstances of one call. Made only when a handler asks for them.
#[derive(Debug)]
pub struct CallContext {
    pub(in crate::server) connection: Arc<ServerConnection>,
    pub(in crate::server) id: u32,
    pub(in crate::server) ordinal: u64,
    /// The handler has been told that the call was cancelled.
    pub(in crate::server) cancelled: AtomicBool,
    pub(in crate::server) call: Option<Arc<ServerCall>>,
    pub(in crate::server) oneway: bool,
    /// When the caller stops waiting.
    pub deadline: Option<Instant>,
    /// What the caller sent beside the arguments.
    pub metadata: Metadata,
    /// What goes back with the end of the call.
    pub trailing: Mutex<Metadata>,
    pub(in crate::server) watched: Arc<Watched>,
    pub(in crate::server) held: Held,
    pub(in crate::server) compress: Mutex<Compress>,
    /// The arguments came compressed.
    pub(in crate::server) was_compressed: bool,
}

impl CallContext {
    /// The client's connection.
    #[must_use]
    pub fn connection(&self) -> &ServerConnection {
        &self.connection
    }

    /// Who called.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        self.connection.peer()
    }

    /// The pool of memory for what will be sent to the caller.
    #[must_use]
    pub fn pool(&self) -> Arc<BufferPool> {
        self.connection.link.pool()
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
        self.connection.send(self.id, &frame)
    }

    /// Sets whether messages sent from here on are compressed, where the protocol can do that and the caller reads it;
    /// `None`: as the server's options say.
    pub fn set_compress(&self, compress: Option<bool>) {
        let mut said = self.compress.lock();
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
        *self.compress.lock()
    }

    /// Whether the caller's message that was taken last came compressed: the arguments, or an item of its stream.
    #[must_use]
    pub fn was_compressed(&self) -> bool {
        self.call.as_ref().and_then(|call| call.was_compressed()).unwrap_or(self.was_compressed)
    }

    /// What the server measures. It begins to measure when the first client watches, and goes on until the client is
    /// gone or [stops watching](CallContext::stop_watching).
    #[must_use]
    pub fn watch(&self) -> Snapshot {
        self.connection.watch();
        self.connection.shared.snapshot()
    }

    /// The client stops watching.
    pub fn stop_watching(&self) {
        self.connection.unwatch();
    }

    /// Lets `ends` run the errand if nobody waits for the call any more before its handler is through. `false` if the
    /// handler is through already. `errand` gets what keeps the call under way: whoever runs the errand drops it afterwards.
    pub fn when_early(&self, ends: &Arc<EarlyEnds>, errand: impl FnOnce(Arc<UnderWay>) -> Errand) -> bool {
        let number = ends.put(self.deadline, errand(self.held.hold(&self.connection)));
        if !self.watched.add(ends, number, self.id, &self.connection.watched_calls) {
            ends.forget(number);
            return false;
        }
        // Checked after the errand was added: a cancellation from here on is noted.
        if self.is_cancelled() {
            ends.note(number);
        }
        true
    }

    /// What keeps the call under way beyond its handler, if callbacks of the handler have yet to run.
    pub(in crate::server) fn under_way(&self) -> Option<Arc<UnderWay>> {
        self.held.get()
    }

    /// The handler is through, and its caller is about to hear of that.
    pub(in crate::server) fn dismiss_watchers(&self) {
        self.watched.dismiss(self.id, &self.connection.watched_calls, || {
            self.is_cancelled() || self.deadline.is_some_and(|deadline| deadline <= Instant::now())
        });
    }

    /// Whether the caller gave the call up, or is gone.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        // Relaxed, both: no other memory depends on the flag. The connection may forget a cancellation; for a handler
        // that was told of it, it stays true.
        let cancelled = self.cancelled.load(Ordering::Relaxed)
            || self.connection.is_dead()
            || self.call.as_ref().is_some_and(|call| call.is_cancelled())
            || self.connection.was_cancelled(self.id, self.ordinal);
        self.cancelled.store(cancelled, Ordering::Relaxed);
        cancelled
    }
}
