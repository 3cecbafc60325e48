//! Calls from an event loop: the same pieces as from threads, without the waiting.
//!
//! An awaited call that is the only one under way first spins for its reply, as briefly as a thread would, and
//! completes without suspending if the reply arrives. Otherwise the loop sleeps on the connection's one descriptor, and
//! each wake-up delivers everything that has arrived.

use std::ffi::CString;
use std::sync::Arc;
use std::time::Instant;

use nearcall_core::client::{Again, Connection as Core};
use nearcall_core::lock::Mutex;
use nearcall_core::{Failure, Incoming, is_past, seconds_left};
use pyo3::exceptions::{PyAttributeError, PyRuntimeError, PyRuntimeWarning};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyTuple};
use pyo3::{PyTraverseError, PyVisit, intern};

use crate::asyncio::reply_future::ReplyFuture;
use crate::asyncio::waiting::Owner;
use crate::calls::bound::BoundMethod;
use crate::calls::driving::{Call, Came, Sent};
use crate::calls::outcome::late;
use crate::gil::callback::Callback;
use crate::gil::coroutine::{Coroutine, Step, coroutine_methods};
use crate::gil::errors::raise;
use crate::gil::interpreter::{attach, detach};

// A method without streams, bound to an event loop's connection. No docstring: each object has its method's.
#[derive(Default)]
#[pyclass(frozen, extends = BoundMethod, module = "nearcall._core")]
pub(crate) struct AsyncUnary;

#[pymethods]
impl AsyncUnary {
    // Here, for Python gives every class a `__doc__` that hides the base's.
    #[getter(__doc__)]
    fn doc<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.as_super().get().method.get().doc(slf.py())
    }

    /// The call is sent when the result is first awaited.
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__(slf: &Bound<'_, Self>, args: Bound<'_, PyTuple>, kwargs: Option<Bound<'_, PyDict>>) -> PendingCall {
        let stage = Mutex::new(Stage::Fresh((args.unbind(), kwargs.map(Bound::unbind))));
        PendingCall { bound: slf.as_super().clone().unbind(), stage }
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
}

/// The coroutine of one call.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct PendingCall {
    bound: Py<BoundMethod>,
    stage: Mutex<Stage>,
}

type CallArguments = (Py<PyTuple>, Option<Py<PyDict>>);

/// A call that was sent, and over which connection.
type SentOver = (Arc<Core>, Sent);

enum Stage {
    Fresh(CallArguments),
    Sent(Attempt),
    Connecting(Connecting),
    Done,
}

/// A call that was sent.
struct Attempt {
    core: Arc<Core>,
    sent: Sent,
    call: Call,
    /// Kept for repeating the call.
    arguments: CallArguments,
    /// A task has suspended to wait for the reply, until the call's deadline at most.
    awaited: bool,
    timer: Option<Py<PyAny>>,
}

/// A call that is to be sent, for the first time or once more, when there is a connection.
struct Connecting {
    call: Call,
    arguments: CallArguments,
    /// A Python coroutine that connects.
    coroutine: Py<PyAny>,
}

impl PendingCall {
    fn take(&self) -> Stage {
        std::mem::replace(&mut *self.stage.lock(), Stage::Done)
    }

    fn abandon(&self, attempt: &Attempt) {
        let (core, (id, _)) = (&attempt.core, &attempt.sent);
        self.bound.get().calling.waiting.forget(core, *id);
        core.cancel(*id);
    }

    fn new_call(&self, py: Python<'_>) -> PyResult<Call> {
        self.bound.get().calling.waiting.check_loop(py)?;
        self.bound.get().surroundings(py).map(Call::new)
    }

    /// Sends the call before it is awaited. Without a connection, the call is sent when it is awaited.
    fn start(&self, py: Python<'_>) -> PyResult<()> {
        let Stage::Fresh(arguments) = self.take() else { return Ok(()) };
        let mut call = self.new_call(py)?;
        let sent = self.send_now(py, &arguments, &mut call)?;
        *self.stage.lock() = match sent {
            Ok((core, sent)) => Stage::Sent(Attempt { core, sent, call, arguments, awaited: false, timer: None }),
            Err(_) => Stage::Fresh(arguments),
        };
        Ok(())
    }

