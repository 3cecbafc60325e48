//! Clients that are held back: they send faster than the server takes on, or than they read themselves.
//!
//! Nothing is read from such a client until it has read what it is owed. What it has sent before waits here, so that it
//! takes up no worker that others need.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nearcall_transport::LinkError;

use super::Server;
use super::connection::ServerConnection;
use super::request::Request;
use crate::outgoing::Outgoing;

/// Why nothing is read from a client for now.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Requests that wait: a one-way request that came when the server had all it takes, or those of a client that is
    /// overdue.
    pub(super) requests: VecDeque<Request>,
    /// Frames that there was no room for. There are never more than the workers left behind, and one frame of the client
    /// asked for.
    owed: VecDeque<Owed>,
    /// The end of such a frame is not sent.
    has_rest: bool,
}

/// A frame for later.
#[derive(Debug)]
struct Owed {
    head: Vec<u8>,
    payload: Vec<u8>,
    /// Present if it is the last frame of a call: the call is under way until it is sent.
    _under_way: Option<UnderWay>,
}

/// Counts a call among those under way.
#[derive(Debug)]
struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        // Relaxed: the request still counts itself.
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        // Release: `stop` sees the frame sent once it sees the count.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl Held {
    fn is_empty(&self) -> bool {
        self.requests.is_empty() && !self.owes()
    }

    fn owes(&self) -> bool {
        !self.owed.is_empty() || self.has_rest
    }
}

impl ServerConnection {
    /// Whether nothing is to be read from this client for now.
    pub(super) fn is_held(&self) -> bool {
        !self.held.lock().is_empty()
    }

    /// Whether the client does not read, and frames wait for it: none of its requests is begun. Cheap.
    pub(super) fn is_overdue(&self) -> bool {
        // Relaxed: a request that is begun all the same adds one frame at most.
        self.overdue.load(Ordering::Relaxed)
    }

    /// Lets a request wait until the client has read what it is owed; gives it back if it has.
    #[cold]
    pub(super) fn park(request: Request) -> Option<Request> {
        let connection = Arc::clone(&request.connection);
        let mut held = connection.held.lock();
        if !held.owes() {
            return Some(request);
        }
        held.requests.push_back(request);
        None
    }

    /// Sends what is owed to a client that is held back, and takes on what it asked for, as far as that is possible now:
    /// one request at a time.
    ///
    /// # Errors
    /// [`LinkError::Full`] if the client must wait on.
    pub(super) fn let_go(&self, server: &Server) -> Result<Option<Request>, LinkError> {
        let mut held = self.held.lock();
        match self.pay(&mut held) {
            Ok(()) => {}
            // Relaxed: set and read by whoever holds the reception.
            Err(LinkError::Full) if !self.hung_up.load(Ordering::Relaxed) => return Err(LinkError::Full),
            Err(_) => {
                // It is gone, as whoever reads from it next finds out.
                held.owed.clear();
                held.has_rest = false;
            }
        }
        self.overdue.store(false, Ordering::Relaxed);
        if !held.requests.is_empty() {
            // A request that waits counts itself, in both. Relaxed: as in `begin`.
            let room = self.in_flight.load(Ordering::Relaxed) <= server.limits.max_pending;
            // One at least is always under way, so that a client's messages move on whatever others do.
            let alone = self.oneway_pending.load(Ordering::Relaxed) <= 1;
            if !room && !alone {
                return Err(LinkError::Full);
            }
        }
        Ok(held.requests.pop_front())
    }

    /// Forgets what waits: the client is gone, or the server ends.
    pub(super) fn abandon(&self) {
        let held = {
            let mut held = self.held.lock();
            self.overdue.store(false, Ordering::Relaxed);
            std::mem::take(&mut *held)
        };
        // Without the lock: the requests have the connection.
        drop(held);
    }

    /// Sends what is owed.
    fn pay(&self, held: &mut Held) -> Result<(), LinkError> {
        loop {
            if held.has_rest {
                self.link.finish(&mut || Err(LinkError::Full))?;
                held.has_rest = self.link.has_rest();
                if held.has_rest {
                    return Err(LinkError::Full);
                }
            }
            let Some(frame) = held.owed.front() else { return Ok(()) };
            self.link.try_send(&frame.head, &[&frame.payload])?;
            held.owed.pop_front();
            held.has_rest = self.link.has_rest();
        }
    }

    /// Sends a frame from the receiving worker, which must not wait for a client that does not read: it reads no more from
    /// that client until there is room for the frame.
    pub(super) fn send_in_passing(&self, call: u32, frame: &Outgoing<'_>) -> Result<(), LinkError> {
        let mut held = self.held.lock();
        if held.owed.is_empty() {
            match frame.try_send(call, &*self.link) {
                Ok(()) => {
                    held.has_rest = self.link.has_rest();
                    return Ok(());
                }
                Err(LinkError::Full) => {}
                Err(error) => return Err(error),
            }
        }
        self.owe(&mut held, call, frame, None);
        Ok(())
    }

    /// Sends the last frame of a call. A worker waits for a client that does not read, unless calls wait for a worker: then
    /// the frame waits by itself.
    pub(super) fn send_last(
        self: &Arc<Self>,
        server: &Server,
        call: u32,
        frame: &Outgoing<'_>,
    ) -> Result<(), LinkError> {
        let sent = self.send_while(server, call, frame, &|| !server.lacks_workers());
        if sent == Err(LinkError::Full) {
            self.owe(&mut self.held.lock(), call, frame, Some(UnderWay::new(&self.in_flight)));
            server.hold(Arc::clone(self));
            return Ok(());
        }
        sent
    }

    #[cold]
    fn owe(&self, held: &mut Held, call: u32, frame: &Outgoing<'_>, under_way: Option<UnderWay>) {
        let (head, payload) = frame.to_bytes(call);
        held.owed.push_back(Owed { head, payload, _under_way: under_way });
        self.overdue.store(true, Ordering::Relaxed);
    }
}
