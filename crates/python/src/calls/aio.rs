//! Calls from an event loop: the same pieces as from threads, without the waiting.
//!
//! An awaited call that is the only one under way first spins for its reply, as briefly as a thread would, and
//! completes without suspending if the reply arrives. Otherwise the loop sleeps on the connection's one descriptor, and
//! each wake-up delivers everything that has arrived.

use std::ffi::CString;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_core::client::{CallId, Connection as Core, Expected, Tally};
use nearcall_core::lock::Mutex;
use nearcall_core::{Failure, Incoming, Kind, is_past, seconds_left};
use pyo3::exceptions::{PyAttributeError, PyRuntimeError, PyRuntimeWarning};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyTuple};
use pyo3::{PyTraverseError, PyVisit, intern};

use crate::asyncio::reply_future::ReplyFuture;
use crate::asyncio::waiting::Owner;
use crate::calls::bound::BoundMethod;
use crate::calls::calling::{Again, Calling, counted};
use crate::calls::crossing::{decoding, encoding};
use crate::calls::deadline::Surroundings;
use crate::calls::outcome::{late, name_failure, outcome};
use crate::gil::callback::Callback;
use crate::gil::coroutine::{Step, thrown};
use crate::gil::errors::raise;
use crate::gil::interpreter::{attach, detach};
use crate::values::plan::Method;

// A method without streams, bound to an event loop's connection. No docstring: each object has its method's.
#[pyclass(frozen, extends = BoundMethod, module = "nearcall._core")]
pub(crate) struct AsyncUnary {
    calling: Calling,
    method: Py<Method>,
}

impl AsyncUnary {
    pub(crate) fn new(py: Python<'_>, calling: Calling, method: Py<Method>) -> PyResult<Py<Self>> {
        let base = BoundMethod::new(py, &method, &calling, true);
        Py::new(py, PyClassInitializer::from(base).add_subclass(Self { calling, method }))
    }
}

#[pymethods]
impl AsyncUnary {
    /// The call is sent when the result is first awaited.
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__(slf: &Bound<'_, Self>, args: Bound<'_, PyTuple>, kwargs: Option<Bound<'_, PyDict>>) -> PendingCall {
        PendingCall::new(slf.clone().unbind(), (args.unbind(), kwargs.map(Bound::unbind)), Tally::default())
    }

    /// Like `__call__`, but sends the call now. Does not wait for the reply. The call is given up when nothing refers
    /// to the returned object any more.
    #[pyo3(signature = (*args, **kwargs))]
    fn start(
        slf: &Bound<'_, Self>,
        args: Bound<'_, PyTuple>,
        kwargs: Option<Bound<'_, PyDict>>,
    ) -> PyResult<PendingCall> {
        let pending = Self::__call__(slf, args, kwargs);
        pending.start(slf.py())?;
        Ok(pending)
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
        format!("<{} at {}>", self.method.get().name, self.calling.place())
    }
}

/// The coroutine of one call.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct PendingCall {
    call: Py<AsyncUnary>,
    stage: Mutex<Stage>,
    /// How often the call was sent before.
    tally: Tally,
}

type CallArguments = (Py<PyTuple>, Option<Py<PyDict>>);

enum Stage {
    Fresh(CallArguments),
    Sent(Sent),
    /// A Python coroutine that connects anew and makes the call again.
    Delegated(Py<PyAny>),
    Done,
}

struct Sent {
    core: Arc<Core>,
    id: CallId,
    until: Option<Instant>,
    /// The method's successor, if the call was encoded with it; its reply is decoded with it, too.
    successor: Option<Py<Method>>,
    /// Kept for repeating the call.
    arguments: CallArguments,
    surroundings: Surroundings,
    /// A task has suspended to wait for the reply, until the call's deadline at most.
    awaited: bool,
    timer: Option<Py<PyAny>>,
}

/// A call that was not sent because there is no connection.
struct Unsent {
    arguments: CallArguments,
    until: Option<Instant>,
    /// Set if sending was tried and failed: how to send the call again.
    again: Option<(Again, Tally)>,
}

impl PendingCall {
    fn new(call: Py<AsyncUnary>, arguments: CallArguments, tally: Tally) -> Self {
        Self { call, stage: Mutex::new(Stage::Fresh(arguments)), tally }
    }

    /// Gives the call up. If it is under way, the server is told.
    fn give_up(&self) {
        let stage = std::mem::replace(&mut *self.stage.lock(), Stage::Done);
        if let Stage::Sent(sent) = stage {
            self.abandon(&sent);
        }
    }

