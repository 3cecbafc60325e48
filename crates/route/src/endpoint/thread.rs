//! What an endpoint's own thread does: it connects, sends what waits, and hands it on to others of the group while there is no
//! connection.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nearcall_core::Failure;
use nearcall_core::client::{Connection, Passed};
use nearcall_core::lock::MutexGuard;
use rustix::event::{EventfdFlags, eventfd};

use super::{Endpoint, Offered, Outbound, SLICE, State, Waiting};
use crate::brief::Life;
use crate::calls::InQueue;
use crate::sync::Ordering;
use crate::way::{Ready, Standing};

/// How often a server that is not there is looked for, at most.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// How many messages of the queue are sent before others may use it again.
const AT_ONCE: usize = 64;
/// How long a receiver of replies may take nothing while some wait, before it gets no more.
const REPLIES_STUCK: Duration = Duration::from_secs(5);

impl Endpoint {
    /// Makes the connection, and sends what waits, until the endpoint is closed. For a thread of its own.
    pub fn work(&self) {
        let (mut last, mut event): (Option<Arc<Connection>>, _) = (None, None);
        let mut life = self.brief.as_ref().map(|_| Life::begin());
        let mut state = self.state.lock();
        loop {
            if state.closing && (state.queue.is_empty() || state.until.is_none_or(|until| until <= Instant::now())) {
                break;
            }
            let standing = self.way.standing();
            let connection = standing.connection().cloned();
            if let Some(lost) = last.take_if(|last| connection.as_ref().is_none_or(|now| !Arc::ptr_eq(last, now))) {
                drop(state);
                self.calls.lost(&lost);
                state = self.state.lock();
            }
            // Relaxed: a hint.
            if let Some(life) = &mut life
                && life.is_over(standing.is_ready(), self.sent.load(Ordering::Relaxed), state.queue.is_empty())
            {
                break;
            }
            last = connection;
            let end = life.as_ref().map(Life::end);
            match standing {
                Standing::Down => {
                    drop(state);
                    let failure = self.connect();
                    state = self.state.lock();
                    state.failure = failure;
                    if !state.tried {
                        state.tried = true;
                        self.changed.notify_all();
                    }
                    if state.failure.is_some() {
                        state = self.hand_on(state);
                        let pause = if state.closing { SLICE } else { LOOK_INTERVAL };
                        self.changed.wait_for(&mut state, pause);
                    }
                }
                _ if state.queue.is_empty() => state = self.rest(state, &mut event, last.as_ref(), end),
                Standing::Stranger => {
                    state.failure = Some(self.no_node());
                    self.changed.wait_for(&mut state, LOOK_INTERVAL);
                }
                Standing::Ready(ready) => state = self.send_first(state, &ready),
            }
        }
        state.closing = true;
        let left = std::mem::take(&mut state.queue);
        let (bytes, until) = (state.bytes, state.until);
        self.take_bytes(&mut state, bytes);
        drop(state);
        // Relaxed: numbers to be shown.
        self.dropped.fetch_add(left.len() as u64, Ordering::Relaxed);
        self.changed.notify_all();
        self.bell.ring_for_room();
        let lost = self.way.close(until) as u64;
        self.sent.fetch_sub(lost, Ordering::Relaxed);
        self.dropped.fetch_add(lost, Ordering::Relaxed);
        self.leave();
    }

