//! The queue of what waits for the event loop, and the descriptor that wakes the loop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nearcall_platform::descriptors::{self, EventDescriptor};
use nearcall_platform::lock::Mutex;

use crate::client::Connection;
use crate::server::call::{CallObserver, ServerCall};
use crate::server::handlers::queue::Turns;
use crate::server::inbound::request::Request;

/// The news for an event loop: new requests, and changes of the calls that it handles or has made.
#[derive(Debug)]
pub struct AsyncQueue {
    event: EventDescriptor,
    queued: Mutex<Queued>,
}

#[derive(Debug, Default)]
struct Queued {
    /// Clients take turns, so that who has sent ten thousand calls holds up nobody else. No time is counted: handlers in a
    /// loop wait beside each other.
    requests: Turns<Box<Request>>,
    changed: Vec<Arc<ServerCall>>,
    /// Connections on which something has come for calls that the loop has made.
    callers: Vec<Arc<Connection>>,
}

impl CallObserver for AsyncQueue {
    fn changed(&self, call: &Arc<ServerCall>) {
        let mut queued = self.queued.lock();
        let first = queued.changed.is_empty();
        queued.changed.push(Arc::clone(call));
        drop(queued);
        if first {
            self.wake();
        }
    }
}

impl AsyncQueue {
    pub(in crate::server) fn new() -> io::Result<Self> {
        Ok(Self { event: descriptors::new_event()?, queued: Mutex::default() })
    }

    /// Readable from when the loop is woken until [`AsyncQueue::take_changed`].
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Puts in a request. Whether the queue of requests was empty: then the caller must [wake](Self::wake) the loop.
    /// Changes have a queue of their own, which wakes the loop by itself.
    pub(in crate::server) fn push(&self, request: Box<Request>) -> bool {
        let mut queued = self.queued.lock();
        let first = queued.requests.is_empty();
        queued.requests.push(request.connection().token(), false, request);
        first
    }

    /// Something has come for calls that the loop has made over a connection.
    pub(in crate::server) fn push_caller(&self, caller: Arc<Connection>) {
        self.queued.lock().callers.push(caller);
        self.wake();
    }

    /// Wakes the loop.
    pub fn wake(&self) {
        descriptors::signal(&self.event);
    }

    /// Clears the event descriptor, and takes the calls for which something has come, and the connections on which
    /// something has come for calls that the loop has made.
    pub fn take_changed(&self) -> (Vec<Arc<ServerCall>>, Vec<Arc<Connection>>) {
        descriptors::clear(&self.event);
        let mut queued = self.queued.lock();
        (std::mem::take(&mut queued.changed), std::mem::take(&mut queued.callers))
    }

    /// Whether requests wait for the loop.
    #[must_use]
    pub fn has_requests(&self) -> bool {
        !self.queued.lock().requests.is_empty()
    }

    /// Takes the request that has waited longest, of the client whose turn it is.
    pub(in crate::server) fn pop(&self) -> Option<Box<Request>> {
        self.queued.lock().requests.pop(None)
    }
}
