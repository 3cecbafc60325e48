//! Coroutine handlers run in turns. A turn is one asyncio task. It runs one handler after the other for as long as they
//! end without waiting, and belongs to the first handler that waits (docs/measurements/0076).
//!
//! Every handler must find a task in `asyncio.current_task()` from its first step on, and making one takes longer than the
//! rest of a short call. So a handler that ends in its first step leaves the task to the next handler, unless that
//! handler could tell the difference: it can if anything else refers to the task, or has changed it. Each handler has a
//! context of its own in any case.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_core::fault::contained;
use nearcall_core::lock::Mutex;
use nearcall_core::server::Request;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBool;
use pyo3::{PyTraverseError, PyVisit, ffi, intern};

use crate::calls::deadline::surround;
use crate::gil::callback::Callback;
use crate::gil::coroutine::{Coroutine, Step, coroutine_methods};
use crate::gil::entered::Entered;
use crate::serving::loop_server::{InLoop, LoopCall, LoopRequest, Watch};
use crate::values::plan::Kind;

/// `asyncio.current_task`, `asyncio.Task`, `asyncio.CancelledError` and `weakref.getweakrefcount`.
static CURRENT_TASK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static TASK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static CANCELLED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static COUNT_WEAK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// How long a turn goes on while requests keep coming, before the event loop looks at its other work.
const TURN: Duration = Duration::from_micros(100);

/// The coroutine of the task of a turn.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct HandlerTurn {
    of: Arc<InLoop>,
    /// The object in Python that has the event loop.
    runner: Py<PyAny>,
    /// The loop has nothing else under way.
    may_spin: bool,
    state: Mutex<State>,
}

enum State {
    /// The turn has not begun. This is its first call.
    New(Arc<LoopCall>),
    Runs,
    /// A handler waits. These are the coroutine that ends its call, and the handler's context.
    Waits(Py<PyAny>, Py<PyAny>),
    Over,
}

/// How the first step of a turn ends.
enum Ran<'py> {
    /// A handler waits for this object.
    Waits(Bound<'py, PyAny>),
    /// There are no more requests. What the loop is to watch.
    All(Watch),
    /// There may be more requests, for another turn.
    Enough,
}

/// A task that several handlers may have, and its state before the first handler.
struct SharedTask<'py> {
    task: Bound<'py, PyAny>,
    name: Bound<'py, PyAny>,
    weak: usize,
    references: ffi::Py_ssize_t,
}

impl<'py> SharedTask<'py> {
    /// The current task, if it is of asyncio's own class: a handler might change tasks of other classes in other ways.
    fn current(py: Python<'py>, running: &Bound<'py, PyAny>) -> PyResult<Option<Self>> {
        // The loop is given because asyncio makes a system call each time that it has to find it, up to Python 3.13.
        let task = CURRENT_TASK.import(py, "asyncio", "current_task")?.run([running])?;
        if !task.get_type().is(TASK.import(py, "asyncio", "Task")?) {
            return Ok(None);
        }
        let name = task.run_method(intern!(py, "get_name"), [])?;
        let weak = Self::count_weak(&task)?;
        // SAFETY: attached, and the object is alive.
        let references = unsafe { ffi::Py_REFCNT(task.as_ptr()) };
        Ok(Some(Self { task, name, weak, references }))
    }

    fn count_weak(task: &Bound<'py, PyAny>) -> PyResult<usize> {
        COUNT_WEAK.import(task.py(), "weakref", "getweakrefcount")?.run([task])?.extract()
    }

    /// Whether the next handler could not tell the task from a new one: nothing has kept, cancelled or renamed it, or
    /// is to be called at its end.
    fn is_as_new(&self) -> PyResult<bool> {
        let (py, task) = (self.task.py(), &self.task);
        // SAFETY: as above.
        let references = unsafe { ffi::Py_REFCNT(task.as_ptr()) };
        Ok(references == self.references
            && !task.attribute(intern!(py, "_must_cancel"))?.is_truthy()?
            && !task.attribute(intern!(py, "_callbacks"))?.is_truthy()?
            && task.run_method(intern!(py, "get_name"), [])?.is(&self.name)
            && Self::count_weak(task)? == self.weak)
    }
}

impl HandlerTurn {
    pub(crate) fn new(of: Arc<InLoop>, runner: Py<PyAny>, request: Box<Request>, may_spin: bool) -> Self {
        let state = Mutex::new(State::New(LoopCall::new(Arc::clone(&of), request)));
        Self { of, runner, may_spin, state }
    }

    fn replace(&self, state: State) -> State {
        std::mem::replace(&mut *self.state.lock(), state)
    }

    #[cold]
    fn refuse(&self, state: State) -> PyErr {
        let runs = matches!(state, State::Runs);
        drop(self.replace(state));
        if runs {
            PyValueError::new_err("coroutine already executing")
        } else {
            PyRuntimeError::new_err("cannot reuse already awaited coroutine")
        }
    }