    fn abandon(&self, sent: &Sent) {
        self.call.get().calling.waiting.forget(&sent.core, sent.id);
        sent.core.cancel(sent.id);
    }

    /// Sends the call before it is awaited. Without a connection, the call is sent when it is awaited.
    fn start(&self, py: Python<'_>) -> PyResult<()> {
        let stage = std::mem::replace(&mut *self.stage.lock(), Stage::Done);
        let Stage::Fresh(arguments) = stage else { return Ok(()) };
        let stage = match self.send_now(py, arguments)? {
            Ok(sent) => Stage::Sent(sent),
            Err(unsent) => Stage::Fresh(unsent.arguments),
        };
        *self.stage.lock() = stage;
        Ok(())
    }

    fn begin<'py>(&self, py: Python<'py>, arguments: CallArguments) -> PyResult<Step<'py>> {
        let sent = match self.send_now(py, arguments)? {
            Ok(sent) => sent,
            Err(Unsent { arguments, until, again }) => return self.delegate(py, &arguments, again, until),
        };
        // Spins only if no other call is under way on the connection whose reply the loop could deliver meanwhile.
        let reply = if sent.core.in_flight() == 1 && self.call.get().calling.waiting.may_end_at_once() {
            let (core, id) = (&sent.core, sent.id);
            detach(py, || if core.spin() { core.try_event(id) } else { None })
        } else {
            None
        };
        match reply {
            Some(reply) => self.proceed(py, sent, Some(reply)),
            None => self.suspend(py, sent).map(Step::Yields),
        }
    }

    fn send_now(&self, py: Python<'_>, arguments: CallArguments) -> PyResult<Result<Sent, Unsent>> {
        let call = self.call.get();
        call.calling.waiting.check_loop(py)?;
        let surroundings = Surroundings::look(py, call.calling.limits.of_call())?;
        let until = surroundings.until();
        let Some(core) = call.calling.ready_for_loop(py)? else {
            return Ok(Err(Unsent { arguments, until, again: None }));
        };
        let successor = call.method.get().successor(py);
        let method = successor.as_ref().unwrap_or(&call.method).get();
        let (args, kwargs) = &arguments;
        let encode = || method.encode_call(args.bind(py), kwargs.as_ref().map(|kwargs| kwargs.bind(py)));
        let mut encoded = encoding(method.arguments.references(), &core, &call.calling, encode)?;
        let metadata = counted(surroundings.metadata(py)?, self.tally);
        let compression = surroundings.compression(py)?;
        // This call may end without suspending while other calls go on waiting: `on_idle` must run for those.
        call.calling.waiting.stirred(py)?;
        let begun = encoded.with(|body| {
            let mut request = call.calling.request(method, body, encoded.flags(), surroundings.micros(), metadata);
            (request.compress, request.encoding) = compression;
            core.stay_awake();
            let (references, given) = (method.reply.references(), encoded.given());
            core.begin(&request, Expected { in_loop: true, references, given })
        });
        let id = match begun {
            Ok(id) => {
                encoded.sent();
                id
            }
            // The connection was lost before the call began.
            Err(failure) if call.calling.may_begin_elsewhere(&core, &failure) => {
                let mut tally = self.tally;
                let again = call.calling.again_unsent(&core, method, failure, &mut tally);
                let again = again.map_err(|failure| name_failure(py, &failure, &method.name))?;
                drop(encoded);
                return Ok(Err(Unsent { arguments, until, again: Some((again, tally)) }));
            }
            Err(failure) => return Err(name_failure(py, &failure, &method.name)),
        };
        drop(encoded);
        Ok(Ok(Sent { core, id, until, successor, arguments, surroundings, awaited: false, timer: None }))
    }

    /// Returns or raises the call's outcome if it has arrived, else suspends.
    fn proceed<'py>(&self, py: Python<'py>, mut sent: Sent, mut event: Option<Incoming>) -> PyResult<Step<'py>> {
        let call = self.call.get();
        if event.is_none() {
            let Ok(arrived) = sent.core.arrived(sent.id) else {
                stop_timer(py, &mut sent);
                return Err(raise(py, &Failure::new(Failure::CANCELLED, "the call was given up")));
            };
            event = arrived;
        }
        if let Some(first) = event.take_if(|event| event.head.extras().is_some()) {
            event = take_metadata(py, first, &sent)?;
        }
        let Some(mut event) = event else { return self.suspend(py, sent).map(Step::Yields) };
        stop_timer(py, &mut sent);
        let method = sent.successor.as_ref().unwrap_or(&call.method).get();
        if event.head.kind == Kind::Reply {
            call.calling.succeeded();
            let decode = |event: &mut Incoming| method.reply.decode(py, event, None);
            let value = decoding(method.reply.references(), &sent.core, &call.calling, &mut event, decode)?;
            return Ok(Step::Returns(value.into_bound(py)));
        }
        let mut tally = self.tally;
        match call.calling.again(&sent.core, method, &event, &mut tally) {
            Some(again) => self.delegate(py, &sent.arguments, Some((again, tally)), sent.until),
            None => Err(outcome(py, &event, method)),
        }
    }

    /// Hands the call to a Python coroutine that connects anew, if need be, and makes the call once more.
    #[cold]
    fn delegate<'py>(
        &self,
        py: Python<'py>,
        (args, kwargs): &CallArguments,
        again: Option<(Again, Tally)>,
        until: Option<Instant>,
    ) -> PyResult<Step<'py>> {
        let call = self.call.get();
        let schedule = match call.calling.waiting.owner() {
            Owner::Loop(schedule) if call.calling.may_move() => Some(schedule),
            _ => None,
        };
        let Some(schedule) = schedule else {
            // The client is closed, or the connection to the called object is gone: `usable` raises that error.
            return call
                .calling
                .usable(py, None)
                .and_then(|_| Err(PyRuntimeError::new_err("its event loop let go of it")));
        };
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let method = call.method.get();
        let (pause, hopeful, tally, failure) = match again {
            Some((again, tally)) => (again.pause, again.hopeful, tally, Some(again.raise(py, method))),
            None => (Duration::ZERO, false, self.tally, None),
        };
        let failure = match failure {
            // There is no time for the pause. What happened to the call says more than that its deadline passes.
            Some(failure) if !pause.is_zero() && left.is_some_and(|left| pause >= left) => return Err(failure),
            // If no server comes, what happened to an idempotent call says more than that none is there.
            failure => failure.filter(|_| method.idempotent).map(|failure| failure.into_value(py)),
        };
        let arguments = (args.clone_ref(py), kwargs.as_ref().map(|kwargs| kwargs.clone_ref(py)));
        let next = Py::new(py, Self::new(self.call.clone_ref(py), arguments, tally.sent_once_more()))?;
        let (pause, left) = (pause.as_secs_f64(), left.map(|left| left.as_secs_f64()));
        let again =
            schedule.call_again.bind(py).run_with((next, pause, call.calling.patience(hopeful), left, failure))?;
        *self.stage.lock() = Stage::Delegated(again.clone().unbind());
        again.run_method(intern!(py, "send"), [py.None().bind(py)]).map(Step::Yields)
    }

    /// Returns the future that the task is to wait for. It is woken when a frame of the call has arrived, or the
    /// deadline has passed.
    fn suspend<'py>(&self, py: Python<'py>, mut sent: Sent) -> PyResult<Bound<'py, PyAny>> {
        let suspended = self.wait(py, &mut sent);
        if suspended.is_err() {
            stop_timer(py, &mut sent);
            self.abandon(&sent);
        } else {
            sent.awaited = true;
            *self.stage.lock() = Stage::Sent(sent);
        }
        suspended
    }

    fn wait<'py>(&self, py: Python<'py>, sent: &mut Sent) -> PyResult<Bound<'py, PyAny>> {
        let call = self.call.get();
        let waiting = &call.calling.waiting;
        if is_past(sent.until) {
            return Err(raise(py, &late(&call.method.get().name, sent.core.name())));
        }
        let future = waiting.await_reply(py, &sent.core, sent.id)?;
        if let Some(until) = sent.until {
            stop_timer(py, sent);
            let left = PyFloat::new(py, seconds_left(until));
            let wake = wrap_pyfunction!(wake_late, py)?;
            let running = waiting.running(py)?.into_bound(py);
            let arguments = [left.as_any(), wake.as_any(), future.bind(py).as_any()];
            sent.timer = Some(running.run_method(intern!(py, "call_later"), arguments)?.unbind());
        }
        Ok(future.into_bound(py).into_any())
    }

    fn delegated(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        match &*self.stage.lock() {
            Stage::Delegated(coroutine) => Some(coroutine.clone_ref(py)),
            _ => None,
        }
    }
}

