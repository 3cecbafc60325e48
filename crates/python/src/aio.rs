//! Calls from an event loop: the same pieces as from threads, without the waiting.
//!
//! An awaited call first gives the reply the same bounded spin that a thread would, and completes without suspending if it
//! came. Otherwise the loop sleeps on the connection's one descriptor, and each wake-up delivers everything that is there.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nearcall_core::client::{CallId, Connection as Core};
use nearcall_core::{Event, Failure, Kind, Outgoing};
use parking_lot::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyStopIteration};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use pyo3::{PyTraverseError, PyVisit, intern};

use crate::client::{late, name_failure, outcome};
use crate::deadline::Surroundings;
use crate::errors::raise;
use crate::payload::Encoded;
use crate::plan::Method;

/// `asyncio.get_running_loop`.
static RUNNING_LOOP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The futures of an event loop that wait for something to come for a call.
///
/// A task that suspends does not put the connection to sleep: others may be about to send. When the loop has run all
/// that was ready, it comes by [`Waiting::on_idle`], which receives, spins while that pays, and only then sleeps.
pub(crate) struct Waiting {
    futures: Mutex<HashMap<CallId, Py<PyAny>>>,
    /// `call_soon` of the loop and the callback for it, once a connection was given to a loop.
    schedule: PyOnceLock<(Py<PyAny>, Py<PyAny>)>,
    scheduled: AtomicBool,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { futures: Mutex::default(), schedule: PyOnceLock::new(), scheduled: AtomicBool::new(false) }
    }
}

impl Waiting {
    /// Names the loop's `call_soon` and what it is to call when it is idle.
    pub(crate) fn use_loop(&self, py: Python<'_>, call_soon: Py<PyAny>, on_idle: Py<PyAny>) {
        // A connection belongs to one loop for life.
        let _ = self.schedule.set(py, (call_soon, on_idle));
    }

    /// Sets `future`'s result when something has come for the call.
    pub(crate) fn register(&self, py: Python<'_>, core: &Core, id: CallId, future: Py<PyAny>) -> PyResult<()> {
        if core.has_arrived(id) {
            return wake(future.bind(py));
        }
        self.futures.lock().insert(id, future);
        self.call_when_idle(py)
    }

    fn call_when_idle(&self, py: Python<'_>) -> PyResult<()> {
        // Relaxed: only the loop's thread comes here.
        if self.scheduled.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let (call_soon, on_idle) = self
            .schedule
            .get(py)
            .ok_or_else(|| PyRuntimeError::new_err("this connection was not opened by an event loop"))?;
        call_soon.bind(py).call1((on_idle,))?;
        Ok(())
    }

    /// Forgets the future of a call that is given up.
    fn forget(&self, id: CallId) {
        let future = self.futures.lock().remove(&id);
        drop(future);
    }

    pub(crate) fn on_readable(&self, py: Python<'_>, core: &Core) -> PyResult<()> {
        core.link().disarm();
        if core.link().readable().is_err() {
            // What is in the ring comes first; the loss itself is found by receiving.
            self.deliver(py, core)?;
            core.notice_loss();
        }
        self.deliver(py, core)?;
        self.call_when_idle(py)
    }

    /// The loop has run all that was ready.
    pub(crate) fn on_idle(&self, py: Python<'_>, core: &Core) -> PyResult<()> {
        // Relaxed: as in `call_when_idle`.
        self.scheduled.store(false, Ordering::Relaxed);
        core.link().disarm();
        let mut delivered = self.deliver(py, core)?;
        if !delivered && !self.futures.lock().is_empty() && py.detach(|| core.spin()) {
            delivered = self.deliver(py, core)?;
        }
        while !delivered {
            if core.link().arm() {
                return Ok(());
            }
            // Something came just now; if it was not for us, the next look finds nothing.
            delivered = self.deliver(py, core)?;
        }
        // Who was woken may send again before we sleep.
        self.call_when_idle(py)
    }

    /// Receives what is here. Whether a future was woken.
    fn deliver(&self, py: Python<'_>, core: &Core) -> PyResult<bool> {
        let ready = core.pump();
        let mut any = false;
        for id in ready {
            let future = self.futures.lock().remove(&id);
            if let Some(future) = future {
                wake(future.bind(py))?;
                any = true;
            }
        }
        Ok(any)
    }

