//! What the coroutines that are written in Rust have in common.

use pyo3::exceptions::{PyBaseException, PyStopIteration};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// How one step of a coroutine ends.
pub(crate) enum Step<'py> {
    /// The coroutine waits for this object.
    Yields(Bound<'py, PyAny>),
    /// The coroutine has ended with this result.
    Returns(Bound<'py, PyAny>),
}

impl<'py> Step<'py> {
    /// The step as `__next__` returns it.
    pub(crate) fn iterated(self) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self {
            Self::Yields(awaited) => Ok(Some(awaited)),
            Self::Returns(value) => stop_iteration(&value),
        }
    }

    /// The step as `send` and `throw` return it.
    pub(crate) fn sent(self) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Yields(awaited) => Ok(awaited),
            Self::Returns(value) => Err(PyStopIteration::new_err((value.unbind(),))),
        }
    }
}

/// Ends an iteration with a value, as `return` does in a generator.
fn stop_iteration<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    if value.is_instance_of::<PyTuple>() || value.is_instance_of::<PyBaseException>() {
        // `PyErr_SetObject` takes a tuple for the exception's arguments, and an exception for the exception itself.
        return Err(PyStopIteration::new_err((value.clone().unbind(),)));
    }
    // Up to Python 3.11 the interpreter makes an exception object of the value only if some code looks at it.
    let stop = value.py().get_type::<PyStopIteration>();
    // SAFETY: attached; a class and a value.
    unsafe { ffi::PyErr_SetObject(stop.as_ptr(), value.as_ptr()) };
    // PyO3 returns a null pointer for `None`, and the exception that is set now ends the iteration.
    Ok(None)
}

/// The exception that `throw` is given: the first argument, or the second one after its class.
pub(crate) fn thrown<'py>(kind: Bound<'py, PyAny>, value: Option<Bound<'py, PyAny>>) -> Bound<'py, PyAny> {
    match value {
        Some(value) if !value.is_none() => value,
        _ => kind,
    }
}
