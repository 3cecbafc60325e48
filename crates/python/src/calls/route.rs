//! The attempts at a call with streams, and what is kept for sending the call once more.
//!
//! The thread that finds that a server has refused the call, the reading or the sending one, claims the call, begins it
//! on another connection, and sends there what was kept. What is sent meanwhile is kept, too, and goes out behind that.
//! Then all threads use the call's next leg.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use nearcall_core::client::{CallDriver, CallId, Connection as Core, Replay};
use nearcall_core::lock::{Condvar, Mutex};
use nearcall_core::{Body, Compress, Incoming, Kind, Outgoing};
use pyo3::prelude::*;

use crate::gil::greenlets::{runner, wait_elsewhere};
use crate::gil::interpreter::{SIGNAL_CHECK, detach};

/// How long a greenlet sleeps before it looks again whether the claim is over.
const MOMENT: Duration = Duration::from_millis(1);

/// One attempt at a call: the connection, and the call's number there.
pub(crate) struct Leg {
    pub(crate) core: Arc<Core>,
    pub(crate) id: CallId,
    next: OnceLock<Box<Leg>>,
}

impl Leg {
    pub(crate) fn new(core: Arc<Core>, id: CallId) -> Self {
        Self { core, id, next: OnceLock::new() }
    }

    /// Whether there is a later leg.
    pub(crate) fn has_next(&self) -> bool {
        self.next.get().is_some()
    }
}

/// The attempts at a call, and what is kept for the next one.
pub(crate) struct Route {
    first: Leg,
    /// Set when there will certainly be no other leg: from then on nothing is locked. A thread that sees it set also
    /// sees the last leg.
    settled: OnceLock<()>,
    state: Mutex<State>,
    /// Notified when a claim is over.
    unclaimed: Condvar,
}

#[derive(Default)]
struct State {
    kept: Option<Replay>,
    driver: CallDriver,
    /// A thread or task begins the next leg, or decides whether to.
    claimed: bool,
    /// The user has given the call up.
    given_up: bool,
    /// The end of a call that is not sent again, for the reader.
    end: Option<Incoming>,
    /// Why the call could not be sent again, for the readers and senders of an event loop.
    failure: Option<PyErr>,
    futures: Vec<Py<PyAny>>,
}

impl State {
    /// The call will not be sent again.
    fn close(&mut self) {
        (self.kept, self.claimed) = (None, false);
    }
}

/// What to do with an item.
pub(crate) enum Keeping<'a> {
    /// The caller must send the item on this leg.
    Send(&'a Leg),
    /// The thread or task that sends the call again sends the item as well.
    Kept,
    /// The item must wait until the call has been sent again.
    Wait,
}

/// Which thread or task may send a call again that has ended.
pub(crate) enum Claim {
    Ours,
    /// Another thread or task sends what was kept on the next leg, or has sent it.
    Others,
    /// The call is not sent again.
    Nobodys,
}

impl Route {
    pub(crate) fn new(core: Arc<Core>, id: CallId, kept: Option<Replay>, driver: CallDriver) -> Self {
        let settled = OnceLock::new();
        if kept.is_none() {
            settled.get_or_init(|| ());
        }
        let state = Mutex::new(State { kept, driver, ..State::default() });
        Self { first: Leg::new(core, id), settled, state, unclaimed: Condvar::new() }
    }

    /// The latest attempt.
    pub(crate) fn leg(&self) -> &Leg {
        let mut leg = &self.first;
        while let Some(next) = leg.next.get() {
            leg = next;
        }
        leg
    }

    /// Whether something is kept, so that there may be another leg.
    pub(crate) fn keeps(&self) -> bool {
        self.settled.get().is_none()
    }

    /// Whether the call is being sent again.
    pub(crate) fn is_claimed(&self) -> bool {
        self.keeps() && self.state.lock().claimed
    }

    /// Decides what to do with an item that is about to be sent. Keeps the item if there may be another leg.
    pub(crate) fn keep(&self, item: &Outgoing<'_>) -> Keeping<'_> {
        if !self.keeps() {
            return Keeping::Send(self.leg());
        }
        let mut state = self.state.lock();
        let claimed = state.claimed;
        if let Some(kept) = &mut state.kept {
            if claimed && !kept.fits(item.body) {
                return Keeping::Wait;
            }
            if !kept.item(item) {
                // This is too much to keep: the call cannot be sent again.
                state.kept = None;
            }
        }
        if claimed { Keeping::Kept } else { Keeping::Send(self.leg()) }
    }

    /// Notes that the stream is complete. Returns the leg on which to say so; `None` if the thread or task that sends
    /// the call again does that.
    pub(crate) fn end(&self) -> Option<&Leg> {
        if !self.keeps() {
            return Some(self.leg());
        }
        let mut state = self.state.lock();
        if let Some(kept) = &mut state.kept {
            kept.end();
        }
        if state.claimed { None } else { Some(self.leg()) }
    }

    /// For the reader: the server has begun the call, or the call has ended for good. There will be no other leg.
    #[inline]
    pub(crate) fn settle(&self) {
        if self.keeps() {
            self.close();
            self.settled.get_or_init(|| ());
        }
    }

    /// Changes the state, and wakes the threads that wait for the claim if it is over.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state);
        if !state.claimed {
            self.unclaimed.notify_all();
        }
        result
    }