    /// The connection has ended: everybody looks.
    pub(crate) fn wake_all(&self, py: Python<'_>, core: &Core) -> PyResult<()> {
        core.pump();
        let all = std::mem::take(&mut *self.futures.lock());
        all.into_values().try_for_each(|future| wake(future.bind(py)))
    }
}

fn wake(future: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = future.py();
    if !future.call_method0(intern!(py, "done"))?.is_truthy()? {
        future.call_method1(intern!(py, "set_result"), (py.None(),))?;
    }
    Ok(())
}

/// A method without streams, bound to an event loop's connection.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct AsyncUnary {
    core: Arc<Core>,
    waiting: Arc<Waiting>,
    method: Py<Method>,
    index: u16,
    timeout: Option<Duration>,
}

impl AsyncUnary {
    pub(crate) fn new(
        core: Arc<Core>,
        waiting: Arc<Waiting>,
        method: Py<Method>,
        index: u16,
        timeout: Option<Duration>,
    ) -> Self {
        Self { core, waiting, method, index, timeout }
    }
}

#[pymethods]
impl AsyncUnary {
    /// Checks the arguments; the call is sent when the result is first awaited.
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__(
        slf: &Bound<'_, Self>,
        args: Bound<'_, PyTuple>,
        kwargs: Option<Bound<'_, PyDict>>,
    ) -> PendingCall {
        let arguments = (args.unbind(), kwargs.map(Bound::unbind));
        PendingCall { call: slf.clone().unbind(), stage: Mutex::new(Stage::Fresh(arguments)), timer: Mutex::default(), surroundings: Mutex::default() }
    }

    fn __repr__(&self) -> String {
        format!("<{} at {}>", self.method.get().name, self.core.url())
    }
}

/// The coroutine of one call.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct PendingCall {
    call: Py<AsyncUnary>,
    stage: Mutex<Stage>,
    timer: Mutex<Option<Py<PyAny>>>,
    surroundings: Mutex<Surroundings>,
}

enum Stage {
    Fresh((Py<PyTuple>, Option<Py<PyDict>>)),
    Sent(Sent),
    Done,
}

#[derive(Clone, Copy)]
struct Sent {
    id: CallId,
    until: Option<Instant>,
}

impl PendingCall {
    fn give_up(&self) {
        let stage = std::mem::replace(&mut *self.stage.lock(), Stage::Done);
        if let Stage::Sent(sent) = stage {
            let call = self.call.get();
            call.waiting.forget(sent.id);
            call.core.cancel(sent.id);
        }
    }

    fn begin(&self, py: Python<'_>, arguments: (Py<PyTuple>, Option<Py<PyDict>>)) -> PyResult<Sent> {
        let call = self.call.get();
        let method = call.method.get();
        let (args, kwargs) = arguments;
        let encoded: Encoded<'_> = method.encode_call(args.bind(py), kwargs.as_ref().map(|kwargs| kwargs.bind(py)))?;
        let surroundings = Surroundings::look(py, call.timeout)?;
        let metadata = surroundings.metadata(py)?;
        let begun = encoded.with(|body| {
            let mut request = Outgoing::new(Kind::Call, body);
            request.method = call.index;
            request.flags = encoded.flags();
            request.deadline_us = surroundings.micros();
            request.metadata = metadata;
            call.core.link().disarm();
            call.core.begin(&request, true)
        });
        let id = begun.map_err(|failure| name_failure(py, &failure, &method.name))?;
        let until = surroundings.until();
        *self.surroundings.lock() = surroundings;
        Ok(Sent { id, until })
    }

    /// The first step: sends, and spins for the reply if nothing else is under way.
    fn first(&self, py: Python<'_>, id: CallId) -> PyResult<Option<Event>> {
        let call = self.call.get();
        if call.core.in_flight() == 1 {
            py.detach(|| call.core.spin());
        }
        call.waiting.deliver(py, &call.core)?;
        Ok(call.core.arrived(id))
    }

    fn result(&self, py: Python<'_>, event: Event) -> PyErr {
        let method = self.call.get().method.get();
        *self.stage.lock() = Stage::Done;
        self.stop_timer(py);
        if event.head.kind != Kind::Reply {
            return outcome(py, &event, &method.name);
        }
        match method.reply.decode(py, event) {
            Ok(value) => PyStopIteration::new_err((value,)),
            Err(error) => error,
        }
    }

