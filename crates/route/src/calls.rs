//! Messages that wait for replies: a reply has the transaction number of its message. Who waits is also told when all who
//! have got the message are gone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_core::client::Connection;
use nearcall_core::lock::{Condvar, Mutex};
use smallvec::SmallVec;

use crate::arrived::Arrived;
use crate::bell::Bell;
use crate::message::{FAILURE, Transaction};
use crate::rmr::frame::without_zeros;
use crate::sync::{AtomicUsize, Ordering};

/// How long a reply is waited for when its sender is gone: it may have sent it before, over another connection.
const LATE: Duration = Duration::from_millis(500);

/// All who wait for replies. Zeros at the end of a number say nothing: RMR fills it up with them.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    waiting: Mutex<HashMap<Transaction, Arc<Place>>>,
    /// How many there are, so that a message looks for its call only if there is one.
    count: AtomicUsize,
}

/// Where one of them waits.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// The number as the caller gave it.
    transaction: Transaction,
    state: Mutex<State>,
    come: Condvar,
    /// What rings if the reply is awaited in an event loop.
    bell: Option<Arc<Bell>>,
}

#[derive(Debug, Default)]
struct State {
    reply: Option<Arrived>,
    /// What the first receiver says that has failed to reply, and how many have.
    failure: Option<Arrived>,
    failures: usize,
    /// The connections over which the message went.
    over: SmallVec<[Arc<Connection>; 1]>,
    /// It went to somebody whose end is not noticed: a program of RMR.
    unwatched: bool,
    /// In how many queues it waits.
    queued: usize,
    /// Since when there is nobody left who could reply.
    lost: Option<Instant>,
}

/// What has become of a call.
#[derive(Debug)]
pub enum Outcome {
    /// The reply has come; or all who have got the message have failed, and this is what the first of them says.
    Replied(Arrived),
    /// There is nothing yet.
    Nothing,
    /// All who have got the message are gone, and no reply has come.
    Lost,
}

/// One who waits for a reply, until this is dropped.
#[derive(Debug)]
pub struct Waiter {
    calls: Arc<Calls>,
    transaction: Transaction,
    place: Arc<Place>,
}

impl Calls {
    /// Waits for the reply with this number from now on; `bell` rings if it is awaited in an event loop. `None` if
    /// somebody waits for that already.
    pub(crate) fn begin(self: &Arc<Self>, transaction: Transaction, bell: Option<Arc<Bell>>) -> Option<Waiter> {
        use std::collections::hash_map::Entry;
        let key = Transaction::from_slice(without_zeros(&transaction));
        let place = Arc::new(Place { transaction, bell, ..Place::default() });
        let mut waiting = self.waiting.lock();
        let Entry::Vacant(vacant) = waiting.entry(key.clone()) else { return None };
        vacant.insert(Arc::clone(&place));
        // Release: who sees the count finds the entry. The message is sent later, so its reply finds both.
        self.count.fetch_add(1, Ordering::Release);
        drop(waiting);
        Some(Waiter { calls: Arc::clone(self), transaction: key, place })
    }

    /// Whether somebody waits for the reply with this number.
    pub(crate) fn expects(&self, transaction: &[u8]) -> bool {
        // Acquire: after the Release of `begin`.
        self.count.load(Ordering::Acquire) != 0 && self.waiting.lock().contains_key(without_zeros(transaction))
    }

    /// Whether a message of this type must be [given](Self::give) to them first: somebody waits for a reply, or it is one
    /// that nobody else may get.
    #[inline]
    pub(crate) fn are_asked(&self, kind: i32) -> bool {
        // Acquire: after the Release of `begin`.
        self.count.load(Ordering::Acquire) != 0 || kind == FAILURE
    }

    /// Gives a message to who waits for it. Gives it back if nobody does, or if that one has a reply already. That
    /// somebody has failed is told to who waits, and to nobody else.
    pub(crate) fn give(&self, arrived: Arrived) -> Option<Arrived> {
        let is_failure = arrived.head.kind == FAILURE;
        // Acquire: after the Release of `begin`.
        let is_awaited = self.count.load(Ordering::Acquire) != 0 && !arrived.transaction().is_empty();
        let place = if is_awaited { self.place(arrived.transaction()) } else { None };
        let Some(place) = place else { return (!is_failure).then_some(arrived) };
        let mut state = place.state.lock();
        if state.reply.is_some() {
            return (!is_failure).then_some(arrived);
        }
        if is_failure {
            state.failures += 1;
            state.failure.get_or_insert(arrived);
        } else {
            state.reply = Some(arrived);
        }
        let is_over = !is_failure || state.have_all_failed();
        drop(state);
        if is_over {
            place.ring();
        }
        None
    }

