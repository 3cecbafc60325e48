//! Streams that a server has refused without having begun with them are sent again from their start.
//!
//! Whoever finds the refusal, the thread that reads or the one that sends, claims the call, begins it on another connection,
//! and sends there what was kept; what is sent meanwhile is kept, too, and goes out behind it. Then the call's next leg is
//! there for everybody. An event loop leaves it to a task, and its readers and senders wait until it is through.

use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use nearcall_core::client::{CallId, Connection as Core, Kept, Tally};
use nearcall_core::lock::Mutex;
use nearcall_core::{Body, Compress, Failure, Incoming, Kind, Outgoing};
use pyo3::prelude::*;

use crate::callback::Callback;
use crate::calling::{Again, pause};
use crate::interpreter::detach;
use crate::opening::Anew;
use crate::outcome::name_failure;
use crate::stream::Stream;
use crate::waiting::{Owner, wake};

/// One attempt at a call: over which connection, and as which call there.
pub(crate) struct Leg {
    pub(crate) core: Arc<Core>,
    pub(crate) id: CallId,
    next: OnceLock<Box<Leg>>,
}

impl Leg {
    fn new(core: Arc<Core>, id: CallId) -> Self {
        Self { core, id, next: OnceLock::new() }
    }
}

/// The attempts at a call, and what is kept for the next one.
pub(crate) struct Route {
    first: Leg,
    /// Set when there is no other leg for certain: from then on nothing is locked. Who sees it sees the last leg.
    settled: OnceLock<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    kept: Option<Kept>,
    tally: Tally,
    /// Somebody begins the next leg, or looks whether to.
    claimed: bool,
    /// The user has given the call up.
    given_up: bool,
    /// The end of a call that is not sent again, for who reads.
    end: Option<Incoming>,
    /// Why it could not be sent again, for who waits in an event loop.
    failure: Option<PyErr>,
    /// They wait until the claim is over.
    threads: Vec<Thread>,
    futures: Vec<Py<PyAny>>,
}

impl State {
    /// It is not sent again.
    fn close(&mut self) {
        (self.kept, self.claimed) = (None, false);
    }
}

/// What becomes of an item.
pub(crate) enum Keeping<'a> {
    /// It is to be sent there.
    Send(&'a Leg),
    /// Whoever sends the call again sends it as well.
    Kept,
    /// It is to wait until the call has been sent again.
    Wait,
}

/// Whose a call is that has ended and may be sent again.
enum Claim {
    Ours,
    /// What was kept goes out, or has gone out, on the next leg.
    Others,
    /// It is not to be sent again.
    Nobodys,
}

impl Route {
    pub(crate) fn new(core: Arc<Core>, id: CallId, kept: Option<Kept>) -> Self {
        let settled = OnceLock::new();
        if kept.is_none() {
            settled.get_or_init(|| ());
        }
        Self { first: Leg::new(core, id), settled, state: Mutex::new(State { kept, ..State::default() }) }
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

    /// An item is about to be sent: where.
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
                // It is too much by now.
                state.kept = None;
            }
        }
        if claimed { Keeping::Kept } else { Keeping::Send(self.leg()) }
    }

    /// The stream is complete: where to say so, if not whoever sends it again does.
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

    /// The server has begun with the call, or it has ended for good: there is no other leg. For who reads.
    #[inline]
    pub(crate) fn settle(&self) {
        if self.keeps() {
            self.change(State::close);
            self.settled.get_or_init(|| ());
        }
    }

    /// Changes the state, and wakes the threads that wait for that.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state);
        let threads = if state.claimed { Vec::new() } else { std::mem::take(&mut state.threads) };
        drop(state);
        threads.iter().for_each(Thread::unpark);
        result
    }

    pub(crate) fn give_up(&self) {
        if self.keeps() {
            self.change(|state| (state.kept, state.given_up) = (None, true));
        }
    }

    /// Leaves the end, which a sender has found, to who reads.
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

    fn claim(&self, leg: &Leg) -> Claim {
        let mut state = self.state.lock();
        if state.claimed || leg.next.get().is_some() {
            return Claim::Others;
        }
        state.claimed = state.kept.is_some();
        if state.claimed { Claim::Ours } else { Claim::Nobodys }
    }

    fn unclaim(&self) {
        self.change(|state| state.claimed = false);
    }

    /// The arguments, unless the call was given up.
    fn arguments(&self) -> Option<Vec<u8>> {
        self.state.lock().kept.as_ref().map(|kept| kept.arguments().to_vec())
    }

    /// What follows so many frames behind the arguments. If that is all, `leg` is the call's next, and the claim is over.
    fn next_frame(&self, place: usize, leg: &mut Option<Leg>) -> Option<(Kind, Compress, Vec<u8>)> {
        self.change(|state| {
            let frame = state.kept.as_ref().and_then(|kept| kept.frame(place));
            if let Some(Outgoing { kind, compress, body: Body::Whole(bytes), .. }) = frame {
                return Some((kind, compress, bytes.to_vec()));
            }
            self.go_on(state, leg);
            None
        })
    }

    /// The call goes on as `leg`.
    fn go_on(&self, state: &mut State, leg: &mut Option<Leg>) {
        if let Some(leg) = leg.take() {
            let set = self.leg().next.set(Box::new(leg));
            debug_assert!(set.is_ok(), "only who has the claim makes a leg");
        }
        state.claimed = false;
    }

    /// Waits until the claim is over, or for a moment.
    fn sleep(&self, py: Python<'_>) -> PyResult<()> {
        {
            let mut state = self.state.lock();
            if !state.claimed {
                return Ok(());
            }
            state.threads.push(thread::current());
        }
        detach(py, || thread::park_timeout(SIGNAL_CHECK));
        py.check_signals()
    }
}