    /// The first step, which runs handlers. However they end, the loop is told how to go on.
    fn begin<'py>(&self, py: Python<'py>, call: Arc<LoopCall>) -> PyResult<Step<'py>> {
        let ran = self.run_all(py, call);
        if !matches!(ran, Ok(Ran::Waits(_))) {
            drop(self.replace(State::Over));
        }
        let watch = if let Ok(Ran::All(watch)) = ran { Some(watch) } else { None };
        self.tell(py, watch, matches!(ran, Ok(Ran::Waits(_))))?;
        Ok(match ran? {
            Ran::Waits(awaited) => Step::Yields(awaited),
            Ran::All(_) | Ran::Enough => Step::Returns(py.None().into_bound(py)),
        })
    }

    fn run_all<'py>(&self, py: Python<'py>, mut call: Arc<LoopCall>) -> PyResult<Ran<'py>> {
        let begun = Instant::now();
        let shared = SharedTask::current(py, self.of.calling.waiting.running(py)?.bind(py))?;
        loop {
            if let Some(awaited) = self.run(py, &call)? {
                return Ok(Ran::Waits(awaited));
            }
            if begun.elapsed() > TURN || !shared.as_ref().map_or(Ok(false), SharedTask::is_as_new)? {
                return Ok(Ran::Enough);
            }
            match self.of.next(py, self.may_spin) {
                Ok(next) => call = LoopCall::new(Arc::clone(&self.of), next),
                Err(watch) => return Ok(Ran::All(watch)),
            }
        }
    }

    /// Tells the loop how to watch for the next request, or to look for one at once if `watch` is `None`, and whether
    /// a handler waits.
    fn tell(&self, py: Python<'_>, watch: Option<Watch>, waits: bool) -> PyResult<()> {
        let (watch, waits) = (watch.into_pyobject(py)?, PyBool::new(py, waits));
        self.runner.bind(py).run_method(intern!(py, "turned"), [&watch, waits.as_any()]).map(drop)
    }

    /// Runs a handler's first step. If the handler waits, returns for what, and the turn belongs to the handler.
    fn run<'py>(&self, py: Python<'py>, call: &Arc<LoopCall>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if call.is_cancelled() {
            call.forget(py);
            return Ok(None);
        }
        let request = Bound::new(py, LoopRequest::new(Arc::clone(call)))?;
        let context = Entered::copy(py)?;
        let ran = contained(|| self.run_in(py, call, &request, &context));
        let awaited = ran.unwrap_or_else(|fault| {
            // The other calls that the turn would have run must not wait for ever, nor this one's caller.
            self.of.core.tell(&fault);
            call.request.fail(&Request::fault());
            call.forget(py);
            Ok(None)
        });
        if !matches!(awaited, Ok(Some(_))) {
            drop(context);
            // SAFETY: attached, and the object is alive.
            if unsafe { ffi::Py_REFCNT(request.as_ptr()) } > 1 {
                // The handler has left something that has its context, or the request itself.
                request.get().let_go();
            }
        }
        awaited
    }

    fn run_in<'py>(
        &self,
        py: Python<'py>,
        call: &LoopCall,
        request: &Bound<'py, LoopRequest>,
        context: &Entered<'py>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        surround(request.as_any(), call.request.deadline)?;
        let runner = self.runner.bind(py);
        let coroutine = if matches!(call.served().kind, Kind::Unary | Kind::Oneway) {
            let begun = match self.attempt(py, call) {
                Ok(None) => return Ok(None),
                Ok(Some(begun)) => begun,
                Err(error) if error.matches(py, CANCELLED.import(py, "asyncio", "CancelledError")?)? => {
                    self.raised(py, &error)?
                }
                Err(error) => {
                    call.fail_with(py, &error);
                    call.forget(py);
                    return Ok(None);
                }
            };
            runner.run_method(intern!(py, "go_on"), [request.as_any(), &begun])?
        } else {
            runner.run_method(intern!(py, "run_stream"), [request.as_any()])?
        };
        match coroutine.advance(py.None().bind(py))? {
            Step::Yields(awaited) => {
                let context = context.0.clone().unbind();
                drop(self.replace(State::Waits(coroutine.unbind(), context)));
                Ok(Some(awaited))
            }
            Step::Returns(_) => Ok(None),
        }
    }

    /// Runs the first step of a handler without streams, and replies if the handler has ended. Returns what is to be
    /// awaited if there is something left to do.
    fn attempt<'py>(&self, py: Python<'py>, call: &LoopCall) -> PyResult<Option<Bound<'py, PyAny>>> {
        let runner = self.runner.bind(py);
        let handling = call.call_handler(py)?;
        // SAFETY: attached; a live object.
        let handling = if unsafe { ffi::PyCoro_CheckExact(handling.as_ptr()) } == 1 {
            handling
        } else {
            runner.run_method(intern!(py, "awaited"), [&handling])?
        };
        match handling.advance(py.None().bind(py))? {
            Step::Yields(awaited) => runner.run_method(intern!(py, "rest"), [&handling, &awaited]).map(Some),
            Step::Returns(result) => {
                if !call.reply(py, result.clone())? {
                    return runner.run_method(intern!(py, "ended"), [&result]).map(Some);
                }
                call.forget(py);
                Ok(None)
            }
        }
    }

    /// What raises an exception when it is awaited.
    fn raised<'py>(&self, py: Python<'py>, error: &PyErr) -> PyResult<Bound<'py, PyAny>> {
        let error = error.clone_ref(py).into_value(py).into_bound(py);
        self.runner.bind(py).run_method(intern!(py, "ended"), [py.None().bind(py), error.as_any()])
    }

    /// A later step, of the handler that waits.
    fn go_on<'py>(
        &self,
        py: Python<'py>,
        coroutine: Py<PyAny>,
        context: Py<PyAny>,
        run: impl FnOnce(&Bound<'py, PyAny>) -> PyResult<Step<'py>>,
    ) -> PyResult<Step<'py>> {
        let coroutine = coroutine.into_bound(py);
        let entered = Entered::enter(context.into_bound(py))?;
        let step = run(&coroutine);
        let context = entered.0.clone().unbind();
        drop(entered);
        let goes_on = matches!(step, Ok(Step::Yields(_)));
        drop(self.replace(if goes_on { State::Waits(coroutine.unbind(), context) } else { State::Over }));
        step
    }

    /// The coroutine that ends the call of the handler that waits.
    fn waiting(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        match &*self.state.lock() {
            State::Waits(coroutine, _) => Some(coroutine.clone_ref(py)),
            State::New(_) | State::Runs | State::Over => None,
        }
    }
}

