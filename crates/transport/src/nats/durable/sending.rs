//! Messages on their way to the NATS server that keeps them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::Context;
use async_nats::jetstream::message::PublishMessage;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use nearcall_platform::lock::{Condvar, Mutex, MutexGuard};
use nearcall_platform::sys::random;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::Durable;
use crate::errors::ConnectError;
use crate::nats::taking::Pauses;
use crate::nats::thread::Thread;
use crate::options::Options;
use crate::sync::{AtomicBool, Ordering};

/// The most messages, and bytes of them, that the NATS server has not acknowledged.
const MAX_UNACKNOWLEDGED: usize = 1024;
const MAX_UNACKNOWLEDGED_BYTES: usize = 1 << 20;
/// What a message costs beside its bytes.
const MESSAGE_COST: usize = 256;
/// How long a sender sleeps before it is asked whether to go on.
const SLICE: Duration = Duration::from_millis(50);

/// Sends messages to a subject whose messages are kept. Dropped, it forgets what was not acknowledged.
#[derive(Debug)]
pub struct Sender(Arc<Shared>);

/// A message that was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsent {
    /// There is no room: too much is not acknowledged yet.
    NoRoom,
    /// There is no connection.
    Down,
    /// It is longer than the NATS server takes: this many bytes.
    TooLong(usize),
}

#[derive(Debug)]
struct Shared {
    place: Durable,
    state: Mutex<State>,
    /// There is room, or the connection has come or gone.
    changed: Condvar,
    /// There is something to send, or it is over.
    news: Notify,
    /// Whether there is a connection: for those who hold a lock of their own. Changed with the lock held.
    connected: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// What is not acknowledged, each with its number.
    waiting: VecDeque<(u64, Vec<u8>)>,
    bytes: usize,
    next: u64,
    /// The longest message that the NATS server takes, while there is a connection.
    longest: Option<usize>,
    /// Why there is none.
    failure: Option<Arc<ConnectError>>,
    over: bool,
}

impl Sender {
    /// A sender, which connects from now on.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn new(place: Durable, options: &Options) -> Result<Self, ConnectError> {
        let thread = Thread::get().map_err(|error| place.unavailable(&error))?;
        let shared = Arc::new(Shared {
            place,
            state: Mutex::default(),
            changed: Condvar::new(),
            news: Notify::new(),
            connected: AtomicBool::new(false),
        });
        let (own, options, runtime) = (Arc::clone(&shared), options.clone(), thread.runtime.clone());
        runtime.spawn(async move { own.run(&options).await });
        Ok(Self(shared))
    }

    /// Whether there is a connection.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        // Relaxed: who sends looks at the state.
        self.0.connected.load(Ordering::Relaxed)
    }

    /// Waits until there is a connection, or until then, and asks now and then whether to go on. Why there is none.
    ///
    /// # Errors
    /// There is none.
    pub fn connect(&self, until: Instant, go_on: &mut dyn FnMut() -> bool) -> Result<(), Arc<ConnectError>> {
        let mut state = self.0.state.lock();
        while state.longest.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            let failure = state.failure.clone();
            // What is asked may take a lock under which others ask this.
            drop(state);
            if left.is_zero() || !go_on() {
                return Err(
                    failure.unwrap_or_else(|| Arc::new(self.0.place.unavailable(&"there is no connection yet")))
                );
            }
            state = self.0.state.lock();
            if state.longest.is_none() {
                self.0.changed.wait_for(&mut state, left.min(SLICE));
            }
        }
        Ok(())
    }

    /// Takes a message, in pieces. With `go_on` it waits for room, and asks before each short wait whether to.
    ///
    /// # Errors
    /// It was not taken.
    pub fn send(&self, pieces: &[&[u8]], mut go_on: Option<&mut dyn FnMut() -> bool>) -> Result<(), Unsent> {
        let len = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        loop {
            let mut state = self.0.state.lock();
            let longest = state.longest.ok_or(Unsent::Down)?;
            if len > longest {
                return Err(Unsent::TooLong(longest));
            }
            if state.waiting.is_empty()
                || state.waiting.len() < MAX_UNACKNOWLEDGED
                    && state.bytes + len + MESSAGE_COST <= MAX_UNACKNOWLEDGED_BYTES
            {
                let number = state.next;
                state.next += 1;
                state.bytes += len + MESSAGE_COST;
                state.waiting.push_back((number, pieces.concat()));
                drop(state);
                self.0.news.notify_one();
                return Ok(());
            }
            let Some(go_on) = &mut go_on else { return Err(Unsent::NoRoom) };
            self.0.changed.wait_for(&mut state, SLICE);
            drop(state);
            if !go_on() {
                return Err(Unsent::NoRoom);
            }
        }
    }

    /// Messages that the NATS server has not acknowledged, and their bytes.
    #[must_use]
    pub fn unacknowledged(&self) -> (usize, usize) {
        let state = self.0.state.lock();
        (state.waiting.len(), state.bytes)
    }

    /// Waits until all is acknowledged, or until then, and sends nothing more. How many messages are left.
    pub fn close(&self, until: Instant) -> usize {
        let mut state = self.0.state.lock();
        while !state.waiting.is_empty() && !state.over {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.0.changed.wait_for(&mut state, left);
        }
        self.0.end(&mut state)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.end(&mut self.0.state.lock());
    }
}

