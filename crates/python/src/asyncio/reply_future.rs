//! The future of an awaited call, with as much of asyncio's interface as a task uses.
//!
//! asyncio's own future lets the loop run the task in its next round. For each reply that makes, queues and runs a
//! callback, which took longer than all the rest of a short call. Replies are delivered by a callback of the loop
//! anyway, and this callback [runs] the tasks itself.
//!
//! [runs]: ReplyFuture::run

use nearcall_core::lock::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{PyTraverseError, PyVisit, intern};

use crate::gil::callback::Callback;
use crate::gil::entered::Entered;

/// A task takes any object with `_asyncio_future_blocking` for a future, and uses only the methods that are here.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct ReplyFuture {
    /// The loop that runs the task.
    running: Py<PyAny>,
    state: Mutex<State>,
}

enum State {
    /// No task waits yet.
    New,
    /// The callback that runs the task, and the task's context.
    Awaited(Py<PyAny>, Py<PyAny>),
    /// The task runs, or is about to.
    Woken,
}

impl ReplyFuture {
    pub(crate) fn new(running: Py<PyAny>) -> Self {
        Self { running, state: Mutex::new(State::New) }
    }

    /// The callback that runs the task, and its context, the first time that the task is woken.
    fn take(&self) -> Option<(Py<PyAny>, Py<PyAny>)> {
        match std::mem::replace(&mut *self.state.lock(), State::Woken) {
            State::Awaited(step, context) => Some((step, context)),
            State::New | State::Woken => None,
        }
    }

    /// Runs the task until it waits for something else. Only for a callback of the loop: no other task may be running
    /// now.
    ///
    /// # Errors
    /// What a task lets through: `SystemExit` and `KeyboardInterrupt`, which end the loop.
    pub(crate) fn run(this: &Bound<'_, Self>) -> PyResult<()> {
        let py = this.py();
        let Some((step, context)) = this.get().take() else { return Ok(()) };
        let _entered = Entered::enter(context.into_bound(py))?;
        step.bind(py).run([this.as_any()]).map(drop)
    }

    /// Lets the loop run the task in its next round. For callers that may run inside another task.
    pub(crate) fn run_soon(this: &Bound<'_, Self>) -> PyResult<()> {
        let Some((step, context)) = this.get().take() else { return Ok(()) };
        this.get().queue(this, step, context)
    }

    fn queue(&self, this: &Bound<'_, Self>, step: Py<PyAny>, context: Py<PyAny>) -> PyResult<()> {
        let py = this.py();
        let call_soon = self.running.bind(py).attribute(intern!(py, "call_soon"))?;
        let names = PyTuple::new(py, [intern!(py, "context")])?;
        let arguments = [step.into_bound(py), this.clone().into_any(), context.into_bound(py)];
        call_soon.run_many(&arguments, Some(&names)).map(drop)
    }
}

#[pymethods]
#[expect(clippy::unused_self, reason = "tasks ask the object")]
impl ReplyFuture {
    /// Tells a task that this is awaited, not just yielded. Always true.
    #[getter(_asyncio_future_blocking)]
    fn blocking(&self) -> bool {
        true
    }

    #[setter(_asyncio_future_blocking)]
    fn set_blocking(&self, _blocking: bool) {}

    fn get_loop(&self, py: Python<'_>) -> Py<PyAny> {
        self.running.clone_ref(py)
    }

    #[pyo3(signature = (callback, *, context))]
    fn add_done_callback(slf: &Bound<'_, Self>, callback: Py<PyAny>, context: Py<PyAny>) -> PyResult<()> {
        let this = slf.get();
        {
            let mut state = this.state.lock();
            if matches!(*state, State::New) {
                *state = State::Awaited(callback, context);
                return Ok(());
            }
        }
        this.queue(slf, callback, context)
    }

    /// Wakes the task, which is to be cancelled and raises the exception itself.
    #[pyo3(signature = (msg=None))]
    fn cancel(slf: &Bound<'_, Self>, msg: Option<Py<PyAny>>) -> PyResult<bool> {
        drop(msg);
        Self::run_soon(slf)?;
        Ok(false)
    }

    /// Empty: the task itself takes what has arrived.
    fn result(&self) {}

    fn done(&self) -> bool {
        matches!(*self.state.lock(), State::Woken)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.running)?;
        if let Some(state) = self.state.try_lock()
            && let State::Awaited(step, context) = &*state
        {
            visit.call(step)?;
            visit.call(context)?;
        }
        Ok(())
    }

    fn __clear__(&self) {
        let _ = self.take();
    }
}
