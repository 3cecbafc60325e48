//! Where messages wait that have arrived.
//!
//! A message keeps the request that it came with until it is dropped, and so counts among what the server has under way:
//! when handlers fall behind, the server reads no more from its senders, and their queues fill. Nothing is dropped here.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use nearcall_core::Payload;
use nearcall_core::lock::{Condvar, Mutex};
use nearcall_core::server::{CallObserver, NativeHandler, Request};
use nearcall_transport::{Delivery, Settled};
use rustix::event::{EventfdFlags, eventfd};

use crate::arrived::Arrived;
use crate::calls::Calls;
use crate::message::{BadMessage, Head};
use crate::sync::{AtomicU64, Ordering};

/// What a message costs beside its payload.
const MESSAGE_COST: usize = 512;

/// The messages that have arrived and that nobody has taken.
pub struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
    /// For event loops: readable while messages wait.
    event: OnceLock<OwnedFd>,
    calls: Arc<Calls>,
    /// Is called when there is room again for messages that came without a request.
    on_room: OnceLock<Box<dyn Fn() + Send + Sync>>,
    taken: AtomicU64,
    malformed: AtomicU64,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("state", &self.state).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Arrived>,
    /// Bytes of those that wait without a request, which nothing else bounds.
    bytes: usize,
    /// One of those found no room.
    refused: bool,
    /// Threads that sleep until something comes.
    sleepers: usize,
    closed: bool,
}

impl Inbox {
    /// An empty one. Replies to `calls` go to these.
    pub(crate) fn new(calls: Arc<Calls>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            event: OnceLock::new(),
            calls,
            on_room: OnceLock::new(),
            taken: AtomicU64::new(0),
            malformed: AtomicU64::new(0),
        })
    }

    /// The next messages, at most `most`; waits until `until` for the first. Empty if none has come by then, or if this is
    /// [closed](Self::is_closed) and nothing is left.
    pub fn take(&self, most: usize, until: Option<Instant>) -> Vec<Arrived> {
        let mut state = self.state.lock();
        while state.waiting.is_empty() && !state.closed {
            state.sleepers += 1;
            match until {
                None => self.changed.wait(&mut state),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if !left.is_zero() {
                        self.changed.wait_for(&mut state, left);
                    }
                }
            }
            state.sleepers -= 1;
            if until.is_some_and(|until| until <= Instant::now()) {
                break;
            }
        }
        let most = most.min(state.waiting.len());
        let mut taken: Vec<Arrived> = state.waiting.drain(..most).collect();
        state.bytes -= taken.iter().filter(|arrived| arrived.request.is_none()).map(cost).sum::<usize>();
        let tells = state.refused && !taken.is_empty();
        state.refused &= !tells;
        if let Some(event) = self.event.get()
            && state.waiting.is_empty()
            && !state.closed
        {
            clear(event);
        }
        drop(state);
        if tells && let Some(on_room) = self.on_room.get() {
            on_room();
        }
        // Relaxed: a number to be shown.
        self.taken.fetch_add(taken.len() as u64, Ordering::Relaxed);
        // From now on they are their receiver's matter.
        for arrived in &mut taken {
            arrived.request = None;
        }
        taken
    }

    /// The descriptor that an event loop polls for reading: it is readable while messages wait, and once this is closed.
    ///
    /// # Errors
    /// What the system says.
    pub fn event(&self) -> io::Result<BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        let state = self.state.lock();
        if self.event.get().is_none() {
            let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            if !state.waiting.is_empty() || state.closed {
                ring(&event);
            }
            // Nobody else sets it: the lock is held.
            let _ = self.event.set(event);
        }
        drop(state);
        Ok(self.event.get().expect("it was just set").as_fd())
    }

    /// How many messages were taken, how many wait, and how many could not be read.
    #[must_use]
    pub fn counts(&self) -> (u64, usize, u64) {
        // Relaxed: numbers to be shown.
        let (taken, malformed) = (self.taken.load(Ordering::Relaxed), self.malformed.load(Ordering::Relaxed));
        (taken, self.state.lock().waiting.len(), malformed)
    }

    /// Whether nothing more will come.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Wakes all who wait: nothing more will come. What waits can still be taken.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        if let Some(event) = self.event.get() {
            ring(event);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Sets what is called when there is room again for messages that [`offer`](Self::offer) has refused. The first counts.
    pub(crate) fn set_on_room(&self, on_room: Box<dyn Fn() + Send + Sync>) {
        // Another one is there already.
        let _ = self.on_room.set(on_room);
    }

    /// Takes a message that came without a request, if it is a reply to a call, or if fewer than `most` bytes wait. Unless
    /// `all`, others than replies are counted as malformed.
    pub(crate) fn offer(
        &self,
        transaction: &[u8],
        most: usize,
        all: bool,
        make: impl FnOnce() -> Option<Arrived>,
    ) -> bool {
        let is_reply = self.calls.expects(transaction);
        if !is_reply && all {
            let mut state = self.state.lock();
            if state.bytes >= most || state.closed {
                state.refused = true;
                return false;
            }
        }
        match make().filter(|_| is_reply || all) {
            Some(arrived) => {
                if let Some(arrived) = self.calls.give(arrived) {
                    self.push(arrived);
                }
            }
            // Relaxed: a number to be shown.
            None => _ = self.malformed.fetch_add(1, Ordering::Relaxed),
        }
        true
    }

    /// Takes a message that was kept for this node. How many come before others are handled is said where they are kept.
    pub(crate) fn keep(&self, bytes: Vec<u8>, delivery: Delivery) {
        let mut call = Payload::from(bytes);
        let head = match self.read(&mut call) {
            Ok(Some(head)) => head,
            // A call has it, or nobody can read it.
            Ok(None) => return delivery.settle(Settled::Handled),
            Err(_) => return delivery.settle(Settled::Useless),
        };
        self.push(Arrived { head, call, request: None, delivery: Some(Box::new(delivery)) });
    }

    fn push(&self, arrived: Arrived) {
        let mut state = self.state.lock();
        if arrived.request.is_none() {
            state.bytes += cost(&arrived);
        }
        if state.waiting.is_empty()
            && let Some(event) = self.event.get()
        {
            ring(event);
        }
        state.waiting.push_back(arrived);
        let wakes = state.sleepers > 0;
        drop(state);
        if wakes {
            self.changed.notify_one();
        }
    }
}

