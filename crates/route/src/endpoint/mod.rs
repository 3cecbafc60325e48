//! One receiver of messages: the way to it, and the queue of what could not be sent at once.
//!
//! A sender passes a message to the transport by itself while nothing waits here. Otherwise the message waits behind the
//! others, and the endpoint's own thread ([`Endpoint::work`]) sends it. That thread makes the connection, too, and hands
//! what waits on to the other members of its group while there is none; and while it has nothing to do, it waits for the
//! receiver to hang up.

mod thread;

use std::collections::VecDeque;
use std::ops::AddAssign;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nearcall_core::Failure;
use nearcall_core::client::Passed;
use nearcall_core::lock::{Condvar, Mutex};

use crate::bell::Bell;
use crate::brief::Brief;
use crate::calls::{Calls, InQueue, Place};
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::way::{Standing, Way};

/// How long a sender sleeps before it is asked whether to go on.
const SLICE: Duration = Duration::from_millis(50);
/// What a message in the queue costs beside its bytes.
const MESSAGE_COST: usize = 64;

/// What becomes of a message for which the queue has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// Its sender waits.
    Block,
    /// Its sender is told.
    Error,
    /// The oldest in the queue make room. They are counted.
    DropOldest,
    /// It is dropped, and counted.
    DropNewest,
}

/// What an endpoint did with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offered {
    /// It is sent, or waits in the queue, or was dropped as the policy says.
    Taken,
    /// There is no room.
    Full,
    /// There is no connection.
    Down,
}

/// What has happened at an endpoint so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Messages that the transport has taken.
    pub sent: u64,
    /// Messages that were refused to their senders, and that cannot succeed later: they are too long, for instance.
    pub failed_hard: u64,
    /// Messages that were refused to their senders because the queue was full.
    pub failed_soft: u64,
    /// Messages that were dropped, as the policy says, or because the node was closed.
    pub dropped: u64,
    /// Messages that have waited here and went to another member of the group, since this one was not connected.
    pub handed_on: u64,
    /// Messages in the queue.
    pub queued: usize,
    /// Their bytes.
    pub queued_bytes: usize,
    /// Whether there is a connection.
    pub connected: bool,
}

/// What has happened at two endpoints.
impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        *self = Self {
            sent: self.sent + other.sent,
            failed_hard: self.failed_hard + other.failed_hard,
            failed_soft: self.failed_soft + other.failed_soft,
            dropped: self.dropped + other.dropped,
            handed_on: self.handed_on + other.handed_on,
            queued: self.queued + other.queued,
            queued_bytes: self.queued_bytes + other.queued_bytes,
            connected: self.connected || other.connected,
        };
    }
}

/// A receiver of messages.
pub struct Endpoint {
    name: String,
    way: Way,
    when_full: WhenFull,
    /// Bytes that may wait.
    most: usize,
    state: Mutex<State>,
    /// The queue has room, or something to send.
    changed: Condvar,
    /// Whether messages must queue up behind others. Set and cleared with the lock held.
    behind: AtomicBool,
    sent: AtomicU64,
    failed_hard: AtomicU64,
    failed_soft: AtomicU64,
    dropped: AtomicU64,
    handed_on: AtomicU64,
    /// Rings when there may be room.
    bell: Arc<Bell>,
    /// They are told of connections that are lost.
    calls: Arc<Calls>,
    /// If it is there for replies only.
    pub(crate) brief: Option<Brief>,
    /// Tables in force that name it, and others who use it.
    users: AtomicUsize,
}

/// A message to be sent.
#[derive(Clone, Copy)]
pub(crate) struct Outbound<'a> {
    /// Its bytes, in two pieces.
    pub(crate) pieces: &'a [&'a [u8]; 2],
    /// All members of the group that it is for, if it may go to another one.
    pub(crate) group: &'a [&'a Arc<Endpoint>],
    /// The call that waits for the reply to it.
    pub(crate) call: Option<&'a Arc<Place>>,
}

impl Outbound<'_> {
    /// Its bytes.
    pub(crate) fn len(&self) -> usize {
        self.pieces[0].len() + self.pieces[1].len()
    }
}

