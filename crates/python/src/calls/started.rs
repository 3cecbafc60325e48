//! Calls that a thread sends, and waits for later.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_core::client::{Again, CallId, Connection as Core, NoEvent, wait_for_first};
use nearcall_core::lock::{Condvar, Mutex};
use nearcall_core::{Failure, is_past};
use pyo3::exceptions::{PyBaseException, PyException, PyRuntimeError, PyTimeoutError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use crate::asyncio::handler_loop;
use crate::calls::bound::BoundMethod;
use crate::calls::calling::seconds_of;
use crate::calls::driving::{Call, Sent};
use crate::calls::outcome::next_event;
use crate::gil::callback::Callback;
use crate::gil::errors::raise;
use crate::gil::greenlets::waiting_beside;
use crate::gil::interpreter::{SIGNAL_CHECK, detach};

/// Python's function that waits for a call in a thread of its own, and then calls another one.
static WATCH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Sets what [`StartedCall::add_done_callback`] calls: it takes the call, and the function to call when that has ended.
#[pyfunction]
pub(crate) fn set_watch_of_started(py: Python<'_>, watch: Py<PyAny>) {
    // The first one stays; there is only one such function.
    let _ = WATCH.set(py, watch);
}

/// How long a thread that waits for several calls sleeps, if another thread waits for one of these calls as well.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// A call that was sent. It is given up when nothing refers to this object any more before the call's end.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct StartedCall {
    bound: Py<BoundMethod>,
    state: Mutex<State>,
    /// Notified when the thread that waited for the call knows its outcome.
    known: Condvar,
    /// The first attempt, for a thread that gives the call up while another thread waits for it.
    first: Option<(Arc<Core>, CallId)>,
    until: Option<Instant>,
}

/// How far a call that was started has come.
enum State {
    UnderWay(UnderWay),
    /// A thread waits for the call. Another thread may have given the call up meanwhile.
    Awaited {
        given_up: bool,
    },
    Returned(Py<PyAny>),
    Raised(Py<PyBaseException>),
    GivenUp,
}

struct UnderWay {
    core: Arc<Core>,
    sent: Result<Sent, Box<Again>>,
    call: Call,
    // Kept for repeating the call.
    args: Py<PyTuple>,
    kwargs: Option<Py<PyDict>>,
}

impl StartedCall {
    /// Sends the call, with the time that the surrounding block leaves now.
    pub(crate) fn send(
        bound: &Bound<'_, BoundMethod>,
        args: Bound<'_, PyTuple>,
        kwargs: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let (py, this) = (bound.py(), bound.get());
        let mut call = Call::new(this.surroundings(py)?);
        let core = this.calling.connection(py, &mut call, false)?;
        let sent = this.send(py, &core, &mut call, (&args, kwargs.as_ref()), |request, expected| {
            detach(py, || core.begin_ahead(request, expected))
        })?;
        let first = sent.as_ref().ok().map(|(id, _)| (Arc::clone(&core), *id));
        let until = call.driver.until();
        let under_way = UnderWay { core, sent, call, args: args.unbind(), kwargs: kwargs.map(Bound::unbind) };
        let state = Mutex::new(State::UnderWay(under_way));
        Ok(Self { bound: bound.clone().unbind(), state, known: Condvar::new(), first, until })
    }

    /// The outcome, if it is known.
    fn outcome(&self, py: Python<'_>) -> Option<PyResult<Py<PyAny>>> {
        let error = match &*self.state.lock() {
            State::UnderWay(_) | State::Awaited { .. } => return None,
            State::Returned(value) => return Some(Ok(value.clone_ref(py))),
            State::Raised(error) => Some(error.clone_ref(py)),
            State::GivenUp => None,
        };
        // Outside the lock: exceptions are made.
        Some(Err(error.map_or_else(|| self.given_up(py), |error| PyErr::from_value(error.into_bound(py).into_any()))))
    }

    #[cold]
    fn given_up(&self, py: Python<'_>) -> PyErr {
        let name = &self.bound.get().method.get().name;
        raise(py, &Failure::new(Failure::CANCELLED, format!("{name}: the call was given up")))
    }

    /// Waits until the reply has arrived, and does not take it. If another thread waits for the call, waits until that
    /// thread knows the outcome. Returns `false` if `limit` passes first.
    fn wait(slf: &Bound<'_, Self>, limit: Option<Instant>) -> PyResult<bool> {
        let (py, this) = (slf.py(), slf.clone().unbind());
        let waited = waiting_beside(py, move |go_on| this.get().wait_detached(limit, go_on))?;
        // Inherited, or the call's deadline has passed: `result` raises an error that says so.
        Ok(matches!(waited, Ok(()) | Err(NoEvent::Inherited)) || is_past(slf.get().until))
    }

