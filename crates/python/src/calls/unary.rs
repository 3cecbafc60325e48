//! Calls without streams, from threads: encode, send, wait with the interpreter released, decode. A thread may wait for
//! a call at once, or begin many and wait for them later.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_core::client::{CallId, Connection as Core, Expected, NoEvent, Tally, wait_for_first};
use nearcall_core::lock::{Condvar, Mutex};
use nearcall_core::{Compress, Encoding, Failure, Incoming, Kind, Metadata, Outgoing, is_past, seconds_left};
use pyo3::exceptions::{PyBaseException, PyException, PyTimeoutError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use crate::asyncio::handler_loop;
use crate::calls::bound::BoundMethod;
use crate::calls::calling::{Again, Calling, counted, pause, seconds_of};
use crate::calls::crossing::{decoding, encoding};
use crate::calls::deadline::Surroundings;
use crate::calls::outcome::{name_failure, outcome, wait_on};
use crate::gil::errors::raise;
use crate::gil::interpreter::{SIGNAL_CHECK, detach, is_alone};
use crate::values::plan::Method;

// A method without streams, bound to a connection. No docstring: each object has its method's.
#[pyclass(frozen, extends = BoundMethod, module = "nearcall._core")]
pub(crate) struct Unary {
    calling: Calling,
    method: Py<Method>,
}

impl Unary {
    pub(crate) fn new(py: Python<'_>, calling: Calling, method: Py<Method>) -> PyResult<Py<Self>> {
        let base = BoundMethod::new(py, &method, &calling, false);
        Py::new(py, PyClassInitializer::from(base).add_subclass(Self { calling, method }))
    }
}

/// How long a thread that waits for several calls sleeps, if another thread waits for one of these calls as well.
const LOOK: Duration = Duration::from_millis(5);

/// The longest message, in bytes, that a thread sends without giving the interpreter up if nobody else wants it.
const SHORT: usize = 4 << 10;

/// One call, as it was made.
struct Call<'a, 'py> {
    py: Python<'py>,
    args: &'a Bound<'py, PyTuple>,
    kwargs: Option<&'a Bound<'py, PyDict>>,
    surroundings: Surroundings,
    until: Option<Instant>,
    /// How often the call was sent.
    tally: Tally,
}

impl Call<'_, '_> {
    /// Whether there are no [additions](Call::additions).
    #[inline]
    fn is_plain(&self) -> bool {
        self.surroundings.has_no_blocks() && self.tally.failed() == 0
    }

    #[cold]
    fn additions(&self) -> PyResult<Additions> {
        let metadata = counted(self.surroundings.metadata(self.py)?, self.tally);
        let (compress, encoding) = self.surroundings.compression(self.py)?;
        Ok(Additions { metadata, compress, encoding })
    }
}

/// What the surrounding blocks and earlier attempts add to a call, if there are any.
struct Additions {
    metadata: Option<Metadata>,
    compress: Compress,
    encoding: Option<Encoding>,
}

/// A call that was sent.
struct Sent {
    id: CallId,
    /// The method's successor, if the call was encoded with it; its reply is decoded with it, too.
    successor: Option<Py<Method>>,
}

/// How an attempt at a call ended, unless it failed for good.
enum Attempt {
    /// With a result.
    Ended(Py<PyAny>),
    /// The call did not reach the server, or may be repeated.
    Repeat(Again),
}

#[pymethods]
impl Unary {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let surroundings = Surroundings::look_and_wait(py, self.calling.limits.of_call(), || self.shown())?;
        let mut call = Call { py, args, kwargs, until: surroundings.until(), surroundings, tally: Tally::default() };
        let core = self.core(&mut call)?;
        match self.attempt(&mut call, &core)? {
            Attempt::Ended(value) => Ok(value),
            Attempt::Repeat(again) => self.repeat(&mut call, again),
        }
    }

    /// Sends a call and does not wait for its reply, nor for room to send it.
    #[pyo3(signature = (*args, **kwargs))]
    fn start(
        slf: &Bound<'_, Self>,
        args: Bound<'_, PyTuple>,
        kwargs: Option<Bound<'_, PyDict>>,
    ) -> PyResult<StartedCall> {
        StartedCall::send(slf, args, kwargs)
    }

    /// The same method, with a timeout of `seconds` for each call instead of the client's.
    fn within(&self, py: Python<'_>, seconds: f64) -> PyResult<Py<Self>> {
        Self::new(py, self.calling.within(py, seconds)?, self.method.clone_ref(py))
    }

    /// The same method for the copies of one call: each goes to another server, as long as there is one.
    fn for_copies(&self, py: Python<'_>) -> PyResult<Py<Self>> {
        Self::new(py, self.calling.for_copies(), self.method.clone_ref(py))
    }

    /// Seconds that a call may take which begins now; `None` if it may take any time.
    fn time_allowed(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        let surroundings = Surroundings::look(py, self.calling.limits.of_call())?;
        Ok(surroundings.until().map(seconds_left))
    }

    #[getter(__doc__)]
    fn doc<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.method.get().doc(py)
    }

    fn __repr__(&self) -> String {
        format!("<{}>", self.shown())
    }
}