    /// Waits until there is something to do, or until then.
    fn rest<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        event: &mut Option<Arc<OwnedFd>>,
        connection: Option<&Arc<Connection>>,
        until: Option<Instant>,
    ) -> MutexGuard<'a, State> {
        if let Some(connection) = connection {
            return self.listen(state, event, connection, until);
        }
        match until {
            None => self.changed.wait(&mut state),
            Some(until) => self.changed.wait_for(&mut state, until.saturating_duration_since(Instant::now())),
        }
        state
    }

    /// Waits until there is something to do, the receiver has hung up, or until then. The event is made when it is needed.
    fn listen<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        event: &mut Option<Arc<OwnedFd>>,
        connection: &Connection,
        until: Option<Instant>,
    ) -> MutexGuard<'a, State> {
        if event.is_none() {
            *event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok().map(Arc::new);
        }
        let Some(event) = event else {
            // There are no descriptors left: it looks once in a while.
            self.changed.wait_for(&mut state, LOOK_INTERVAL);
            let _ = connection.stands();
            return state;
        };
        state.event = Some(Arc::clone(event));
        drop(state);
        let listened = connection.outlasts(event.as_fd(), until);
        let mut state = self.state.lock();
        state.event = None;
        // It can fail only if it is not readable.
        let _ = rustix::io::read(event, &mut [0; 8]);
        if listened.is_err() {
            self.changed.wait_for(&mut state, LOOK_INTERVAL);
        }
        state
    }

    /// Sends the first messages of the queue.
    fn send_first<'a>(&'a self, mut state: MutexGuard<'a, State>, ready: &Ready) -> MutexGuard<'a, State> {
        let most = state.queue.len().min(AT_ONCE);
        let mut batch: VecDeque<Waiting> = state.queue.drain(..most).collect();
        state.sending = most;
        drop(state);
        let patience = self.brief.as_ref().map(|_| Instant::now() + REPLIES_STUCK);
        let mut go_on = || {
            let mut state = self.state.lock();
            if patience.is_some_and(|patience| patience <= Instant::now()) {
                // It takes no replies, so it gets no more.
                state.closing = true;
            }
            !state.closing || state.until.is_some_and(|until| until > Instant::now())
        };
        let (mut done, mut failure) = (0, None);
        while let Some(message) = batch.front() {
            match ready.send(&[&message.bytes, &[]], Some(&mut go_on)) {
                // Relaxed, both: numbers to be shown.
                Ok(Passed::Sent | Passed::Begun) => {
                    self.sent.fetch_add(1, Ordering::Relaxed);
                    if let Some(call) = &message.call {
                        ready.note_sent(call.place());
                    }
                }
                // The node ends, or the connection is lost: the message waits for the next one.
                Ok(Passed::NoRoom) => break,
                Err(_) if !ready.is_usable() => break,
                Err(error) => {
                    self.failed_hard.fetch_add(1, Ordering::Relaxed);
                    failure = Some(error);
                }
            }
            done += batch.pop_front().map_or(0, |message| message.len());
        }
        let mut state = self.put_back(batch, done);
        state.failure = failure.or(state.failure.take());
        state
    }

    /// Puts messages back before all others, after some of `done` bytes have gone.
    fn put_back(&self, mut batch: VecDeque<Waiting>, done: usize) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.sending = 0;
        self.take_bytes(&mut state, done);
        batch.append(&mut state.queue);
        state.queue = batch;
        if state.queue.is_empty() {
            // Release: what was queued is sent.
            self.behind.store(false, Ordering::Release);
        }
        self.changed.notify_all();
        self.bell.ring_for_room();
        state
    }

    /// Gives what waits to other members of its group, as long as they take it. A member that is not connected may be gone
    /// for ever, and its messages are nobody else's in particular: that they take turns says so.
    fn hand_on<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if state.queue.iter().all(|message| message.group.is_empty()) {
            return state;
        }
        // Without the lock: another member may do the same at this moment.
        let batch = std::mem::take(&mut state.queue);
        state.sending = batch.len();
        drop(state);
        let (mut done, mut left, mut full) = (0, VecDeque::new(), false);
        for message in batch {
            // Those behind one that nobody takes wait, too, or they would overtake it.
            if !full && self.goes_elsewhere(&message) {
                done += message.len();
                // Relaxed: a number to be shown.
                self.handed_on.fetch_add(1, Ordering::Relaxed);
            } else {
                full |= !message.group.is_empty();
                left.push_back(message);
            }
        }
        self.put_back(left, done)
    }

    /// Whether another member of its group has taken a message.
    fn goes_elsewhere(&self, message: &Waiting) -> bool {
        let members: Vec<Arc<Self>> = message.group.iter().filter_map(Weak::upgrade).collect();
        let group: Vec<&Arc<Self>> = members.iter().collect();
        let call = message.call.as_ref().map(InQueue::place);
        let outbound = Outbound { pieces: &[&message.bytes, &[]], group: &group, call };
        let others = members.iter().filter(|member| !std::ptr::eq(&raw const ***member, self));
        // One that can never send it leaves it here, as if it were full: the next one is asked.
        others.into_iter().any(|member| member.offer(outbound, None) == Ok(Offered::Taken))
    }

    /// Connects, for a moment. Returns why it could not.
    fn connect(&self) -> Option<Failure> {
        let until = Instant::now() + LOOK_INTERVAL;
        let mut go_on = || !self.state.lock().closing;
        let connected = self.way.connect(until, &mut go_on);
        connected.err().or_else(|| matches!(self.way.standing(), Standing::Stranger).then(|| self.no_node()))
    }

    fn no_node(&self) -> Failure {
        let text = format!("{} is no node of the router: its server does not serve nearcall.Route", self.name);
        Failure::new(Failure::FAILED_PRECONDITION, text)
    }
}
