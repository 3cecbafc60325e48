//! Messages that have come, and that nobody has taken yet.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nearcall_core::lock::{Condvar, Mutex};
use nearcall_platform::descriptors::{EventDescriptor, clear, new_event, signal};
use nearcall_route::rmr::frame::Frame;
use nearcall_route::rmr::{Outlet, Sink};

use crate::buffer::Buffer;
use crate::calls::Calls;

/// Bytes that may wait. When there are more, senders wait.
const MAX_WAITING_BYTES: usize = 64 << 20;

/// The messages that wait.
pub(crate) struct Arrivals {
    state: Mutex<State>,
    come: Condvar,
    /// Readable while messages wait.
    event: EventDescriptor,
    on_room: OnceLock<Box<dyn Fn() + Send + Sync>>,
    pub(crate) calls: Calls,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Box<Buffer>>,
    bytes: usize,
    refused: bool,
    /// Messages that have come in all.
    count: u64,
    closed: bool,
}

impl Arrivals {
    pub(crate) fn new() -> std::io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            state: Mutex::default(),
            come: Condvar::new(),
            event: new_event()?,
            on_room: OnceLock::new(),
            calls: Calls::default(),
        }))
    }

    /// Sets what is called when there is room again.
    pub(crate) fn set_on_room(&self, on_room: Box<dyn Fn() + Send + Sync>) {
        // The first counts.
        let _ = self.on_room.set(on_room);
    }

    /// What a program polls.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// The next message; waits for it for at most so long.
    pub(crate) fn take(&self, patience: Option<Duration>) -> Option<Box<Buffer>> {
        let until = patience.and_then(|patience| Instant::now().checked_add(patience));
        let mut state = self.state.lock();
        let taken = loop {
            if let Some(taken) = state.waiting.pop_front() {
                break taken;
            }
            if state.closed {
                return None;
            }
            match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => self.come.wait(&mut state),
                Some(Duration::ZERO) => return None,
                Some(left) => self.come.wait_for(&mut state, left),
            }
        };
        state.bytes -= cost(&taken);
        if state.waiting.is_empty() {
            clear(&self.event);
        }
        let tells = std::mem::take(&mut state.refused);
        drop(state);
        if tells && let Some(on_room) = self.on_room.get() {
            on_room();
        }
        Some(taken)
    }

    /// Puts a message behind the others, whether there is room or not.
    pub(crate) fn push(&self, buffer: Box<Buffer>) {
        let mut state = self.state.lock();
        if state.waiting.is_empty() {
            signal(&self.event);
        }
        state.bytes += cost(&buffer);
        state.count += 1;
        state.waiting.push_back(buffer);
        drop(state);
        self.come.notify_one();
    }

    /// How many messages have come.
    pub(crate) fn count(&self) -> u64 {
        self.state.lock().count
    }

    /// Counts anew.
    pub(crate) fn forget_count(&self) {
        self.state.lock().count = 0;
    }

    /// Wakes all who wait.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.come.notify_all();
    }
}

/// Takes what comes over the sockets.
pub(crate) struct Taker(pub(crate) Arc<Arrivals>);

impl Sink for Taker {
    fn take(&self, frame: &Frame<'_>, _: &Arc<Outlet>) -> bool {
        let call = frame.call();
        if call != 0 && !frame.is_call() {
            self.0.calls.give(call, Buffer::received(frame));
            return true;
        }
        let mut state = self.0.state.lock();
        if state.bytes >= MAX_WAITING_BYTES || state.closed {
            state.refused = true;
            return false;
        }
        drop(state);
        self.0.push(Buffer::received(frame));
        true
    }
}

fn cost(buffer: &Buffer) -> usize {
    usize::try_from(buffer.mbuf.len).unwrap_or(0) + 1024
}
