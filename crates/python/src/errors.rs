//! Failures become Python exceptions and back. What the exceptions are is decided in Python.

use nearcall_core::{Failure, holds_more_than};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;

use crate::callback::Callback;

/// Returns the functions of [`Statuses`]: the package imports them when they are first needed.
static STATUSES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// `make_error(code, message, details)` and `describe_error(exception)` of `nearcall.codec.statuses`.
struct Statuses {
    make_error: Py<PyAny>,
    describe_error: Py<PyAny>,
}

impl Statuses {
    fn get(py: Python<'_>) -> PyResult<&'static Self> {
        static FOUND: PyOnceLock<Statuses> = PyOnceLock::new();
        FOUND.get_or_try_init(py, || {
            let find =
                STATUSES.get(py).ok_or_else(|| PyRuntimeError::new_err("nearcall._core was used without nearcall"))?;
            let (make_error, describe_error) = find.bind(py).run([])?.extract()?;
            Ok(Self { make_error, describe_error })
        })
    }
}

/// The most values that the details of a failure may hold.
const MOST_DETAILS: usize = 1_000_000;

/// Installs the callable that returns `make_error` and `describe_error`.
#[pyfunction]
pub(crate) fn install(py: Python<'_>, statuses: Py<PyAny>) {
    // Installed once; a second import of the same module changes nothing.
    let _ = STATUSES.set(py, statuses);
}

/// The exception for a failure.
pub(crate) fn raise(py: Python<'_>, failure: &Failure) -> PyErr {
    match Statuses::get(py) {
        Ok(statuses) => raise_with(py, &statuses.make_error, failure),
        // A process that is ending imports nothing any more.
        Err(_) => PyRuntimeError::new_err(failure.message.clone()),
    }
}

/// Like `raise`, with another function in place of `make_error`.
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
    failure_of(error, Statuses::get(py).and_then(|known| known.describe_error.bind(py).run([error.value(py).as_any()])))
}

/// The failure for an exception, from what a function like `describe_error` has returned.
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