impl Shared {
    fn end(&self, state: &mut MutexGuard<'_, State>) -> usize {
        state.over = true;
        state.longest = None;
        // Relaxed: as in `is_connected`.
        self.connected.store(false, Ordering::Relaxed);
        state.bytes = 0;
        self.news.notify_one();
        std::mem::take(&mut state.waiting).len()
    }

    async fn run(&self, options: &Options) {
        // A number that comes twice, because its acknowledgement was lost, is kept once.
        let salt = match random() {
            Ok(salt) => u64::from_ne_bytes(salt),
            Err(error) => {
                self.state.lock().failure = Some(Arc::new(self.place.unavailable(&error)));
                return;
            }
        };
        let mut pauses = Pauses::default();
        while !self.state.lock().over {
            let failure = match self.place.reach(options).await {
                Ok((broker, context, _)) => {
                    pauses = Pauses::default();
                    // What stands beside a message's bytes is counted by the server, too.
                    self.stand(Some(broker.client.server_info().max_payload.saturating_sub(MESSAGE_COST)), None);
                    tokio::select! {
                        failure = self.forward(&context, salt) => failure,
                        () = broker.lost() => self.place.unavailable(&"the connection to the NATS server was lost"),
                    }
                }
                Err(failure) => failure,
            };
            self.stand(None, Some(failure));
            tokio::select! {
                () = sleep(pauses.next()) => {}
                () = self.news.notified() => {}
            }
        }
    }

    fn stand(&self, longest: Option<usize>, failure: Option<ConnectError>) {
        let mut state = self.state.lock();
        state.longest = longest.filter(|_| !state.over);
        // Relaxed: as in `is_connected`.
        self.connected.store(state.longest.is_some(), Ordering::Relaxed);
        state.failure = failure.map(Arc::new);
        drop(state);
        self.changed.notify_all();
    }

    /// Sends what waits, and forgets what is acknowledged, until something fails or it is over.
    async fn forward(&self, context: &Context, salt: u64) -> ConnectError {
        let failed =
            |error: &dyn std::fmt::Display| self.place.unavailable(&format!("a message was not kept: {error}"));
        let mut acknowledgements = FuturesOrdered::new();
        loop {
            while let Some((number, bytes)) = self.at(acknowledgements.len()) {
                let message = PublishMessage::build().payload(bytes.into()).message_id(format!("{salt:016x}-{number}"));
                match context.send_publish(self.place.subject.clone(), message).await {
                    Ok(acknowledgement) => acknowledgements.push_back(acknowledgement.into_future()),
                    Err(error) => return failed(&error),
                }
            }
            if self.state.lock().over {
                return self.place.unavailable(&"it is closed");
            }
            tokio::select! {
                Some(acknowledged) = acknowledgements.next(), if !acknowledgements.is_empty() => match acknowledged {
                    Ok(_) => self.forget_first(),
                    Err(error) => return failed(&error),
                },
                () = self.news.notified() => {}
            }
        }
    }

    /// The message at this place among those that are not acknowledged.
    fn at(&self, place: usize) -> Option<(u64, Vec<u8>)> {
        self.state.lock().waiting.get(place).cloned()
    }

    fn forget_first(&self) {
        let mut state = self.state.lock();
        let gone = state.waiting.pop_front();
        state.bytes -= gone.map_or(0, |(_, bytes)| bytes.len() + MESSAGE_COST);
        drop(state);
        self.changed.notify_all();
    }
}