    pub(crate) fn give_up(&self) {
        if self.keeps() {
            self.change(|state| (state.kept, state.given_up) = (None, true));
        }
    }

    /// Leaves the end that a sender has found to the reader.
    pub(crate) fn leave_end(&self, end: Incoming) {
        self.change(|state| {
            state.close();
            state.end = Some(end);
        });
    }

    /// The end that a sender has found.
    pub(crate) fn take_end(&self) -> Option<Incoming> {
        self.state.lock().end.take()
    }

    pub(crate) fn take_failure(&self) -> Option<PyErr> {
        self.state.lock().failure.take()
    }

    /// Decides which thread or task may send a call again that has ended on `leg`.
    pub(crate) fn claim(&self, leg: &Leg) -> Claim {
        let mut state = self.state.lock();
        if state.claimed || leg.has_next() {
            return Claim::Others;
        }
        state.claimed = state.kept.is_some();
        if state.claimed { Claim::Ours } else { Claim::Nobodys }
    }

    /// Gives the claim back, without sending the call again.
    pub(crate) fn unclaim(&self) {
        self.change(|state| state.claimed = false);
    }

    /// The arguments, unless the call was given up.
    pub(crate) fn arguments(&self) -> Option<Vec<u8>> {
        self.state.lock().kept.as_ref().map(|kept| kept.arguments().to_vec())
    }

    /// The frame at `place` behind the arguments. If there is none, `leg` becomes the call's next leg, and the claim is
    /// over.
    pub(crate) fn next_frame(&self, place: usize, leg: &mut Option<Leg>) -> Option<(Kind, Compress, Vec<u8>)> {
        self.change(|state| {
            let frame = state.kept.as_ref().and_then(|kept| kept.frame(place));
            if let Some(Outgoing { kind, compress, body: Body::Whole(bytes), .. }) = frame {
                return Some((kind, compress, bytes.to_vec()));
            }
            self.go_on_from(state, leg);
            None
        })
    }

    /// Makes `leg` the call's next leg, unless that was done before.
    pub(crate) fn go_on(&self, leg: &mut Option<Leg>) {
        self.change(|state| self.go_on_from(state, leg));
    }

    fn go_on_from(&self, state: &mut State, leg: &mut Option<Leg>) {
        if let Some(leg) = leg.take() {
            let set = self.leg().next.set(Box::new(leg));
            debug_assert!(set.is_ok(), "only who has the claim makes a leg");
        }
        state.claimed = false;
    }

    /// Waits until the claim is over, or for a moment.
    pub(crate) fn sleep(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(runner) = runner(py)? {
            return wait_elsewhere(&runner, |_| std::thread::sleep(MOMENT));
        }
        detach(py, || {
            let mut state = self.state.lock();
            if state.claimed {
                self.unclaimed.wait_for(&mut state, SIGNAL_CHECK);
            }
        });
        py.check_signals()
    }

    /// The call will not be sent again.
    pub(crate) fn close(&self) {
        self.change(State::close);
    }

    /// How far the call has come.
    pub(crate) fn driver(&self) -> CallDriver {
        self.state.lock().driver
    }

    pub(crate) fn set_driver(&self, driver: CallDriver) {
        self.state.lock().driver = driver;
    }

    /// Whether the user has given the call up.
    pub(crate) fn is_given_up(&self) -> bool {
        self.state.lock().given_up
    }

    /// Adds a future of the event loop, to be woken when the claim is over.
    pub(crate) fn add_future(&self, future: Py<PyAny>) {
        self.state.lock().futures.push(future);
    }

    pub(crate) fn take_futures(&self) -> Vec<Py<PyAny>> {
        std::mem::take(&mut self.state.lock().futures)
    }

    /// Notes why the call could not be sent again, for the readers and senders of an event loop.
    pub(crate) fn fail(&self, failure: PyErr) {
        // Dropped outside the lock: that may run Python.
        let earlier = self.change(|state| {
            state.close();
            state.failure.replace(failure)
        });
        drop(earlier);
    }
}