/// How long a thread sleeps before it looks whether a signal wants its attention.
const SIGNAL_CHECK: Duration = Duration::from_millis(50);

impl Stream {
    /// For the thread that reads, which finds that the call has ended although its end has not come here: waits for who
    /// may be sending it again. Whether there is another leg; if not, that end, if the other thread has found it.
    #[cold]
    pub(crate) fn await_other(&self, py: Python<'_>, leg: &Leg) -> PyResult<Result<bool, Incoming>> {
        while self.route.is_claimed() {
            self.route.sleep(py)?;
        }
        Ok(match self.route.take_end() {
            Some(end) => Err(end),
            None => Ok(leg.next.get().is_some()),
        })
    }

    /// For a thread that sends, when no more may be kept of a call that is being sent again: waits a moment. Whether its time
    /// is not over.
    #[cold]
    pub(crate) fn await_leg(&self, py: Python<'_>) -> PyResult<bool> {
        self.route.sleep(py)?;
        Ok(self.until.is_none_or(|until| Instant::now() < until))
    }

    /// For the thread that reads: whether the call that has ended with this is under way again.
    #[cold]
    pub(crate) fn refused(&self, py: Python<'_>, leg: &Leg, end: &Incoming) -> PyResult<bool> {
        loop {
            match self.route.claim(leg) {
                Claim::Ours => return self.send_claimed(py, leg, end),
                Claim::Nobodys => return Ok(false),
                // A sender that looks for the end finds that it is here.
                Claim::Others if leg.next.get().is_none() => self.route.sleep(py)?,
                Claim::Others => return Ok(true),
            }
        }
    }

    /// For a thread that sends: whether the call, which has ended, goes on all the same.
    #[cold]
    pub(crate) fn goes_on(&self, py: Python<'_>, leg: &Leg) -> PyResult<bool> {
        match self.route.claim(leg) {
            Claim::Others => return Ok(true),
            Claim::Nobodys => return Ok(false),
            Claim::Ours => {}
        }
        let Some(end) = leg.core.take_unbegun(leg.id) else {
            self.route.unclaim();
            // If it is not there any more, the thread that reads has it, and is about to decide.
            return Ok(!leg.core.is_live(leg.id));
        };
        let again = self.send_claimed(py, leg, &end)?;
        if !again {
            self.route.leave_end(end);
        }
        Ok(again)
    }

    /// The same in an event loop, where the end is still to be taken, or is given.
    #[cold]
    pub(crate) fn goes_on_in_loop(slf: &Bound<'_, Self>, end: Option<Incoming>) -> PyResult<Result<bool, Incoming>> {
        let (py, this) = (slf.py(), slf.get());
        let leg = this.route.leg();
        match this.route.claim(leg) {
            Claim::Others => return Ok(Ok(true)),
            Claim::Nobodys => return Ok(end.map_or(Ok(false), Err)),
            Claim::Ours => {}
        }
        let Some(end) = end.or_else(|| leg.core.take_unbegun(leg.id)) else {
            this.route.unclaim();
            return Ok(Ok(false));
        };
        let left = this.until.map(|until| until.saturating_duration_since(Instant::now()));
        let again =
            this.again(leg, &end).filter(|again| again.pause.is_zero() || left.is_none_or(|left| again.pause < left));
        let (Owner::Loop(schedule), Some(again)) = (this.calling.waiting.owner(), again) else {
            this.route.change(State::close);
            return Ok(Err(end));
        };
        let (pause, left) = (again.pause.as_secs_f64(), left.map(|left| left.as_secs_f64()));
        schedule.send_again.bind(py).run_with((slf, pause, again.hopeful, left))?;
        Ok(Ok(true))
    }