    fn wait_detached(&self, limit: Option<Instant>, go_on: &mut dyn FnMut() -> bool) -> Result<(), NoEvent> {
        let mut state = self.state.lock();
        while matches!(*state, State::Awaited { .. }) {
            if is_past(limit) {
                return Err(NoEvent::DeadlinePassed);
            }
            let soon = Instant::now() + SIGNAL_CHECK;
            self.known.wait_for(&mut state, limit.map_or(soon, |limit| limit.min(soon)) - Instant::now());
            drop(state);
            if !go_on() {
                return Err(NoEvent::Interrupted);
            }
            state = self.state.lock();
        }
        match (&*state, &self.first) {
            (State::UnderWay(UnderWay { sent: Ok(_), .. }), Some(first)) => {
                drop(state);
                let until = [limit, self.until].into_iter().flatten().min();
                wait_for_first(std::slice::from_ref(first), until, go_on)
            }
            _ => Ok(()),
        }
    }

    /// Waits for the outcome of a call under way, and repeats the call if need be.
    fn finish(&self, py: Python<'_>, under_way: UnderWay) -> PyResult<Py<PyAny>> {
        let UnderWay { core, sent, mut call, args, kwargs } = under_way;
        let bound = self.bound.get();
        let attempt = match sent {
            Ok(sent) => {
                let (mut place, until) = (None, call.driver.until());
                let waited = next_event(py, &core, sent.0, until, &mut place);
                bound.finish(py, &core, &mut call, &sent, waited, &mut place)?
            }
            Err(again) => Err(again),
        };
        let arguments = (args.bind(py), kwargs.as_ref().map(|kwargs| kwargs.bind(py)));
        attempt.or_else(|again| bound.repeat(py, &mut call, arguments, again))
    }

    /// Sets the state, and wakes the threads that wait for it.
    fn set(&self, state: State) {
        let before = std::mem::replace(&mut *self.state.lock(), state);
        self.known.notify_all();
        // Outside the lock: it may hold Python objects.
        drop(before);
    }

    /// The connection and number of the call, if no thread waits for it yet.
    fn pending(&self) -> Option<(Arc<Core>, CallId)> {
        match (&*self.state.lock(), &self.first) {
            (State::UnderWay(UnderWay { sent: Ok(_), .. }), Some(first)) => Some(first.clone()),
            _ => None,
        }
    }

    fn is_awaited(&self) -> bool {
        matches!(*self.state.lock(), State::Awaited { .. })
    }

    fn has_ended(&self) -> bool {
        // The thread that waits for the call may still have to send it again.
        !self.is_awaited() && (is_past(self.until) || self.pending().is_none_or(|(core, id)| core.has_ended(id)))
    }

    /// Gives the call up if no thread waits for it. Returns whether it was under way.
    fn leave(&self) -> bool {
        let left = {
            let mut state = self.state.lock();
            match &*state {
                State::UnderWay(_) => Some(std::mem::replace(&mut *state, State::GivenUp)),
                _ => None,
            }
        };
        // Outside the lock: it may hold Python objects.
        left.is_some()
    }
}

#[pymethods]
impl StartedCall {
    /// Waits for the outcome: returns the result, or raises what the call raises.
    #[pyo3(signature = (timeout=None))]
    fn result(slf: &Bound<'_, Self>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let limit = limit_of(py, timeout)?;
        loop {
            if let Some(outcome) = this.outcome(py) {
                return outcome;
            }
            if handler_loop::is_here(py) && !this.done(py) {
                return Err(handler_loop::refusal(&this.bound.get().shown()));
            }
            if (limit.is_some() || this.is_awaited()) && !Self::wait(slf, limit)? {
                let shown = this.bound.get().shown();
                return Err(PyTimeoutError::new_err(format!(
                    "{shown} has not ended within {} s; it is still under way",
                    timeout.unwrap_or_default()
                )));
            }
            let under_way = {
                let mut state = this.state.lock();
                match std::mem::replace(&mut *state, State::Awaited { given_up: false }) {
                    State::UnderWay(under_way) => under_way,
                    other => {
                        *state = other;
                        continue;
                    }
                }
            };
            let outcome = this.finish(py, under_way);
            let given_up = matches!(*this.state.lock(), State::Awaited { given_up: true });
            this.set(match &outcome {
                Ok(value) => State::Returned(value.clone_ref(py)),
                Err(error) if !given_up && error.is_instance_of::<PyException>(py) => {
                    State::Raised(error.clone_ref(py).into_value(py))
                }
                // The call was given up, or a signal such as Ctrl-C ended the wait, which is no outcome.
                Err(_) => State::GivenUp,
            });
            return outcome;
        }
    }

    /// Waits for the outcome: the exception that the call raises, or `None`.
    #[pyo3(signature = (timeout=None))]
    fn exception(slf: &Bound<'_, Self>, timeout: Option<f64>) -> PyResult<Option<Py<PyBaseException>>> {
        let py = slf.py();
        let Err(error) = Self::result(slf, timeout) else { return Ok(None) };
        // In any other state the error is no outcome of the call: `timeout` is over, or the call was given up.
        let raised = matches!(*slf.get().state.lock(), State::Raised(_));
        if raised { Ok(Some(error.into_value(py))) } else { Err(error) }
    }