impl Unary {
    /// The method's name and the place of the server, for texts.
    fn shown(&self) -> String {
        format!("{} at {}", self.method.get().name, self.calling.place())
    }

    /// What the surrounding blocks, and the method itself, say of a call that begins now.
    fn surroundings(&self, py: Python<'_>) -> PyResult<Surroundings> {
        Surroundings::look(py, self.calling.limits.of_call())
    }

    /// Returns a usable connection for the call.
    #[inline]
    fn core(&self, call: &mut Call<'_, '_>) -> PyResult<Arc<Core>> {
        if let Some(core) = self.calling.ready() {
            return Ok(core);
        }
        let core = self.calling.usable(call.py, call.until)?;
        call.surroundings.look_again();
        Ok(core)
    }

    #[inline]
    fn attempt(&self, call: &mut Call<'_, '_>, core: &Arc<Core>) -> PyResult<Attempt> {
        let until = call.until;
        // The reply is not moved until it is decoded.
        let (mut place, mut first) = (None, Ok(()));
        let sent = self.send(call, core, |py, request, expected| {
            if request.len() <= SHORT
                && is_alone(py)
                && let Some(id) = core.call_at_once(request, expected, until, &mut place)
            {
                if place.is_none() {
                    first = detach(py, || core.next_event_in(id, until, &mut place));
                }
                return Ok(id);
            }
            detach(py, || {
                let id = core.begin(request, expected)?;
                first = core.next_event_in(id, until, &mut place);
                Ok(id)
            })
        })?;
        match sent {
            Ok(sent) => self.finish(call, core, &sent, first, &mut place),
            Err(failure) => self.unsent(call, core, failure).map(Attempt::Repeat),
        }
    }

