//! A server as whoever receives for the calls that this side makes over its connections: from its own handlers and other
//! threads to its clients, and from clients of this process whose servers may call them.

use std::cell::Cell;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use nearcall_transport::LinkError;
use nearcall_wire::Failure;

use super::Server;
use super::connection::ServerConnection;
use crate::client::{Connection, received::Receiver};
use crate::sync::{AtomicUsize, Ordering, fence};

/// Workers of a server that may wait in a handler for replies, at once. Each is a thread, and another one takes its place.
/// Of these, no more may wait for one peer than are left for the others: who never answers does not stop calls of others.
pub(super) const MOST_WAITING: usize = 512;

thread_local! {
    /// The server whose worker this thread is, by its address; 0 if it is none's.
    static WORKS_FOR: Cell<usize> = const { Cell::new(0) };
}

/// Makes the calling thread a worker of a server. Who it worked for before.
pub(super) fn work_for(server: usize) -> usize {
    WORKS_FOR.replace(server)
}

/// A server, and the connection that it receives for.
pub(super) struct Receives {
    server: Weak<Server>,
    /// Set once the server has it.
    connection: OnceLock<Weak<ServerConnection>>,
    /// The server's workers that wait for replies over it.
    waiting: AtomicUsize,
}

impl Receives {
    /// For a connection that the server has accepted.
    pub(super) fn accepted(server: &Arc<Server>, connection: &Arc<ServerConnection>) -> Self {
        Self::of(server, OnceLock::from(Arc::downgrade(connection)))
    }

    fn of(server: &Arc<Server>, connection: OnceLock<Weak<ServerConnection>>) -> Self {
        Self { server: Arc::downgrade(server), connection, waiting: AtomicUsize::new(0) }
    }
}

impl Receiver for Receives {
    fn receive(&self, over: &mut dyn FnMut() -> bool, slice: Duration) -> bool {
        let Some(server) = self.server.upgrade() else { return false };
        let received = server.receive_for_caller(&mut || server.is_stopped() || over(), slice);
        if server.is_stopped()
            && let Some(connection) = self.connection.get().and_then(Weak::upgrade)
        {
            // Nobody receives any more, and the server waits for its handlers before it closes its connections.
            connection.lose(&LinkError::Closed);
            over();
        }
        received
    }

    fn enter(&self) {
        if let Some(server) = self.server.upgrade() {
            if server.is_worker() {
                // Relaxed: as in `may_wait`.
                self.waiting.fetch_add(1, Ordering::Relaxed);
            }
            server.begin_waiting();
        }
    }

    fn leave(&self, woken: bool) {
        if let Some(server) = self.server.upgrade() {
            if server.is_worker() {
                // Relaxed: as in `may_wait`.
                self.waiting.fetch_sub(1, Ordering::Relaxed);
            }
            server.end_waiting(woken);
        }
    }

    fn may_wait(&self) -> Result<(), Failure> {
        let Some(server) = self.server.upgrade().filter(|server| server.is_worker()) else { return Ok(()) };
        // Relaxed, both: bounds on threads, exact enough.
        let all = server.waiting.load(Ordering::Relaxed);
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
            // Relaxed: read by whoever receives, which is this thread.
            server.woke_caller.store(true, Ordering::Relaxed);
        }
    }

    fn note_queued(&self) {
        if let (Some(server), Some(connection)) = (self.server.upgrade(), self.connection.get().and_then(Weak::upgrade))
        {
            connection.note_queued_frame(&server);
        }
    }

    fn tell_loop(&self, connection: &Arc<Connection>) {
        if let Some(server) = self.server.upgrade()
            && let Some(queue) = server.async_queue.get()
        {
            queue.push_caller(Arc::clone(connection));
        }
    }

    fn take_over(&self) {
        if let Some(server) = self.server.upgrade() {
            server.wake_reactor();
        }
    }
}

impl Server {
    /// Receives for a client of this process from now on, and runs the calls of objects that it gives: `max_references` at
    /// most may be given at a time. Never waits.
    pub fn adopt(self: &Arc<Self>, connection: &Arc<Connection>, max_references: usize) {
        connection.exports().open(max_references, &self.releases);
        let receives = Arc::new(Receives::of(self, OnceLock::new()));
        if connection.use_receiver(Arc::clone(&receives) as Arc<dyn Receiver>) {
            self.adopted.lock().push(Adopted { client: Arc::downgrade(connection), receives });
            self.wake_reactor();
        }
    }
}

/// A client of this process that waits to be received for.
pub(super) struct Adopted {
    client: Weak<Connection>,
    receives: Arc<Receives>,
}

impl Adopted {
    /// The client's connection, if it is still there.
    pub(super) fn client(&self) -> Option<Arc<Connection>> {
        self.client.upgrade()
    }

    /// From now on the connection is received for.
    pub(super) fn settle(&self, connection: &Arc<ServerConnection>) {
        // It is settled once.
        let _ = self.receives.connection.set(Arc::downgrade(connection));
        // What was queued before had nobody to send it.
        self.receives.note_queued();
    }
}

impl Server {
    /// Takes in the clients of this process that wait for it; `adopt` says whether one is settled, else it is asked again.
    pub(super) fn take_adopted(&self, mut adopt: impl FnMut(&Adopted) -> bool) {
        let waiting = std::mem::take(&mut *self.adopted.lock());
        let left: Vec<_> = waiting.into_iter().filter(|adopted| !adopt(adopted)).collect();
        if !left.is_empty() {
            self.adopted.lock().extend(left);
        }
    }

    /// Whether the calling thread runs a handler of this server.
    fn is_worker(&self) -> bool {
        WORKS_FOR.get() == std::ptr::from_ref(self).addr()
    }

    /// The calling thread is going to wait for a reply. If it is a worker, another one may run in its stead.
    fn begin_waiting(&self) {
        if !self.is_worker() {
            return;
        }
        // Relaxed: the fence orders it. It pairs with that of `may_dequeue`: a worker that queues a request, or goes to sleep,
        // sees this one wait, or this one sees the request.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.queued.load(Ordering::Relaxed) > 0 {
            self.release();
            self.wake_reactor();
        }
    }

    fn end_waiting(&self, woken: bool) {
        if self.is_worker() {
            // Relaxed: a moment's excess of one is corrected at the next request.
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        if woken && self.leadership.take_offered() {
            self.begin_handler();
        }
    }

    /// See [`Receiver::receive`]. Who finds work for others leaves the lead to them and sleeps: to take it again at once would
    /// keep it from those who wake up to take it.
    pub(super) fn receive_for_caller(&self, over: &mut dyn FnMut() -> bool, slice: Duration) -> bool {
        if !self.leadership.back() && !self.leadership.try_take() && !self.leadership.take_offered() {
            return false;
        }
        self.receive_as_mine(over, Some(slice))
    }
}