/// A message in the queue.
struct Waiting {
    bytes: Vec<u8>,
    /// The members of its group. Weak: two of them may have messages for each other.
    group: Box<[Weak<Endpoint>]>,
    /// The call that waits for the reply to it.
    call: Option<InQueue>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Waiting>,
    bytes: usize,
    /// Messages that the thread has taken out of the queue and not sent yet.
    sending: usize,
    /// What wakes the thread while it waits for the receiver to hang up.
    event: Option<Arc<OwnedFd>>,
    /// Why there is no connection.
    failure: Option<Failure>,
    /// The thread has tried to connect, with whatever result.
    tried: bool,
    /// No messages are taken any more.
    closing: bool,
    /// Until when the queue may still be sent, once it is closing.
    until: Option<Instant>,
}

impl Waiting {
    /// What it takes of the queue's bytes.
    fn len(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.group) + MESSAGE_COST
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Endpoint {
    pub(crate) fn new(
        name: &str,
        way: Way,
        when_full: WhenFull,
        most: usize,
        bell: Arc<Bell>,
        calls: Arc<Calls>,
        brief: Option<Brief>,
    ) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            way,
            when_full,
            most,
            state: Mutex::default(),
            changed: Condvar::new(),
            behind: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            failed_hard: AtomicU64::new(0),
            failed_soft: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            handed_on: AtomicU64::new(0),
            bell,
            calls,
            brief,
            users: AtomicUsize::new(0),
        })
    }

    /// Its name in the table.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a message can be sent to it now.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        matches!(self.way.standing(), Standing::Ready(_))
    }

    /// What has happened so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let (mut queued, mut queued_bytes) = {
            let state = self.state.lock();
            (state.queue.len() + state.sending, state.bytes)
        };
        let (unacknowledged, their_bytes) = self.way.unacknowledged();
        queued += unacknowledged;
        queued_bytes += their_bytes;
        // Relaxed: numbers to be shown.
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Counts {
            sent: read(&self.sent).saturating_sub(unacknowledged as u64),
            failed_hard: read(&self.failed_hard),
            failed_soft: read(&self.failed_soft),
            dropped: read(&self.dropped),
            handed_on: read(&self.handed_on),
            queued,
            queued_bytes,
            connected: self.is_connected(),
        }
    }

    /// Why there is no connection, as far as is known.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        if self.is_connected() { None } else { self.state.lock().failure.clone() }
    }

    /// Takes a message if the endpoint is connected and has room. With `go_on` it waits for room in the
    /// transport, and asks before each short wait whether to.
    ///
    /// # Errors
    /// It can never be sent to this endpoint; nothing was sent.
    pub(crate) fn offer(
        &self,
        message: Outbound<'_>,
        go_on: Option<&mut dyn FnMut() -> bool>,
    ) -> Result<Offered, Failure> {
        let Standing::Ready(ready) = self.way.standing() else { return Ok(Offered::Down) };
        // Acquire: what was queued before is sent before.
        if !self.behind.load(Ordering::Acquire) {
            let waits = go_on.is_some();
            match ready.send(message.pieces, go_on) {
                Ok(Passed::Sent | Passed::Begun) => {
                    // Relaxed: a number to be shown.
                    self.sent.fetch_add(1, Ordering::Relaxed);
                    if let Some(call) = message.call {
                        ready.note_sent(call);
                    }
                    return Ok(Offered::Taken);
                }
                // The transport is a queue, too, and who may wait needs no other.
                Ok(Passed::NoRoom) if waits || self.when_full == WhenFull::Block => return Ok(Offered::Full),
                Ok(Passed::NoRoom) => {}
                Err(failure) if ready.is_usable() => {
                    // Relaxed: likewise.
                    self.failed_hard.fetch_add(1, Ordering::Relaxed);
                    return Err(failure);
                }
                Err(_) => {
                    self.wake(&self.state.lock()); // the thread makes the next connection
                    return Ok(Offered::Down);
                }
            }
        }
        Ok(self.queue_up(message, None))
    }

    /// Takes a message, whether there is a connection or not, and does what the policy says if there is no room.
    pub(crate) fn insist(&self, message: Outbound<'_>) -> Offered {
        self.queue_up(message, Some(self.when_full))
    }

    /// Waits until the endpoint's thread has tried to connect once, or until then.
    pub(crate) fn await_attempt(&self, until: Instant) {
        let mut state = self.state.lock();
        while !state.tried && !state.closing {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            self.changed.wait_for(&mut state, left);
        }
    }

    /// Waits until the queue may have room, or until then. Whether it is worth another try.
    pub(crate) fn await_room(&self, len: usize, until: Option<Instant>) -> bool {
        let mut state = self.state.lock();
        let now = Instant::now();
        if until.is_some_and(|until| until <= now) || state.closing {
            return false;
        }
        if !self.fits(&state, len) {
            self.changed.wait_for(&mut state, until.map_or(SLICE, |until| SLICE.min(until - now)));
        }
        true
    }

    /// Counts a message that its sender did not get rid of.
    pub(crate) fn count_refused(&self) {
        // Relaxed: a number to be shown.
        self.failed_soft.fetch_add(1, Ordering::Relaxed);
        if let Some(brief) = &self.brief {
            brief.note_refused(self.sent.load(Ordering::Relaxed));
        }
    }

    /// Whether it is worth waiting until a reply has room: its receiver is there, and has not taken anything since a
    /// reply was refused.
    pub(crate) fn makes_room(&self) -> bool {
        // Relaxed: a hint.
        let sent = || self.sent.load(Ordering::Relaxed);
        self.is_connected() && self.brief.as_ref().is_none_or(|brief| !brief.was_refused_at(sent()))
    }

    /// It has ended, if it is there for replies only: there may be another one.
    pub(crate) fn leave(&self) {
        if let Some(brief) = &self.brief {
            brief.leave(&self.name);
        }
    }

    /// Has the thread look again. With the lock held.
    fn wake(&self, state: &State) {
        self.changed.notify_all();
        if let Some(event) = &state.event {
            // It can fail only if it is as readable as can be.
            let _ = rustix::io::write(event, &1u64.to_ne_bytes());
        }
    }

    /// How senders are treated when there is no room.
    pub(crate) fn when_full(&self) -> WhenFull {
        self.when_full
    }

    /// Puts a message into the queue, if there is room. Otherwise, and if no more are taken, it does what the policy says;
    /// without one somebody else may be asked.
    fn queue_up(&self, message: Outbound<'_>, when_full: Option<WhenFull>) -> Offered {
        let len = message.len() + size_of_val(message.group);
        // What calls know of it has a lock of its own, which this thread does not wait for with that of the queue.
        let call = message.call.map(InQueue::new);
        let mut dropped = Vec::new();
        let mut state = self.state.lock();
        if state.closing {
            // There may be another one for replies.
            return if when_full.is_some() && self.brief.is_none() { self.drop_one() } else { Offered::Down };
        }
        if !self.fits(&state, len) {
            match when_full {
                None | Some(WhenFull::Block | WhenFull::Error) => return Offered::Full,
                Some(WhenFull::DropNewest) => return self.drop_one(),
                Some(WhenFull::DropOldest) => {
                    while !self.fits(&state, len)
                        && let Some(oldest) = state.queue.pop_front()
                    {
                        self.take_bytes(&mut state, oldest.len());
                        self.drop_one();
                        dropped.push(oldest);
                    }
                }
            }
        }
        state.bytes += len + MESSAGE_COST;
        if let Some(brief) = &self.brief {
            brief.add_bytes(len + MESSAGE_COST);
        }
        let wakes = state.queue.is_empty() && state.sending == 0;
        let group = message.group.iter().map(|member| Arc::downgrade(member)).collect();
        state.queue.push_back(Waiting { bytes: message.pieces.concat(), group, call });
        // Release: before who sees that nothing waits sends past this.
        self.behind.store(true, Ordering::Release);
        if wakes {
            self.wake(&state);
        }
        drop(state);
        Offered::Taken
    }

    /// Some of the queue's bytes are gone.
    fn take_bytes(&self, state: &mut State, bytes: usize) {
        state.bytes -= bytes;
        if let Some(brief) = &self.brief {
            brief.take_bytes(bytes);
        }
    }

    fn drop_one(&self) -> Offered {
        // Relaxed: a number to be shown.
        self.dropped.fetch_add(1, Ordering::Relaxed);
        Offered::Taken
    }

    /// Whether a message has room. One always has: else a long one would never be sent.
    fn fits(&self, state: &State, len: usize) -> bool {
        let own = state.queue.is_empty() && state.sending == 0 || state.bytes + len + MESSAGE_COST <= self.most;
        own && self.brief.as_ref().is_none_or(|brief| brief.fits(len + MESSAGE_COST))
    }

    /// One more uses the endpoint.
    pub(crate) fn begin_use(&self) {
        // Relaxed: only the holder of the node's lock changes and reads it.
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// One less uses it. Whether that was the last.
    pub(crate) fn end_use(&self) -> bool {
        // Relaxed: likewise.
        self.users.fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// Takes no more messages, and ends the thread once what waits is sent, at the latest then.
    pub(crate) fn close(&self, until: Instant) {
        let mut state = self.state.lock();
        state.closing = true;
        state.until = Some(until);
        self.wake(&state);
    }
}