    /// A future that is done when something has come or the deadline passed, in the form in which a coroutine yields it to
    /// its task.
    fn suspend<'py>(&self, py: Python<'py>, sent: Sent) -> PyResult<Bound<'py, PyAny>> {
        let call = self.call.get();
        let get_loop = RUNNING_LOOP.get_or_try_init(py, || {
            Ok::<_, PyErr>(py.import("asyncio")?.getattr("get_running_loop")?.unbind())
        })?;
        let running = get_loop.bind(py).call0()?;
        let future = running.call_method0(intern!(py, "create_future"))?;
        if let Some(until) = sent.until {
            let left = until.saturating_duration_since(Instant::now()).as_secs_f64();
            let wake = wrap_pyfunction!(wake_future, py)?;
            let timer = running.call_method1(intern!(py, "call_later"), (left, wake, &future))?;
            if let Some(earlier) = self.timer.lock().replace(timer.unbind()) {
                earlier.bind(py).call_method0(intern!(py, "cancel"))?;
            }
        }
        call.waiting.register(py, &call.core, sent.id, future.clone().unbind())?;
        future.setattr(intern!(py, "_asyncio_future_blocking"), true)?;
        Ok(future)
    }

    /// Tells the surrounding block of the metadata that came; what came behind initial metadata, if anything has.
    #[cold]
    fn take_metadata(&self, py: Python<'_>, mut event: Event, id: CallId) -> PyResult<Option<Event>> {
        let surroundings = self.surroundings.lock();
        while event.head.kind == Kind::Head {
            surroundings.received(py, true, event.head.metadata())?;
            match self.call.get().core.arrived(id) {
                Some(next) => event = next,
                None => return Ok(None),
            }
        }
        surroundings.received(py, false, event.head.metadata())?;
        Ok(Some(event))
    }

    fn stop_timer(&self, py: Python<'_>) {
        if let Some(timer) = self.timer.lock().take() {
            // A timer that cannot be cancelled only wakes a future that is done.
            let _ = timer.bind(py).call_method0(intern!(py, "cancel"));
        }
    }
}

#[pyfunction]
fn wake_future(future: &Bound<'_, PyAny>) -> PyResult<()> {
    wake(future)
}

#[pymethods]
impl PendingCall {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.send(py, &py.None().into_bound(py))
    }

    fn send<'py>(&self, py: Python<'py>, _value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let stage = std::mem::replace(&mut *self.stage.lock(), Stage::Done);
        let (sent, event) = match stage {
            Stage::Fresh(arguments) => {
                let sent = self.begin(py, arguments)?;
                *self.stage.lock() = Stage::Sent(sent);
                (sent, self.first(py, sent.id)?)
            }
            Stage::Sent(sent) => {
                *self.stage.lock() = Stage::Sent(sent);
                (sent, self.call.get().core.arrived(sent.id))
            }
            Stage::Done => return Err(PyRuntimeError::new_err("cannot await a call twice; call the method again")),
        };
        let call = self.call.get();
        let event = match event {
            Some(event) if event.head.extras().is_some() => self.take_metadata(py, event, sent.id)?,
            other => other,
        };
        match event {
            Some(event) => Err(self.result(py, event)),
            None if !call.core.is_live(sent.id) => {
                let failure = Failure::new(Failure::CANCELLED, "the call was given up");
                Err(raise(py, &failure))
            }
            None if sent.until.is_some_and(|until| Instant::now() >= until) => {
                self.close(py);
                Err(raise(py, &late(&call.method.get().name, call.core.url())))
            }
            None => self.suspend(py, sent),
        }
    }

    #[pyo3(signature = (kind, value=None, traceback=None))]
    fn throw(
        &self,
        py: Python<'_>,
        kind: Bound<'_, PyAny>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        drop(traceback);
        self.close(py);
        let exception = match value {
            Some(value) if !value.is_none() => value,
            _ => kind,
        };
        Err(PyErr::from_value(exception))
    }

    /// Gives the call up if it was sent.
    fn close(&self, py: Python<'_>) {
        self.stop_timer(py);
        self.give_up();
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.call)
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        self.give_up();
    }
}