impl Inbox {
    /// Reads a message, which stays where it is. `None` if a call had waited for it, and has it.
    ///
    /// # Errors
    /// It cannot be read; that is counted.
    #[inline]
    pub fn read(&self, payload: &mut Payload) -> Result<Option<Head>, BadMessage> {
        let head = Head::read(payload).inspect_err(|_| {
            // Relaxed: a number to be shown.
            self.malformed.fetch_add(1, Ordering::Relaxed);
        })?;
        if self.calls.are_asked(head.kind) {
            return Ok(self.ask_calls(head, payload));
        }
        Ok(Some(head))
    }

    #[inline(never)]
    fn ask_calls(&self, head: Head, payload: &mut Payload) -> Option<Head> {
        let back = self.calls.give(Arrived { head, call: payload.take(), request: None, delivery: None })?;
        *payload = back.call;
        Some(back.head)
    }

    /// Counts messages that were taken without having waited here.
    pub fn count_taken(&self) {
        // Relaxed: a number to be shown.
        self.taken.fetch_add(1, Ordering::Relaxed);
    }
}

impl CallObserver for Inbox {}

impl NativeHandler for Inbox {
    fn handle(&self, mut request: Box<Request>) {
        match self.read(&mut request.payload) {
            Ok(head) => {
                request.end_oneway();
                if let Some(head) = head {
                    let call = request.payload.take();
                    self.push(Arrived { head, call, request: Some(request), delivery: None });
                }
            }
            Err(problem) => request.fail(&problem.into()),
        }
    }

    fn stopping(&self) {
        self.close();
    }
}

/// Bytes that a message counts for.
fn cost(arrived: &Arrived) -> usize {
    arrived.call.len() + MESSAGE_COST
}

fn ring(event: &OwnedFd) {
    // It can fail only if it is as readable as can be.
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

fn clear(event: &OwnedFd) {
    // It can fail only if it is not readable.
    let _ = rustix::io::read(event, &mut [0; 8]);
}