    /// Encodes the call for the server at the other end of `core`, because the next server may want other arguments,
    /// and sends it. The inner failure means that the connection was lost before the call began.
    #[inline]
    fn send(
        &self,
        call: &Call<'_, '_>,
        core: &Arc<Core>,
        begin: impl FnOnce(Python<'_>, &Outgoing<'_>, Expected<'_>) -> Result<CallId, Failure>,
    ) -> PyResult<Result<Sent, Failure>> {
        let py = call.py;
        let successor = self.method.get().successor(py);
        let method = successor.as_ref().unwrap_or(&self.method).get();
        let encode = || method.encode_call(call.args, call.kwargs);
        let mut encoded = match encoding(method.arguments.references(), core, &self.calling, encode) {
            Ok(encoded) => encoded,
            Err(refusal) => return self.calling.reconsider(py, core, refusal).map(Err),
        };
        let additions = if call.is_plain() { None } else { Some(call.additions()?) };
        let begun: Result<_, Failure> = encoded.with(|body| {
            let deadline = call.surroundings.micros();
            let mut request = self.calling.request(method, body, encoded.flags(), deadline, None);
            if let Some(additions) = additions {
                Additions { metadata: request.metadata, compress: request.compress, encoding: request.encoding } =
                    additions;
            }
            let (references, given) = (method.reply.references(), encoded.given());
            begin(py, &request, Expected { in_loop: false, references, given })
        });
        match begun {
            Ok(id) => {
                encoded.sent();
                Ok(Ok(Sent { id, successor }))
            }
            Err(failure) if self.calling.may_begin_elsewhere(core, &failure) => Ok(Err(failure)),
            Err(failure) => Err(name_failure(py, &failure, &method.name)),
        }
    }

    /// Goes on from the first event, which is in `place` if there is one, to the call's outcome.
    #[inline]
    fn finish(
        &self,
        call: &mut Call<'_, '_>,
        core: &Arc<Core>,
        sent: &Sent,
        first: Result<(), NoEvent>,
        place: &mut Option<Incoming>,
    ) -> PyResult<Attempt> {
        let (py, until, id) = (call.py, call.until, sent.id);
        let method = sent.successor.as_ref().unwrap_or(&self.method).get();
        let event = match first {
            Ok(()) => place.as_mut().expect("there is an event"),
            Err(no_event) => place.insert(wait_on(py, core, id, until, no_event, &method.name)?),
        };
        if event.head.extras().is_some() {
            self.take_metadata(py, core, event, id, &call.surroundings, until)?;
        }
        match event.head.kind {
            Kind::Reply => {
                self.calling.succeeded();
                let decode = |event: &mut Incoming| method.reply.decode(py, event, None);
                decoding(method.reply.references(), core, &self.calling, event, decode).map(Attempt::Ended)
            }
            _ => match self.calling.again(core, method, event, &mut call.tally) {
                Some(again) => Ok(Attempt::Repeat(again)),
                None => Err(outcome(py, event, method)),
            },
        }
    }

    /// How to repeat a call whose connection was lost before the call began.
    #[cold]
    fn unsent(&self, call: &mut Call<'_, '_>, core: &Core, failure: Failure) -> PyResult<Again> {
        let method = self.method.get();
        let again = self.calling.again_unsent(core, method, failure, &mut call.tally);
        again.map_err(|failure| name_failure(call.py, &failure, &method.name))
    }

    #[cold]
    fn repeat(&self, call: &mut Call<'_, '_>, mut again: Again) -> PyResult<Py<PyAny>> {
        loop {
            if !pause(call.py, again.pause, call.until)? {
                // There is no time for the pause. What happened to the call says more than that its deadline passes.
                return Err(again.raise(call.py, self.method.get()));
            }
            let core = match self.calling.usable_again(call.py, again.hopeful, call.until) {
                Ok(core) => core,
                // Likewise, it says more than that no server is there now.
                Err(_) if self.method.get().idempotent => {
                    return Err(again.raise(call.py, self.method.get()));
                }
                Err(error) => return Err(error),
            };
            call.surroundings.look_again();
            match self.attempt(call, &core)? {
                Attempt::Ended(value) => return Ok(value),
                Attempt::Repeat(next) => again = next,
            }
        }
    }

    /// Gives received metadata to the surrounding metadata block, and waits for the outcome behind initial metadata.
    #[cold]
    fn take_metadata(
        &self,
        py: Python<'_>,
        core: &Core,
        event: &mut Incoming,
        id: CallId,
        surroundings: &Surroundings,
        until: Option<Instant>,
    ) -> PyResult<()> {
        while event.head.kind == Kind::Head {
            surroundings.received(py, true, event.head.metadata())?;
            *event = match detach(py, || core.next_event(id, until)) {
                Ok(event) => event,
                Err(no_event) => wait_on(py, core, id, until, no_event, &self.method.get().name)?,
            };
        }
        surroundings.received(py, false, event.head.metadata())
    }
}

/// A call that was sent. It is given up when nothing refers to this object any more before the call's end.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct StartedCall {
    unary: Py<Unary>,
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
    /// A failure means that the connection was lost before the call began; the call may be sent over another one.
    sent: Result<Sent, Failure>,
    // Kept for repeating the call.
    args: Py<PyTuple>,
    kwargs: Option<Py<PyDict>>,
    surroundings: Surroundings,
    until: Option<Instant>,
}

impl StartedCall {
    /// Sends the call, with the time that the surrounding block leaves now.
    pub(crate) fn send(
        unary: &Bound<'_, Unary>,
        args: Bound<'_, PyTuple>,
        kwargs: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let surroundings = unary.get().surroundings(unary.py())?;
        let (py, until, tally) = (unary.py(), surroundings.until(), Tally::default());
        let mut call = Call { py, args: &args, kwargs: kwargs.as_ref(), until, surroundings, tally };
        let core = unary.get().core(&mut call)?;
        let sent = unary
            .get()
            .send(&call, &core, |py, request, expected| detach(py, || core.begin_ahead(request, expected)))?;
        let Call { surroundings, until, .. } = call;
        let (args, kwargs) = (args.unbind(), kwargs.map(Bound::unbind));
        let first = sent.as_ref().ok().map(|sent| (Arc::clone(&core), sent.id));
        let under_way = UnderWay { core, sent, args, kwargs, surroundings, until };
        let state = Mutex::new(State::UnderWay(under_way));
        Ok(Self { unary: unary.clone().unbind(), state, known: Condvar::new(), first, until })
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
        let name = &self.unary.get().method.get().name;
        raise(py, &Failure::new(Failure::CANCELLED, format!("{name}: the call was given up")))
    }

