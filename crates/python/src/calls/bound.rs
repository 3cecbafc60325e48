//! What the callables of methods show of themselves to people and their tools: a name, a signature, a docstring.

use std::sync::Arc;

use nearcall_core::seconds_left;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::{PyClass, PyTraverseError, PyVisit};

use crate::calls::calling::Calling;
use crate::calls::deadline::Surroundings;
use crate::values::plan::Method;

/// The base of the callables of methods. To `inspect` and `help` they look like methods.
///
/// Nothing here runs during a call, and nothing is made before it is asked for.
#[pyclass(frozen, subclass, module = "nearcall._core")]
pub(crate) struct BoundMethod {
    pub(crate) calling: Calling,
    pub(crate) method: Py<Method>,
    pub(crate) for_loop: bool,
    /// Makes another callable of the same class.
    make: Make,
}

type Make = fn(Python<'_>, Calling, Py<Method>, bool) -> PyResult<Py<PyAny>>;

impl BoundMethod {
    /// A callable of the class `C`.
    pub(crate) fn make<C: PyClass<BaseType = Self> + Default>(
        py: Python<'_>,
        calling: Calling,
        method: Py<Method>,
        for_loop: bool,
    ) -> PyResult<Py<C>> {
        let make = |py: Python<'_>, calling, method, for_loop| {
            Self::make::<C>(py, calling, method, for_loop).map(Py::into_any)
        };
        let base = PyClassInitializer::from(Self { calling, method, for_loop, make });
        Py::new(py, base.add_subclass(C::default()))
    }

    /// The same method, called in another way.
    fn again(&self, py: Python<'_>, calling: Calling) -> PyResult<Py<PyAny>> {
        (self.make)(py, calling, self.method.clone_ref(py), self.for_loop)
    }

    /// The method's name and the place of the server, for texts.
    pub(crate) fn shown(&self) -> String {
        format!("{} at {}", self.method.get().name, self.calling.place())
    }
}

#[pymethods]
impl BoundMethod {
    /// The same method, with a timeout of `seconds` for each call instead of the client's.
    fn within(&self, py: Python<'_>, seconds: f64) -> PyResult<Py<PyAny>> {
        self.again(py, self.calling.within(py, seconds)?)
    }

    /// The same method for the copies of one call: each goes to another server, as long as there is one.
    fn for_copies(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.again(py, Calling { copies: Some(Arc::default()), ..self.calling.clone() })
    }

    /// Seconds that a call may take which begins now; `None` if it may take any time.
    fn time_allowed(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        Ok(Surroundings::look(py, self.calling.limits.of_call())?.until().map(seconds_left))
    }

    fn __repr__(&self) -> String {
        format!("<{}>", self.shown())
    }

    #[getter(__name__)]
    fn name(&self) -> &str {
        let full = self.method.get().name.as_str();
        full.rsplit_once('.').map_or(full, |(_, name)| name)
    }

    #[getter(__qualname__)]
    fn qualified_name(&self) -> &str {
        &self.method.get().name
    }

    #[getter(__signature__)]
    fn signature<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.method.get().signature(py, self.for_loop)
    }

    /// As an attribute of a class it stays what it is. Having this is how `inspect` knows a routine.
    fn __get__<'py>(
        slf: &Bound<'py, Self>,
        _instance: &Bound<'py, PyAny>,
        _owner: Option<&Bound<'py, PyAny>>,
    ) -> Bound<'py, Self> {
        slf.clone()
    }

    fn __reduce_ex__(slf: &Bound<'_, Self>, _protocol: &Bound<'_, PyAny>) -> PyResult<()> {
        let advice = if slf.get().calling.may_move() {
            "pass the URL, and connect where it is needed"
        } else {
            "pass the object on as an argument of a call"
        };
        let shown = slf.repr()?;
        Err(PyTypeError::new_err(format!(
            "{shown} cannot be pickled or copied: it belongs to its connection; {advice}"
        )))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.method)
    }
}
