//! Calls without streams, from threads.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::calls::bound::BoundMethod;
use crate::calls::deadline::Surroundings;
use crate::calls::driving::Call;
use crate::calls::started::StartedCall;

// A method without streams, bound to a connection. No docstring: each object has its method's.
#[derive(Default)]
#[pyclass(frozen, extends = BoundMethod, module = "nearcall._core")]
pub(crate) struct Unary;

#[pymethods]
impl Unary {
    // Here, for Python gives every class a `__doc__` that hides the base's.
    #[getter(__doc__)]
    fn doc<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.as_super().get().method.get().doc(slf.py())
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__(
        slf: &Bound<'_, Self>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let (py, bound) = (slf.py(), slf.as_super().get());
        let limit = bound.calling.limits.of_call();
        let mut call = Call::new(Surroundings::look_and_wait(py, limit, || bound.shown())?);
        let core = bound.calling.connection(py, &mut call, false)?;
        match bound.attempt(py, &core, &mut call, (args, kwargs))? {
            Ok(value) => Ok(value),
            Err(again) => bound.repeat(py, &mut call, (args, kwargs), again),
        }
    }

    /// Sends a call and does not wait for its reply, nor for room to send it.
    #[pyo3(signature = (*args, **kwargs))]
    fn start(
        slf: &Bound<'_, Self>,
        args: Bound<'_, PyTuple>,
        kwargs: Option<Bound<'_, PyDict>>,
    ) -> PyResult<StartedCall> {
        StartedCall::send(slf.as_super(), args, kwargs)
    }
}