    /// What is to be done about a refusal.
    fn again(&self, leg: &Leg, end: &Incoming) -> Option<Again> {
        let mut tally = self.route.state.lock().tally;
        let again = self.calling.again(&leg.core, self.method.get(), end, &mut tally);
        self.route.state.lock().tally = tally;
        again
    }

    /// Sends the call again, which this thread has claimed. Whether it is to be.
    fn send_claimed(&self, py: Python<'_>, leg: &Leg, end: &Incoming) -> PyResult<bool> {
        let sent = self.try_again(py, leg, end);
        if !matches!(sent, Ok(true)) {
            self.route.change(State::close);
        }
        sent
    }

    fn try_again(&self, py: Python<'_>, leg: &Leg, end: &Incoming) -> PyResult<bool> {
        let Some(mut again) = self.again(leg, end) else { return Ok(false) };
        loop {
            // What happened to the call says more than that there is no time left, or nobody there now.
            if !pause(py, again.pause, self.until)? {
                return Ok(false);
            }
            let core = match self.calling.usable_again(py, again.hopeful, self.until) {
                Ok(core) => core,
                Err(_) if self.method.get().idempotent => return Ok(false),
                Err(error) => return Err(error),
            };
            match self.begin_again(py, &core)? {
                Ok(()) => return Ok(true),
                Err(next) => again = next,
            }
        }
    }

    /// Begins the call's next leg with all that was kept. The inner failure is that of a call that was not even begun,
    /// because the connection was lost before.
    pub(crate) fn begin_again(&self, py: Python<'_>, core: &Arc<Core>) -> PyResult<Result<(), Again>> {
        let method = self.method.get();
        let Some(arguments) = self.route.arguments() else {
            self.route.unclaim();
            return Ok(Ok(()));
        };
        let mut tally = self.route.state.lock().tally;
        let for_loop = self.for_loop();
        let (calling, surroundings, until) = (&self.calling, &self.surroundings, self.until);
        let id = match (Anew { calling, method, surroundings, until, tally, for_loop }).begin(py, core, &arguments)? {
            Ok(id) => id,
            Err(failure) if !core.is_usable() && failure.code == Failure::UNAVAILABLE => {
                let again = calling.again_unsent(core, method, failure, &mut tally);
                self.route.state.lock().tally = tally;
                return again.map(Err).map_err(|failure| name_failure(py, &failure, &method.name));
            }
            Err(failure) => return Err(name_failure(py, &failure, &method.name)),
        };
        let mut leg = Some(Leg::new(Arc::clone(core), id));
        let mut place = 0;
        while let Some((kind, compress, bytes)) = self.route.next_frame(place, &mut leg) {
            place += 1;
            let send = || {
                let frame = Outgoing { compress, ..Outgoing::new(kind, Body::Whole(&bytes)) };
                match kind {
                    // All that is kept is less than a stream may send before more is granted.
                    Kind::Item => core.try_send_item(id, &frame, until).map(|sent| sent == Some(true)),
                    _ => core.end_stream(id, until).map(|()| true),
                }
            };
            // In a loop nothing is waited for.
            let sent = if for_loop { send() } else { detach(py, send) };
            match sent {
                Ok(true) => {}
                // It has ended again: whoever looks finds why.
                Ok(false) => self.route.change(|state| self.route.go_on(state, &mut leg)),
                Err(_) if core.is_dead() => self.route.change(|state| self.route.go_on(state, &mut leg)),
                Err(failure) => {
                    core.cancel(id);
                    return Err(name_failure(py, &failure, &method.name));
                }
            }
            if leg.is_none() {
                break;
            }
        }
        if self.route.state.lock().given_up {
            core.cancel(id);
        }
        Ok(Ok(()))
    }

    /// For an event loop: `future` is done when the call has been sent again. Whether that is to be waited for.
    pub(crate) fn notify_when_sent_again(&self, py: Python<'_>, future: &Py<PyAny>) -> bool {
        if !self.route.is_claimed() {
            return false;
        }
        let future = future.clone_ref(py);
        self.route.state.lock().futures.push(future);
        true
    }

    /// Lets those of the event loop look again.
    pub(crate) fn wake_futures(&self, py: Python<'_>) -> PyResult<()> {
        let futures = std::mem::take(&mut self.route.state.lock().futures);
        futures.iter().try_for_each(|future| wake(future.bind(py)))
    }

    /// For an event loop: the call could not be sent again.
    pub(crate) fn fail_to_send_again(&self, py: Python<'_>, failure: PyErr) -> PyResult<()> {
        // Outside the lock: what is dropped may run Python.
        let earlier = self.route.change(|state| {
            state.close();
            state.failure.replace(failure)
        });
        drop(earlier);
        self.wake_futures(py)
    }
}