    fn begin<'py>(&self, py: Python<'py>, arguments: CallArguments, mut call: Call) -> PyResult<Step<'py>> {
        let (core, sent) = match self.send_now(py, &arguments, &mut call)? {
            Ok(sent) => sent,
            Err(again) => return self.connect(py, arguments, call, again),
        };
        // Spins only if no other call is under way on the connection whose reply the loop could deliver meanwhile.
        let reply = if core.in_flight() == 1 && self.bound.get().calling.waiting.may_end_at_once() {
            detach(py, || if core.spin() { core.try_event(sent.0) } else { None })
        } else {
            None
        };
        let attempt = Attempt { core, sent, call, arguments, awaited: false, timer: None };
        match reply {
            Some(reply) => self.proceed(py, attempt, Some(reply)),
            None => self.suspend(py, attempt).map(Step::Yields),
        }
    }

    /// Sends the call. The inner error says that there is no connection, and what was tried if anything was.
    fn send_now(
        &self,
        py: Python<'_>,
        (args, kwargs): &CallArguments,
        call: &mut Call,
    ) -> PyResult<Result<SentOver, Option<Box<Again>>>> {
        let bound = self.bound.get();
        let Some(core) = bound.calling.ready_for_loop(py)? else { return Ok(Err(None)) };
        // This call may end without suspending while other calls go on waiting: `on_idle` must run for those.
        bound.calling.waiting.stirred(py)?;
        let arguments = (args.bind(py), kwargs.as_ref().map(|kwargs| kwargs.bind(py)));
        let sent = bound.send(py, &core, call, arguments, |request, expected| {
            core.stay_awake();
            core.begin(request, expected)
        })?;
        Ok(sent.map(|sent| (core, sent)).map_err(Some))
    }

    /// Returns or raises the call's outcome if it has arrived, else suspends.
    fn proceed<'py>(&self, py: Python<'py>, mut attempt: Attempt, event: Option<Incoming>) -> PyResult<Step<'py>> {
        let bound = self.bound.get();
        let mut arrived = Ok(event);
        loop {
            let (id, successor) = &attempt.sent;
            if let Ok(None) = arrived {
                arrived = attempt.core.arrived(*id);
            }
            let came = match arrived {
                Ok(Some(mut event)) => bound.take(py, &attempt.core, successor.as_ref(), &mut attempt.call, &mut event),
                Ok(None) => return self.suspend(py, attempt).map(Step::Yields),
                Err(_) => Err(raise(py, &Failure::new(Failure::CANCELLED, "the call was given up"))),
            };
            if !matches!(came, Ok(Came::More)) {
                stop_timer(py, &mut attempt);
            }
            match came? {
                Came::Result(value) => return Ok(Step::Returns(value.into_bound(py))),
                Came::Again(again) => return self.connect(py, attempt.arguments, attempt.call, Some(again)),
                Came::More => arrived = Ok(None),
            }
        }
    }

    /// Lets a Python coroutine connect anew, if need be, before the call is sent (once more).
    #[cold]
    fn connect<'py>(
        &self,
        py: Python<'py>,
        arguments: CallArguments,
        call: Call,
        again: Option<Box<Again>>,
    ) -> PyResult<Step<'py>> {
        let bound = self.bound.get();
        let schedule = match bound.calling.waiting.owner() {
            Owner::Loop(schedule) if bound.calling.may_move() => schedule,
            // The client is closed, or the connection to the called object is gone: `usable` raises that error.
            _ => {
                let usable = bound.calling.usable(py, false, None);
                return usable.and_then(|_| Err(PyRuntimeError::new_err("its event loop let go of it")));
            }
        };
        let left = call.driver.until().map(|until| until.saturating_duration_since(Instant::now()).as_secs_f64());
        let (pause, hopeful) = again.as_ref().map_or((0.0, false), |again| (again.pause.as_secs_f64(), again.hopeful));
        let failure = again.filter(|again| again.says_more);
        let failure = failure.map(|again| bound.method.get().raise_again(py, &again).into_value(py));
        let coroutine =
            schedule.connect_again.bind(py).run_with((pause, bound.calling.patience(hopeful), left, failure))?;
        let step = coroutine.advance(py.None().bind(py));
        self.connected(py, Connecting { call, arguments, coroutine: coroutine.unbind() }, step)
    }

    /// Goes on after a step of the coroutine that connects.
    fn connected<'py>(
        &self,
        py: Python<'py>,
        connecting: Connecting,
        step: PyResult<Step<'py>>,
    ) -> PyResult<Step<'py>> {
        match step? {
            Step::Yields(awaited) => {
                *self.stage.lock() = Stage::Connecting(connecting);
                Ok(Step::Yields(awaited))
            }
            Step::Returns(_) => {
                let Connecting { call: Call { surroundings, driver }, arguments, .. } = connecting;
                self.begin(py, arguments, Call { surroundings: surroundings.look_again(py), driver })
            }
        }
    }

    /// Returns the future that the task is to wait for. It is woken when a frame of the call has arrived, or the
    /// deadline has passed.
    fn suspend<'py>(&self, py: Python<'py>, mut attempt: Attempt) -> PyResult<Bound<'py, PyAny>> {
        let suspended = self.wait(py, &mut attempt);
        if suspended.is_err() {
            stop_timer(py, &mut attempt);
            self.abandon(&attempt);
        } else {
            attempt.awaited = true;
            *self.stage.lock() = Stage::Sent(attempt);
        }
        suspended
    }

    fn wait<'py>(&self, py: Python<'py>, attempt: &mut Attempt) -> PyResult<Bound<'py, PyAny>> {
        let bound = self.bound.get();
        let (waiting, until) = (&bound.calling.waiting, attempt.call.driver.until());
        if is_past(until) {
            return Err(raise(py, &late(&bound.method.get().name, attempt.core.name())));
        }
        let future = waiting.await_reply(py, &attempt.core, attempt.sent.0)?;
        if let Some(until) = until {
            stop_timer(py, attempt);
            let left = PyFloat::new(py, seconds_left(until));
            let wake = wrap_pyfunction!(wake_late, py)?;
            let running = waiting.running(py)?.into_bound(py);
            let arguments = [left.as_any(), wake.as_any(), future.bind(py).as_any()];
            attempt.timer = Some(running.run_method(intern!(py, "call_later"), arguments)?.unbind());
        }
        Ok(future.into_bound(py).into_any())
    }

    /// Warns that the call was written but never made, as the interpreter does for a coroutine.
    #[cold]
    fn warn_of_no_await(&self) {
        attach(|py| {
            // An exception may be propagating now: it is set aside, and restored below.
            let on_its_way = PyErr::take(py);
            let name = &self.bound.get().method.get().name;
            let text = format!("coroutine '{name}' was never awaited: nothing was called");
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

#[inline]
fn stop_timer(py: Python<'_>, attempt: &mut Attempt) {
    if let Some(timer) = attempt.timer.take() {
        // A timer that cannot be cancelled only wakes a task that is awake.
        let _ = timer.bind(py).run_method(intern!(py, "cancel"), []);
    }
}

/// Wakes the task of a call whose deadline has passed.
#[pyfunction]
fn wake_late(future: &Bound<'_, ReplyFuture>) -> PyResult<()> {
    ReplyFuture::run_soon(future)
}

impl Coroutine for PendingCall {
    fn step<'py>(&self, py: Python<'py>, value: &Bound<'py, PyAny>) -> PyResult<Step<'py>> {
        match self.take() {
            Stage::Fresh(arguments) => {
                let call = self.new_call(py)?;
                self.begin(py, arguments, call)
            }
            Stage::Sent(attempt) => {
                // Nobody has looked yet for the reply of a call that was sent before it was awaited.
                let reply = if attempt.awaited { None } else { attempt.core.try_event(attempt.sent.0) };
                self.proceed(py, attempt, reply)
            }
            Stage::Connecting(connecting) => {
                let step = connecting.coroutine.bind(py).advance(value);
                self.connected(py, connecting, step)
            }
            Stage::Done => Err(PyRuntimeError::new_err("cannot await a call twice; call the method again")),
        }
    }

    fn raise<'py>(&self, py: Python<'py>, exception: Bound<'py, PyAny>) -> PyResult<Step<'py>> {
        match self.take() {
            Stage::Connecting(connecting) => {
                let step = connecting.coroutine.bind(py).throw(&exception);
                self.connected(py, connecting, step)
            }
            other => {
                *self.stage.lock() = other;
                self.end(py)?;
                Err(PyErr::from_value(exception))
            }
        }
    }

    /// Gives the call up if it was sent.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        match self.take() {
            Stage::Connecting(connecting) => {
                connecting.coroutine.bind(py).run_method(intern!(py, "close"), [])?;
            }
            Stage::Sent(mut attempt) => {
                stop_timer(py, &mut attempt);
                self.abandon(&attempt);
            }
            Stage::Fresh(_) | Stage::Done => {}
        }
        self.bound.get().calling.waiting.stirred(py)
    }
}

coroutine_methods! {
impl PendingCall {
    fn __repr__(&self) -> String {
        let advice = if matches!(*self.stage.lock(), Stage::Fresh(_)) { ", to be awaited" } else { "" };
        format!("<call of {}{advice}>", self.bound.get().shown())
    }

    /// Raises an error that says what was forgotten: the call was not awaited, so it has no attributes of its result.
    fn __getattr__(&self, name: &str) -> PyResult<Py<PyAny>> {
        let method = &self.bound.get().method.get().name;
        // Protocols ask for such names to see what an object can do.
        let advice = if name.starts_with("__") { "" } else { "; await it first: (await service.method(...)).name" };
        Err(PyAttributeError::new_err(format!(
            "a call of {method} that was not awaited has no attribute '{name}'{advice}"
        )))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.bound)
    }
}
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        let fresh = matches!(self.stage.get_mut(), Stage::Fresh(_));
        if fresh {
            self.warn_of_no_await();
        }
        if let Stage::Sent(attempt) = self.take() {
            self.abandon(&attempt);
        }
    }
}
