//! Where calls go, as Python holds it: to what a server serves, or to one object. It makes the callables of methods.

use pyo3::prelude::*;

use crate::calls::aio::AsyncUnary;
use crate::calls::bound::BoundMethod;
use crate::calls::calling::{Calling, Way};
use crate::calls::deadline::Surroundings;
use crate::calls::oneway::Oneway;
use crate::calls::opening::begin_stream;
use crate::calls::stream::Stream;
use crate::calls::unary::Unary;
use crate::values::plan::Method;

/// The base of what can be called.
#[pyclass(frozen, subclass, module = "nearcall._core")]
pub(crate) struct Calls {
    pub(crate) calling: Calling,
}

#[pymethods]
impl Calls {
    /// A callable for a method without streams.
    fn unary(&self, py: Python<'_>, method: Py<Method>) -> PyResult<Py<Unary>> {
        BoundMethod::make(py, self.calling.clone(), method, false)
    }

    /// A callable for a method that sends no reply. With `for_loop` it never waits for a connection.
    #[pyo3(signature = (method, *, for_loop))]
    fn oneway(&self, py: Python<'_>, method: Py<Method>, for_loop: bool) -> PyResult<Py<Oneway>> {
        BoundMethod::make(py, self.calling.clone(), method, for_loop)
    }

    /// A callable for a method without streams that returns an awaitable.
    fn async_unary(&self, py: Python<'_>, method: Py<Method>) -> PyResult<Py<AsyncUnary>> {
        BoundMethod::make(py, self.calling.clone(), method, true)
    }

    /// Begins a call with streams. `arguments` is what the plan's `split` returned.
    #[pyo3(signature = (method, arguments, *, for_loop))]
    fn open(
        &self,
        py: Python<'_>,
        method: &Bound<'_, Method>,
        arguments: &Bound<'_, PyAny>,
        for_loop: bool,
    ) -> PyResult<Stream> {
        begin_stream(py, &self.calling, method, arguments, for_loop)
    }

    /// Seconds that a call made now may take; `None` if there is no limit.
    fn time_left(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        Ok(Surroundings::look(py, self.calling.limits.of_call())?.left().map(|left| left.as_secs_f64()))
    }

    /// Raises unless the running event loop is the one that the connection was given to.
    fn check_loop(&self, py: Python<'_>) -> PyResult<()> {
        self.calling.waiting.check_loop(py)
    }

    /// To be called by the event loop when it has sent a one-way call.
    fn sent(&self, py: Python<'_>) -> PyResult<()> {
        self.calling.waiting.stirred(py)
    }
}

/// One object at the other end of a connection.
#[pyclass(frozen, extends = Calls, name = "Target", module = "nearcall._core")]
pub(crate) struct CalledObject;

impl CalledObject {
    pub(crate) fn new(py: Python<'_>, calling: Calling) -> PyResult<Py<Self>> {
        Py::new(py, PyClassInitializer::from(Calls { calling }).add_subclass(Self))
    }
}

#[pymethods]
impl CalledObject {
    /// A call on a lost connection fails by itself, and no new connection would have the object.
    #[classattr]
    #[pyo3(name = "connected")]
    const CONNECTED: bool = true;

    /// Whether the connection is gone, for good.
    #[getter]
    fn closed(slf: &Bound<'_, Self>) -> bool {
        match &slf.as_super().get().calling.way {
            Way::Object(target) => target.hold.core().is_none_or(|core| core.is_dead()),
            Way::Channel(_) | Way::Nowhere => true,
        }
    }
}
