//! The queue of what waits for the event loop, and the descriptor that wakes the loop.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nearcall_platform::descriptors::{self, EventDescriptor};
use nearcall_platform::lock::Mutex;

use crate::client::Connection;
use crate::server::call::{CallObserver, ServerCall};
use crate::server::inbound::request::Request;

/// The news for an event loop: new requests, and changes of the calls that it handles or has made.
#[derive(Debug)]
pub struct AsyncQueue {
    event: EventDescriptor,
    queued: Mutex<Queued>,
}

#[derive(Debug, Default)]
struct Queued {
    requests: InTurns<Box<Request>>,
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
        queued.requests.push(request.connection().token(), request);
        first
    }

    /// Something has come for calls that the loop has made over a connection.
    pub(in crate::server) fn push_caller(&self, caller: Arc<Connection>) {
        self.queued.lock().callers.push(caller);
        self.wake();
    }

    /// Takes the connections on which something has come for calls that the loop has made. Call this after
    /// [`AsyncQueue::take_changed`].
    pub fn take_callers(&self) -> Vec<Arc<Connection>> {
        std::mem::take(&mut self.queued.lock().callers)
    }

    /// Wakes the loop.
    pub fn wake(&self) {
        descriptors::signal(&self.event);
    }

    /// Clears the event descriptor, and takes the calls for which something has come.
    pub fn take_changed(&self) -> Vec<Arc<ServerCall>> {
        descriptors::clear(&self.event);
        std::mem::take(&mut self.queued.lock().changed)
    }

    /// Whether requests wait for the loop.
    #[must_use]
    pub fn has_requests(&self) -> bool {
        !self.queued.lock().requests.is_empty()
    }

    /// Takes the request that has waited longest, of the client whose turn it is.
    pub(in crate::server) fn pop(&self) -> Option<Box<Request>> {
        self.queued.lock().requests.pop()
    }
}

/// What waits, by client. Clients take turns, so that who has sent ten thousand calls holds up nobody else; what is of one
/// client comes out in the order of arrival. Unlike the workers' queue this counts no time: handlers in a loop wait beside
/// each other.
#[derive(Debug)]
struct InTurns<T> {
    waiting: HashMap<u64, VecDeque<T>>,
    /// The clients of which something waits.
    turns: VecDeque<u64>,
    /// An empty queue for the next client, so that calls which wait alone allocate nothing.
    spare: VecDeque<T>,
}

/// The most places of a queue that is kept as the spare one.
const SPARE: usize = 1024;

impl<T> Default for InTurns<T> {
    fn default() -> Self {
        Self { waiting: HashMap::new(), turns: VecDeque::new(), spare: VecDeque::new() }
    }
}

impl<T> InTurns<T> {
    fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    fn push(&mut self, client: u64, one: T) {
        let waiting = self.waiting.entry(client).or_insert_with(|| {
            self.turns.push_back(client);
            std::mem::take(&mut self.spare)
        });
        waiting.push_back(one);
    }

    fn pop(&mut self) -> Option<T> {
        let client = self.turns.pop_front()?;
        let waiting = self.waiting.get_mut(&client)?;
        let one = waiting.pop_front();
        if !waiting.is_empty() {
            self.turns.push_back(client);
        } else if let Some(empty) = self.waiting.remove(&client)
            && empty.capacity() <= SPARE
        {
            self.spare = empty;
        }
        one
    }
}

#[cfg(test)]
mod tests {
    use crate::server::handlers::loop_queue::InTurns;

    #[test]
    fn clients_take_turns_whatever_each_has_sent() {
        let mut queue = InTurns::default();
        for (client, one) in [(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (3, "c1"), (2, "b2")] {
            queue.push(client, one);
        }
        assert_eq!(queue.pop(), Some("a1"));
        queue.push(4, "d1");
        let rest: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(rest, ["b1", "c1", "a2", "d1", "b2", "a3"]);
        assert!(queue.is_empty() && queue.waiting.is_empty());
    }
}