    /// Waits until the reply has arrived, and does not take it. If another thread waits for the call, waits until that
    /// thread knows the outcome. Returns `false` if `limit` passes first.
    fn wait(&self, py: Python<'_>, limit: Option<Instant>) -> PyResult<bool> {
        loop {
            let soon = Instant::now() + SIGNAL_CHECK;
            let waited = detach(py, || {
                let mut state = self.state.lock();
                match (&*state, &self.first) {
                    (State::Awaited { .. }, _) => {
                        let left = limit.map_or(soon, |limit| limit.min(soon)) - Instant::now();
                        self.known.wait_for(&mut state, left);
                        if matches!(*state, State::Awaited { .. }) { Err(NoEvent::Interrupted) } else { Ok(()) }
                    }
                    (State::UnderWay(UnderWay { sent: Ok(_), .. }), Some(first)) => {
                        drop(state);
                        let until = [limit, self.until].into_iter().flatten().min();
                        wait_for_first(std::slice::from_ref(first), until)
                    }
                    _ => Ok(()),
                }
            });
            match waited {
                // Inherited: `result` raises an error that says so.
                Ok(()) | Err(NoEvent::Inherited) => return Ok(true),
                // The call's deadline has passed, and `result` raises an error that says so.
                Err(_) if is_past(self.until) => return Ok(true),
                Err(_) if is_past(limit) => return Ok(false),
                Err(_) => py.check_signals()?,
            }
        }
    }

    /// Waits for the outcome of a call under way, and repeats the call if need be.
    fn finish(&self, py: Python<'_>, under_way: UnderWay) -> PyResult<Py<PyAny>> {
        let UnderWay { core, sent, args, kwargs, surroundings, until } = under_way;
        let (args, kwargs) = (args.bind(py), kwargs.as_ref().map(|kwargs| kwargs.bind(py)));
        let mut call = Call { py, args, kwargs, surroundings, until, tally: Tally::default() };
        let unary = self.unary.get();
        let attempt = match sent {
            Ok(sent) => {
                let mut place = None;
                let first = detach(py, || core.next_event_in(sent.id, until, &mut place));
                unary.finish(&mut call, &core, &sent, first, &mut place)?
            }
            Err(failure) => Attempt::Repeat(unary.unsent(&mut call, &core, failure)?),
        };
        match attempt {
            Attempt::Ended(value) => Ok(value),
            Attempt::Repeat(again) => unary.repeat(&mut call, again),
        }
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
    fn result(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let limit = limit_of(py, timeout)?;
        loop {
            if let Some(outcome) = self.outcome(py) {
                return outcome;
            }
            if handler_loop::is_here(py) && !self.done(py) {
                return Err(handler_loop::refusal(&self.unary.get().shown()));
            }
            if (limit.is_some() || self.is_awaited()) && !self.wait(py, limit)? {
                let shown = self.unary.get().shown();
                return Err(PyTimeoutError::new_err(format!(
                    "{shown} has not ended within {} s; it is still under way",
                    timeout.unwrap_or_default()
                )));
            }
            let under_way = {
                let mut state = self.state.lock();
                match std::mem::replace(&mut *state, State::Awaited { given_up: false }) {
                    State::UnderWay(under_way) => under_way,
                    other => {
                        *state = other;
                        continue;
                    }
                }
            };
            let outcome = self.finish(py, under_way);
            let given_up = matches!(*self.state.lock(), State::Awaited { given_up: true });
            self.set(match &outcome {
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
    fn exception(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Py<PyBaseException>>> {
        let Err(error) = self.result(py, timeout) else { return Ok(None) };
        // In any other state the error is no outcome of the call: `timeout` is over, or the call was given up.
        let raised = matches!(*self.state.lock(), State::Raised(_));
        if raised { Ok(Some(error.into_value(py))) } else { Err(error) }
    }

    /// Whether `result()` would return or raise without waiting. Never waits.
    fn done(&self, py: Python<'_>) -> bool {
        if let Some((core, _)) = self.pending() {
            detach(py, || core.look());
        }
        self.has_ended()
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
        format!("<call of {}{state}>", self.unary.get().shown())
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
        let look = calls.iter().any(|call| call.get().is_awaited()).then(|| Instant::now() + LOOK);
        let until = calls.iter().filter_map(|call| call.get().until).chain(limit).chain(look).min();
        let pending: Vec<_> = calls.iter().filter_map(|call| call.get().pending()).collect();
        match detach(py, || wait_for_first(&pending, until)) {
            Ok(()) | Err(NoEvent::DeadlinePassed) => {}
            Err(_) => py.check_signals()?,
        }
        looked = true;
    }
}
