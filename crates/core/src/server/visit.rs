//! A client's stay: what belongs to it, and its first and last moment, which are work for a worker like a call.
//!
//! A client whose arrival is somebody's business is not read from until that is through: its calls wait where they are, and
//! nothing else does. Its departure comes after its last call. Where nobody asks for either, both cost nothing.

use crate::sync::{AtomicU64, AtomicUsize, Ordering};
use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use nearcall_platform::descriptors;
use nearcall_platform::lock::Mutex;

use super::connection::ServerConnection;
use super::request::Request;

/// What belongs to one client; only whoever put it there knows what it is.
pub type Belongings = Box<dyn Any + Send>;

/// Which moments of a client's stay are somebody's business.
#[derive(Debug, Clone, Copy, Default)]
pub struct Announced {
    /// Its arrival, before its first call.
    pub arrivals: bool,
    /// Its departure, after its last call, also of a client to which nothing belongs.
    pub departures: bool,
}

/// Something for a worker.
#[derive(Debug)]
pub enum Work {
    /// A call to be handled.
    Call(Box<Request>),
    /// A client has come or gone.
    Visit(Visit),
}

/// A moment of a client's stay, until somebody has dealt with it.
#[derive(Debug)]
pub struct Visit {
    connection: Arc<ServerConnection>,
    moment: Moment,
    begun: bool,
    visits: Arc<Visits>,
}

/// Which one.
#[derive(Debug)]
pub enum Moment {
    /// Before the first call.
    Arrival,
    /// After the last, with what belonged to the client.
    Departure(Option<Belongings>),
}

/// The arrivals and departures of a server that nobody has dealt with.
#[derive(Debug)]
pub(super) struct Visits {
    pub(super) announced: Announced,
    /// For whoever receives to hand out.
    waiting: Mutex<Vec<Visit>>,
    /// Clients that may be read from now.
    admitted: Mutex<Vec<Arc<ServerConnection>>>,
    /// Those that wait, and those that are dealt with just now.
    pending: AtomicUsize,
    /// Wakes whoever receives.
    wake: Arc<OwnedFd>,
}

impl Visits {
    pub(super) fn new(announced: Announced, wake: Arc<OwnedFd>) -> Self {
        Self { announced, waiting: Mutex::default(), admitted: Mutex::default(), pending: AtomicUsize::new(0), wake }
    }

    fn push(self: &Arc<Self>, connection: Arc<ServerConnection>, moment: Moment) {
        // Release: who stops the server and finds none pending finds the calls before it through.
        self.pending.fetch_add(1, Ordering::Release);
        self.keep(Visit { connection, moment, begun: false, visits: Arc::clone(self) });
        descriptors::signal(&self.wake);
    }

    /// Keeps one for whoever asks next.
    fn keep(&self, visit: Visit) {
        self.waiting.lock().push(visit);
    }

    /// Those that nobody deals with yet.
    pub(super) fn take(&self) -> Vec<Visit> {
        std::mem::take(&mut *self.waiting.lock())
    }

    pub(super) fn take_admitted(&self) -> Vec<Arc<ServerConnection>> {
        std::mem::take(&mut *self.admitted.lock())
    }

    pub(super) fn is_idle(&self) -> bool {
        // Acquire: as in `push`.
        self.pending.load(Ordering::Acquire) == 0
    }
}

impl Work {
    /// The server ends: a call is not begun any more, nor is an arrival announced; a departure is.
    pub(super) fn give_up(self) {
        if let Self::Visit(visit) = self
            && matches!(visit.moment, Moment::Departure(_))
        {
            let visits = Arc::clone(&visit.visits);
            visits.keep(visit);
        }
    }
}

impl Visit {
    /// Whose it is.
    #[must_use]
    pub fn connection(&self) -> &ServerConnection {
        &self.connection
    }

    /// To be asked once, by whoever deals with it.
    pub fn begin(&mut self) -> Moment {
        self.begun = true;
        match &mut self.moment {
            Moment::Arrival => Moment::Arrival,
            Moment::Departure(belongings) => Moment::Departure(belongings.take()),
        }
    }
}

/// It was dealt with.
impl Drop for Visit {
    fn drop(&mut self) {
        if matches!(self.moment, Moment::Arrival) {
            if !self.begun {
                // Who never came does not leave.
                drop(self.connection.stay.end());
            }
            self.visits.admitted.lock().push(Arc::clone(&self.connection));
            descriptors::signal(&self.visits.wake);
            self.connection.one_finished();
        }
        // Release: as in `push`.
        self.visits.pending.fetch_sub(1, Ordering::Release);
    }
}

/// One client's stay.
#[derive(Debug, Default)]
pub(super) struct Stay {
    /// Calls that are through, and the arrival.
    finished: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) enum State {
    /// Nothing belongs to the client yet.
    #[default]
    Nothing,
    Kept(Belongings),
    /// The client is gone, and its last call is through.
    Over,
}

/// What belongs to a client, as somebody finds it.
#[derive(Debug)]
pub enum Found<R> {
    /// Nothing yet.
    Nothing,
    /// This was made of it.
    Kept(R),
    /// It is gone, with the client and its last call.
    Over,
}

impl Stay {
    /// Counts one more call that is through; how many that makes.
    pub(super) fn count(&self) -> u64 {
        // SeqCst: whoever finishes a call counts it and then looks whether the client is gone; the client's end is noted
        // before the count is looked at. One of the two sees the other.
        self.finished.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(super) fn finished(&self) -> u64 {
        // SeqCst: as above.
        self.finished.load(Ordering::SeqCst)
    }

    /// Ends it. How it was before.
    pub(super) fn end(&self) -> State {
        std::mem::replace(&mut *self.state.lock(), State::Over)
    }
}

impl ServerConnection {
    /// Looks at what belongs to the client. `look` is called with a lock held.
    pub fn belongings<R>(&self, look: impl FnOnce(&(dyn Any + Send)) -> R) -> Found<R> {
        match &*self.stay.state.lock() {
            State::Nothing => Found::Nothing,
            State::Kept(belongings) => Found::Kept(look(&**belongings)),
            State::Over => Found::Over,
        }
    }

    /// Keeps something until the client is gone and its last call is through. Comes back if there is something already.
    ///
    /// # Errors
    /// What was to be kept.
    pub fn keep(&self, belongings: Belongings) -> Result<(), Belongings> {
        let mut state = self.stay.state.lock();
        if !matches!(*state, State::Nothing) {
            return Err(belongings);
        }
        *state = State::Kept(belongings);
        Ok(())
    }

    /// The client is in. Whether it is to be read from at once: not if its arrival is somebody's business.
    pub(super) fn arrive(self: &Arc<Self>) -> bool {
        if self.visits.announced.arrivals {
            self.count_arrival();
            self.visits.push(Arc::clone(self), Moment::Arrival);
        }
        !self.visits.announced.arrivals
    }

    /// A call is through, or the arrival.
    #[inline]
    pub(super) fn one_finished(self: &Arc<Self>) {
        let finished = self.stay.count();
        if self.is_gone() {
            self.look_whether_over(finished);
        }
    }

    /// The client is gone: if its last call is through, its stay is over.
    #[cold]
    pub(super) fn look_whether_over(self: &Arc<Self>, finished: u64) {
        if finished != self.arrived() {
            return;
        }
        let belongings = match self.stay.end() {
            State::Kept(belongings) => Some(belongings),
            State::Nothing if self.visits.announced.departures => None,
            State::Nothing | State::Over => return,
        };
        self.visits.push(Arc::clone(self), Moment::Departure(belongings));
    }
}