    /// Whether `result()` would return or raise without waiting. Never waits.
    fn done(&self, py: Python<'_>) -> bool {
        if let Some((core, _)) = self.pending() {
            detach(py, || core.look());
        }
        self.has_ended()
    }

    /// Calls `function` with this call when it has ended, in a thread that waits for that; at once if it has ended.
    fn add_done_callback(slf: &Bound<'_, Self>, function: &Bound<'_, PyAny>) -> PyResult<()> {
        let watch = WATCH.get(slf.py()).ok_or_else(|| PyRuntimeError::new_err("nearcall.start made no such call"))?;
        watch.bind(slf.py()).run([slf.as_any(), function]).map(drop)
    }

    /// Whether the call was given up.
    fn cancelled(&self) -> bool {
        matches!(*self.state.lock(), State::GivenUp)
    }

    /// Gives the call up, also while another thread waits for it. `False` if it has ended.
    fn cancel(&self, py: Python<'_>) -> bool {
        if self.cancelled() {
            return true;
        }
        let under_way = self.first.as_ref().filter(|(core, id)| !core.has_ended(*id));
        let Some((core, id)) = under_way else {
            // The server need not be told: the call was never sent, or has ended.
            let unsent = self.first.is_none() && self.leave();
            self.known.notify_all();
            return unsent;
        };
        if !self.leave() {
            match &mut *self.state.lock() {
                // The waiting thread finds this when it wakes.
                State::Awaited { given_up } => *given_up = true,
                State::GivenUp => {}
                _ => return false,
            }
        }
        detach(py, || core.cancel(*id));
        true
    }

    fn __repr__(&self) -> String {
        let state = match &*self.state.lock() {
            State::UnderWay(_) | State::Awaited { .. } => "",
            State::Returned(_) => ", which has returned",
            State::Raised(_) => ", which has raised",
            State::GivenUp => ", which was given up",
        };
        format!("<call of {}{state}>", self.bound.get().shown())
    }

    // A cycle: an exception holds the frames that it passed through, and one of them holds the call.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.state.try_lock().as_deref() {
            Some(State::Returned(value)) => visit.call(value),
            Some(State::Raised(error)) => visit.call(error),
            Some(State::UnderWay(under_way)) => {
                visit.call(&under_way.args)?;
                visit.call(&under_way.kwargs)
            }
            _ => Ok(()),
        }
    }

    fn __clear__(&self) {
        if self.leave()
            && let Some((core, id)) = &self.first
        {
            core.cancel(*id);
        }
        self.set(State::GivenUp);
    }
}

impl Drop for StartedCall {
    fn drop(&mut self) {
        if let (State::UnderWay(_), Some((core, id))) = (self.state.get_mut(), &self.first) {
            core.cancel(*id);
        }
    }
}

/// The time that is `timeout` seconds from now. A negative timeout means to look once without waiting.
fn limit_of(py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Instant>> {
    let Some(seconds) = timeout else { return Ok(None) };
    let left = seconds_of(py, "timeout", if seconds < 0.0 { 0.0 } else { seconds })?;
    Ok(Instant::now().checked_add(left))
}

/// Waits until one of the calls has ended, for at most `timeout` seconds. Returns the indices of the calls that have
/// ended; none if the time is over.
#[pyfunction]
#[pyo3(signature = (calls, timeout=None))]
#[expect(clippy::needless_pass_by_value, reason = "Python's list is copied as it comes in")]
pub(crate) fn wait_for_started(
    py: Python<'_>,
    calls: Vec<Py<StartedCall>>,
    timeout: Option<f64>,
) -> PyResult<Vec<usize>> {
    let limit = limit_of(py, timeout)?;
    let mut looked = false;
    loop {
        let ended: Vec<usize> =
            calls.iter().enumerate().filter(|(_, call)| call.get().has_ended()).map(|(place, _)| place).collect();
        if !ended.is_empty() || calls.is_empty() || (looked && is_past(limit)) {
            return Ok(ended);
        }
        if !is_past(limit) {
            handler_loop::check(py, || "nearcall.wait".to_owned())?;
        }
        // A thread that waits for one of the calls does not wake this thread at its end: look now and then.
        let look = calls.iter().any(|call| call.get().is_awaited()).then(|| Instant::now() + LOOK_INTERVAL);
        let until = calls.iter().filter_map(|call| call.get().until).chain(limit).chain(look).min();
        let pending: Vec<_> = calls.iter().filter_map(|call| call.get().pending()).collect();
        // Whatever ends the wait, the calls are looked at again.
        let _ = waiting_beside(py, move |go_on| wait_for_first(&pending, until, go_on))?;
        looked = true;
    }
}