/// Gives received metadata to the surrounding metadata block. Returns the event behind initial metadata, if it has
/// arrived.
#[cold]
fn take_metadata(py: Python<'_>, mut event: Incoming, sent: &Sent) -> PyResult<Option<Incoming>> {
    while event.head.kind == Kind::Head {
        sent.surroundings.received(py, true, event.head.metadata())?;
        match sent.core.arrived(sent.id) {
            Ok(Some(next)) => event = next,
            Ok(None) | Err(_) => return Ok(None),
        }
    }
    sent.surroundings.received(py, false, event.head.metadata())?;
    Ok(Some(event))
}

#[inline]
fn stop_timer(py: Python<'_>, sent: &mut Sent) {
    if let Some(timer) = sent.timer.take() {
        // A timer that cannot be cancelled only wakes a task that is awake.
        let _ = timer.bind(py).run_method(intern!(py, "cancel"), []);
    }
}

/// Wakes the task of a call whose deadline has passed.
#[pyfunction]
fn wake_late(future: &Bound<'_, ReplyFuture>) -> PyResult<()> {
    ReplyFuture::run_soon(future)
}

#[pymethods]
impl PendingCall {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __repr__(&self) -> String {
        let call = self.call.get();
        let advice = if matches!(*self.stage.lock(), Stage::Fresh(_)) { ", to be awaited" } else { "" };
        format!("<call of {} at {}{advice}>", call.method.get().name, call.calling.place())
    }

