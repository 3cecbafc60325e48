//! Calls that this side makes over connections on which a server receives: calls of the server's handlers and other
//! threads to its clients, and calls of clients of this process whose servers may call them.
//!
//! Such a caller receives for the whole server if the lead is free, and otherwise sleeps until the receiving thread
//! wakes it.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use nearcall_transport::{LinkError, Sent};
use nearcall_wire::Failure;

use crate::client::{Awaited, Connection, Receiver};
use crate::server::Server;
use crate::server::connection::ServerConnection;
use crate::server::connection::adopted::{Adopted, ReceivedFrom};
use crate::server::receivers::worker::{MOST_WAITING, is_worker_of};
use crate::server::shared::Shared;
use crate::sync::{AtomicUsize, Ordering};

/// A server, and the connection on which it receives.
struct ServerReceiver {
    server: Weak<Server>,
    /// Set once the server receives on the connection.
    connection: Arc<OnceLock<ReceivedFrom>>,
    /// How many of the server's workers wait for replies over the connection.
    waiting: AtomicUsize,
    /// What the server's workers do, with those that wait for replies over all its connections.
    shared: Arc<Shared>,
}

impl ServerReceiver {
    fn new(server: &Arc<Server>, connection: OnceLock<ReceivedFrom>) -> Arc<Self> {
        Arc::new(Self {
            server: Arc::downgrade(server),
            connection: Arc::new(connection),
            waiting: AtomicUsize::new(0),
            shared: Arc::clone(&server.shared),
        })
    }

    fn connection(&self) -> Option<Arc<ServerConnection>> {
        self.connection.get()?.connection.upgrade()
    }
}

/// The calling thread waits for a reply until this is dropped.
struct Waits<'a> {
    receiver: &'a ServerReceiver,
    server: &'a Server,
    /// The thread is one of the server's workers, and counted as waiting: another worker may run in its place.
    counted: bool,
    /// The reply was received by another thread, which has woken this one.
    woken: bool,
}

impl Waits<'_> {
    /// Counts the thread as waiting, if it is a worker. Call this before the thread leaves the lead to others, or
    /// sleeps. A thread that still receives is not counted: it keeps no request waiting, and most replies come so soon
    /// that the count is never needed.
    fn count(&mut self) {
        if !self.counted && self.server.is_worker() {
            self.counted = true;
            // Relaxed: as in `may_wait`.
            self.receiver.waiting.fetch_add(1, Ordering::Relaxed);
            if self.server.shared.crew.begin_waiting() {
                self.server.release();
                self.server.shared.mailbox.wake();
            }
        }
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if self.counted {
            // Relaxed: as in `may_wait`.
            self.receiver.waiting.fetch_sub(1, Ordering::Relaxed);
            self.server.shared.crew.end_waiting();
        }
        if self.woken && self.server.shared.leadership.lead.take_offered() {
            self.server.begin_handler();
        }
    }
}

impl Receiver for ServerReceiver {
    fn wait(&self, awaited: &mut dyn Awaited, slice: Duration) {
        let Some(server) = self.server.upgrade() else {
            awaited.sleep();
            return;
        };
        let mut waits = Waits { receiver: self, server: &server, counted: false, woken: false };
        let mut leads = server.lead_for_caller();
        // Only the thread that holds the lead queues requests, so none is added while this thread holds it.
        if !leads || server.shared.crew.has_queued() {
            waits.count();
            leads = server.lead_for_caller();
        }
        let token = self.connection.get().map(|connection| connection.token);
        let over = leads && server.receive_as_mine(awaited, token, Some(slice), || waits.count());
        if server.is_stopped()
            && let Some(connection) = self.connection()
        {
            // No thread receives any more, and the server closes its connections only after its handlers have returned.
            connection.lose(&LinkError::Closed);
            awaited.is_over();
        }
        waits.woken = !over && awaited.sleep();
    }

    fn may_wait(&self) -> Result<(), Failure> {
        if !is_worker_of(self.server.as_ptr()) {
            return Ok(());
        }
        // Relaxed: bounds on threads, exact enough. At most one waiting worker is not counted: the thread that
        // holds the lead.
        let all = self.shared.crew.waiting();
        let here = self.waiting.load(Ordering::Relaxed);
        if here + all < MOST_WAITING {
            return Ok(());
        }
        let text = format!(
            "{all} handlers of this server wait for replies to calls of their own, {here} of them over this connection: \
             together there may be {MOST_WAITING}, and over one connection as many as are left: write handlers that wait \
             for others with 'async def'"
        );
        Err(Failure::new(Failure::RESOURCE_EXHAUSTED, text))
    }

    fn note_woken(&self) {
        if let Some(server) = self.server.upgrade() {
            server.trend.note_reply();
        }
    }

    fn note_queued(&self, sent: Sent) {
        let Some(connection) = self.connection() else { return };
        match sent {
            Sent::LookAgain => connection.note_look_again(),
            Sent::Queued | Sent::KeptBack | Sent::Out => connection.note_queued_frame(),
        }
    }

    fn tell_loop(&self, connection: &Arc<Connection>) {
        if let Some(server) = self.server.upgrade()
            && let Some(queue) = server.directory.event_loop.get()
        {
            queue.push_caller(Arc::clone(connection));
        }
    }

    fn take_over(&self) {
        if let Some(server) = self.server.upgrade() {
            server.shared.mailbox.wake();
        }
    }
}

impl Server {
    /// Receives on the connection of a client of this process from now on, and runs the calls of the objects that the
    /// client gives to its server: at most `max_references` objects at a time. Never waits.
    pub fn adopt(self: &Arc<Self>, connection: &Arc<Connection>, max_references: usize) {
        connection.open_exports(max_references, Arc::clone(&self.shared.mailbox) as _);
        let receives = ServerReceiver::new(self, OnceLock::new());
        if connection.use_receiver(Arc::clone(&receives) as Arc<dyn Receiver>) {
            let receives_for = Arc::clone(&receives.connection);
            let adopted = Adopted { client: Arc::downgrade(connection), connection: receives_for };
            self.shared.mailbox.leave_client(Box::new(adopted));
        }
    }

    /// The half of a connection that makes calls to the client; made now if there is none yet. `None` if a client of
    /// this process has made the connection, and is gone.
    #[must_use]
    pub fn caller(self: &Arc<Self>, connection: &Arc<ServerConnection>) -> Option<Arc<Connection>> {
        connection.caller_or(|| {
            let (link, exports) = (Arc::clone(&connection.link), Arc::clone(&connection.exports));
            let receives = ServerReceiver::new(self, OnceLock::from(ReceivedFrom::new(connection)));
            Connection::to_client(link, exports, receives)
        })
    }

    /// Takes the lead if it is free or offered. Whether the calling thread holds the lead now.
    fn lead_for_caller(&self) -> bool {
        let lead = &self.shared.leadership.lead;
        lead.back() || lead.try_take() || lead.take_offered()
    }
}
