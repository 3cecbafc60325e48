//! Failures become Python exceptions and back. What the exceptions are is decided in Python.

use nearcall_core::{ConnectError, Failure};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;

/// `make_error(code, message, details)` of `nearcall.errors`.
static MAKE_ERROR: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
/// `describe_error(exception)` of `nearcall.errors`.
static DESCRIBE_ERROR: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Tells the core how to make an exception of a failure, and a failure of an exception.
#[pyfunction]
pub(crate) fn install(py: Python<'_>, make_error: Py<PyAny>, describe_error: Py<PyAny>) {
    // Installed once; a second import of the same module changes nothing.
    let _ = MAKE_ERROR.set(py, make_error);
    let _ = DESCRIBE_ERROR.set(py, describe_error);
}

/// The exception for a failure.
pub(crate) fn raise(py: Python<'_>, failure: &Failure) -> PyErr {
    let Some(make) = MAKE_ERROR.get(py) else {
        return PyRuntimeError::new_err(failure.message.clone());
    };
    let details = PyBytes::new(py, &failure.details);
    match make.bind(py).call1((failure.code, failure.message.as_str(), details)) {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// The failure that an exception stands for.
pub(crate) fn describe(py: Python<'_>, error: &PyErr) -> Failure {
    let described = DESCRIBE_ERROR
        .get(py)
        .ok_or_else(|| PyRuntimeError::new_err("nearcall._core was used without nearcall"))
        .and_then(|describe| describe.bind(py).call1((error.value(py),)))
        .and_then(|described| described.extract::<(u8, String, Vec<u8>)>());
    match described {
        Ok((code, message, details)) => Failure { code, message, details },
        Err(_) => Failure::new(Failure::UNKNOWN, error.to_string()),
    }
}

/// The exception for a connection that did not come about.
pub(crate) fn raise_connect(py: Python<'_>, error: &ConnectError) -> PyErr {
    raise(py, &nearcall_core::client::connect_failure(error))
}

/// The exception for wrong use of a value, such as a URL.
pub(crate) fn invalid(py: Python<'_>, message: String) -> PyErr {
    raise(py, &Failure::new(Failure::INVALID_ARGUMENT, message))
}