    /// Raises an error that says what was forgotten: the call was not awaited, so it has no attributes of its result.
    fn __getattr__(&self, name: &str) -> PyResult<Py<PyAny>> {
        let method = &self.call.get().method.get().name;
        // Protocols ask for such names to see what an object can do.
        let advice = if name.starts_with("__") { "" } else { "; await it first: (await service.method(...)).name" };
        Err(PyAttributeError::new_err(format!(
            "a call of {method} that was not awaited has no attribute '{name}'{advice}"
        )))
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.step(py, py.None().bind(py))?.iterated()
    }

    fn send<'py>(&self, py: Python<'py>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.step(py, value)?.sent()
    }

    #[pyo3(signature = (kind, value=None, traceback=None))]
    fn throw<'py>(
        &self,
        py: Python<'py>,
        kind: Bound<'py, PyAny>,
        value: Option<Bound<'py, PyAny>>,
        traceback: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let exception = thrown(kind, value);
        if let Some(coroutine) = self.delegated(py) {
            return coroutine.bind(py).run_method(intern!(py, "throw"), [&exception]);
        }
        drop(traceback);
        self.close(py)?;
        Err(PyErr::from_value(exception))
    }

    /// Gives the call up if it was sent.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(coroutine) = self.delegated(py) {
            coroutine.bind(py).run_method(intern!(py, "close"), [])?;
        }
        let stage = std::mem::replace(&mut *self.stage.lock(), Stage::Done);
        if let Stage::Sent(mut sent) = stage {
            stop_timer(py, &mut sent);
            self.abandon(&sent);
        }
        self.call.get().calling.waiting.stirred(py)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.call)
    }
}

impl PendingCall {
    fn step<'py>(&self, py: Python<'py>, value: &Bound<'py, PyAny>) -> PyResult<Step<'py>> {
        let stage = std::mem::replace(&mut *self.stage.lock(), Stage::Done);
        match stage {
            Stage::Fresh(arguments) => self.begin(py, arguments),
            Stage::Sent(sent) => {
                // Nobody has looked yet for the reply of a call that was sent before it was awaited.
                let reply = if sent.awaited { None } else { sent.core.try_event(sent.id) };
                self.proceed(py, sent, reply)
            }
            Stage::Delegated(coroutine) => {
                let coroutine = coroutine.into_bound(py);
                *self.stage.lock() = Stage::Delegated(coroutine.clone().unbind());
                coroutine.run_method(intern!(py, "send"), [value]).map(Step::Yields)
            }
            Stage::Done => Err(PyRuntimeError::new_err("cannot await a call twice; call the method again")),
        }
    }

    /// Warns that the call was written but never made, as the interpreter does for a coroutine.
    #[cold]
    fn warn_of_no_await(&self) {
        attach(|py| {
            // An exception may be propagating now: it is set aside, and restored below.
            let on_its_way = PyErr::take(py);
            let text =
                format!("coroutine '{}' was never awaited: nothing was called", self.call.get().method.get().name);
            let text = CString::new(text).unwrap_or_default();
            if let Err(error) = PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 1) {
                error.write_unraisable(py, None);
            }
            if let Some(error) = on_its_way {
                error.restore(py);
            }
        });
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        if matches!(self.stage.get_mut(), Stage::Fresh(_)) && !self.tally.is_repeated() {
            self.warn_of_no_await();
        }
        self.give_up();
    }
}