impl Coroutine for HandlerTurn {
    fn step<'py>(&self, py: Python<'py>, value: &Bound<'py, PyAny>) -> PyResult<Step<'py>> {
        match self.replace(State::Runs) {
            State::New(call) => self.begin(py, call),
            State::Waits(coroutine, context) => {
                self.go_on(py, coroutine, context, |coroutine| coroutine.advance(value))
            }
            other => Err(self.refuse(other)),
        }
    }

    fn raise<'py>(&self, py: Python<'py>, exception: Bound<'py, PyAny>) -> PyResult<Step<'py>> {
        match self.replace(State::Runs) {
            State::New(call) => {
                let error = PyErr::from_value(exception);
                // The caller is told, as if the handler had raised the exception.
                let raised = self.raised(py, &error)?;
                let request = Bound::new(py, LoopRequest::new(call))?;
                let ended = self
                    .runner
                    .bind(py)
                    .run_method(intern!(py, "go_on"), [request.as_any(), &raised])
                    .and_then(|coroutine| coroutine.advance(py.None().bind(py)));
                drop(self.replace(State::Over));
                self.tell(py, None, false)?;
                ended.and(Err(error))
            }
            State::Waits(coroutine, context) => {
                self.go_on(py, coroutine, context, |coroutine| coroutine.throw(&exception))
            }
            other => Err(self.refuse(other)),
        }
    }

    fn end(&self, py: Python<'_>) -> PyResult<()> {
        match self.replace(State::Over) {
            State::New(call) => call.forget(py),
            State::Waits(coroutine, context) => {
                let _entered = Entered::enter(context.into_bound(py))?;
                coroutine.bind(py).run_method(intern!(py, "close"), [])?;
            }
            State::Runs | State::Over => {}
        }
        Ok(())
    }
}

coroutine_methods! {
impl HandlerTurn {
    /// Ends the first call with an exception, for a loop that cannot make a task.
    fn fail(&self, py: Python<'_>, exception: Bound<'_, PyAny>) {
        if let State::New(call) = self.replace(State::Over) {
            call.fail_with(py, &PyErr::from_value(exception));
            call.forget(py);
        }
    }

    /// Whether the turn has not begun.
    #[getter]
    fn is_new(&self) -> bool {
        matches!(*self.state.lock(), State::New(_))
    }

    // Attributes that asyncio, anyio and debuggers read of a task's coroutine.

    #[expect(clippy::unused_self, reason = "asyncio asks the object")]
    #[getter(__name__)]
    fn name(&self) -> &'static str {
        "handlers"
    }

    #[expect(clippy::unused_self, reason = "asyncio asks the object")]
    #[getter(__qualname__)]
    fn qualified_name(&self) -> &'static str {
        "nearcall handlers"
    }

    #[getter]
    fn cr_running(&self) -> bool {
        matches!(*self.state.lock(), State::Runs)
    }

    #[getter]
    fn cr_suspended(&self) -> bool {
        matches!(*self.state.lock(), State::Waits(..))
    }

    #[getter]
    fn cr_await(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.waiting(py)
    }

    #[getter]
    fn cr_frame<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.waiting(py).map(|coroutine| coroutine.bind(py).getattr(intern!(py, "cr_frame"))).transpose()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.runner)?;
        if let Some(state) = self.state.try_lock()
            && let State::Waits(coroutine, context) = &*state
        {
            visit.call(coroutine)?;
            visit.call(context)?;
        }
        Ok(())
    }

    fn __clear__(&self) {
        drop(self.replace(State::Over));
    }
}
}
