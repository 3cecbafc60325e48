//! What the callables of methods show of themselves to people and their tools: a name, a signature, a docstring.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

use crate::calls::calling::Calling;
use crate::values::plan::Method;

/// The base of the callables of methods. To `inspect` and `help` they look like methods.
///
/// Nothing here runs during a call, and nothing is made before it is asked for.
#[pyclass(frozen, subclass, module = "nearcall._core")]
pub(crate) struct BoundMethod {
    method: Py<Method>,
    for_loop: bool,
    /// Whether it calls one object, and not what a server serves.
    of_object: bool,
}

impl BoundMethod {
    pub(crate) fn new(py: Python<'_>, method: &Py<Method>, calling: &Calling, for_loop: bool) -> Self {
        Self { method: method.clone_ref(py), for_loop, of_object: !calling.may_move() }
    }
}

#[pymethods]
impl BoundMethod {
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
        let advice = if slf.get().of_object {
            "pass the object on as an argument of a call"
        } else {
            "pass the URL, and connect where it is needed"
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