    fn place(&self, transaction: &[u8]) -> Option<Arc<Place>> {
        self.waiting.lock().get(without_zeros(transaction)).cloned()
    }

    /// Who waits for the reply to a message that is to be sent, if anybody does.
    #[inline]
    pub(crate) fn of(&self, transaction: &[u8]) -> Option<Arc<Place>> {
        // Relaxed: who waits has begun to in the thread that sends.
        if transaction.is_empty() || self.count.load(Ordering::Relaxed) == 0 { None } else { self.place(transaction) }
    }

    /// A connection is lost: who waits for a reply only from there waits no more.
    pub(crate) fn lost(&self, connection: &Arc<Connection>) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let all: Vec<_> = self.waiting.lock().values().cloned().collect();
        for place in all {
            let mut state = place.state.lock();
            let before = state.over.len();
            state.over.retain(|over| !Arc::ptr_eq(over, connection));
            let is_over = state.over.len() < before && (state.note_lost() || state.have_all_failed());
            drop(state);
            if is_over {
                place.ring();
            }
        }
    }
}

impl State {
    /// Whether all who have got the message have said that they have failed.
    fn have_all_failed(&self) -> bool {
        self.failure.is_some() && self.failures >= self.over.len() && self.queued == 0 && !self.unwatched
    }

    /// Whether there is nobody left who could reply.
    fn note_lost(&mut self) -> bool {
        let is_lost = self.over.is_empty() && !self.unwatched && self.queued == 0 && self.reply.is_none();
        if is_lost {
            self.lost = Some(Instant::now());
        }
        is_lost
    }

    fn outcome(&mut self) -> Outcome {
        let failure = if self.have_all_failed() { self.failure.take() } else { None };
        match self.reply.take().or(failure) {
            Some(arrived) => Outcome::Replied(arrived),
            None if self.lost.is_some_and(|lost| lost + LATE <= Instant::now()) => Outcome::Lost,
            None => Outcome::Nothing,
        }
    }
}

impl Place {
    /// The message has gone over a connection.
    pub(crate) fn was_sent_over(&self, connection: &Arc<Connection>) {
        let mut state = self.state.lock();
        if connection.is_dead() {
            // All who wait may have been told already.
            state.note_lost();
            drop(state);
            self.ring();
        } else {
            state.lost = None;
            state.over.push(Arc::clone(connection));
        }
    }

    /// The message has gone to somebody whose end is not noticed.
    pub(crate) fn was_sent_unwatched(&self) {
        let mut state = self.state.lock();
        state.lost = None;
        state.unwatched = true;
    }

    fn ring(&self) {
        match &self.bell {
            Some(bell) => bell.ring_for_reply(self.transaction.clone()),
            None => {
                self.come.notify_all();
            }
        }
    }
}

/// A call whose message waits in a queue, until this is dropped.
#[derive(Debug)]
pub(crate) struct InQueue(Arc<Place>);

impl InQueue {
    pub(crate) fn new(place: &Arc<Place>) -> Self {
        let mut state = place.state.lock();
        state.queued += 1;
        state.lost = None;
        drop(state);
        Self(Arc::clone(place))
    }

    pub(crate) fn place(&self) -> &Arc<Place> {
        &self.0
    }
}

impl Drop for InQueue {
    fn drop(&mut self) {
        self.0.state.lock().queued -= 1;
    }
}

impl Waiter {
    /// What has become of the call.
    #[must_use]
    pub fn take(&self) -> Outcome {
        self.place.state.lock().outcome()
    }

    /// Until when the reply is waited for at most, if all who have got the message are gone.
    #[must_use]
    pub fn ends(&self) -> Option<Instant> {
        self.place.state.lock().lost.map(|lost| lost + LATE)
    }

    /// Waits for the reply until then.
    #[must_use]
    pub fn wait(&self, until: Option<Instant>) -> Outcome {
        let mut state = self.place.state.lock();
        loop {
            let outcome = state.outcome();
            if !matches!(outcome, Outcome::Nothing) {
                return outcome;
            }
            let ends = state.lost.map(|lost| lost + LATE);
            let Some(next) = [until, ends].into_iter().flatten().min() else {
                self.place.come.wait(&mut state);
                continue;
            };
            let now = Instant::now();
            if until.is_some_and(|until| until <= now) {
                return outcome;
            }
            self.place.come.wait_for(&mut state, next.saturating_duration_since(now));
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let removed = self.calls.waiting.lock().remove(&self.transaction);
        // Relaxed: a count that is too high for a moment only makes somebody look.
        self.calls.count.fetch_sub(1, Ordering::Relaxed);
        drop(removed);
    }
}
