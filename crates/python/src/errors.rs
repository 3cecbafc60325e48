//! Failures become Python exceptions and back. What the exceptions are is decided in Python.

use nearcall_core::{Failure, holds_more_than};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;

use crate::callback::Callback;

/// `make_error(code, message, details)` of `nearcall.codec.statuses`.
static MAKE_ERROR: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
/// `describe_error(exception)` of `nearcall.codec.statuses`.
static DESCRIBE_ERROR: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Values that the details of a failure may hold.
const MOST_DETAILS: usize = 1_000_000;

/// Tells the core how to make an exception of a failure, and a failure of an exception.
#[pyfunction]
pub(crate) fn install(py: Python<'_>, make_error: Py<PyAny>, describe_error: Py<PyAny>) {
    // Installed once; a second import of the same module changes nothing.
    let _ = MAKE_ERROR.set(py, make_error);
    let _ = DESCRIBE_ERROR.set(py, describe_error);
}

/// The exception for a failure.
pub(crate) fn raise(py: Python<'_>, failure: &Failure) -> PyErr {
    match MAKE_ERROR.get(py) {
        Some(make) => raise_with(py, make, failure),
        None => PyRuntimeError::new_err(failure.message.clone()),
    }
}

/// The same, made by a function of that kind.
pub(crate) fn raise_with(py: Python<'_>, make: &Py<PyAny>, failure: &Failure) -> PyErr {
    if holds_more_than(&failure.details, MOST_DETAILS) {
        let message = format!("{} (its details hold more than {MOST_DETAILS} values)", failure.message);
        return raise_with(py, make, &Failure::new(failure.code, message));
    }
    let details = PyBytes::new_with(py, failure.details.len(), |into| {
        into.copy_from_slice(&failure.details);
        Ok(())
    });
    let details = match details {
        Ok(details) => details,
        Err(error) => return error,
    };
    match make.bind(py).run_with((failure.code, failure.message.as_str(), details)) {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// The failure that an exception stands for.
pub(crate) fn describe(py: Python<'_>, error: &PyErr) -> Failure {
    let describe =
        DESCRIBE_ERROR.get(py).ok_or_else(|| PyRuntimeError::new_err("nearcall._core was used without nearcall"));
    failure_of(error, describe.and_then(|describe| describe.bind(py).run([error.value(py).as_any()])))
}

/// The failure that a function of that kind has made of an exception.
pub(crate) fn failure_of(error: &PyErr, described: PyResult<Bound<'_, PyAny>>) -> Failure {
    match described.and_then(|described| described.extract::<(u8, String, Vec<u8>)>()) {
        Ok((code, message, details)) => Failure { code, message, details },
        Err(_) => Failure::new(Failure::UNKNOWN, error.to_string()),
    }
}

/// The exception for wrong use of a value, such as a URL.
pub(crate) fn invalid(py: Python<'_>, message: String) -> PyErr {
    raise(py, &Failure::new(Failure::INVALID_ARGUMENT, message))
}
