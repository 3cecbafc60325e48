//! Failures become Python exceptions and back. What the exceptions are is decided in Python.

use nearcall_core::{Failure, Metadata, holds_more_than};
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyString};

use crate::gil::callback::Callback;
use crate::gil::metadata::metadata_to;

/// Returns the functions of [`Errors`]: the package imports them when they are first needed.
static ERRORS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// `make_error(code, message, details, trailing)` and `describe_error(exception)` of `nearcall.codec.statuses`, and
/// `explain_no_stream(method, result)` of `nearcall.codec.explain`.
struct Errors {
    make_error: Py<PyAny>,
    describe_error: Py<PyAny>,
    explain_no_stream: Py<PyAny>,
}

impl Errors {
    fn get(py: Python<'_>) -> PyResult<&'static Self> {
        static FOUND: PyOnceLock<Errors> = PyOnceLock::new();
        FOUND.get_or_try_init(py, || {
            let find =
                ERRORS.get(py).ok_or_else(|| PyRuntimeError::new_err("nearcall._core was used without nearcall"))?;
            let (make_error, describe_error, explain_no_stream) = find.bind(py).run([])?.extract()?;
            Ok(Self { make_error, describe_error, explain_no_stream })
        })
    }
}

/// The most values that the details of a failure may hold.
const MOST_DETAILS: usize = 1_000_000;

/// Installs the callable that returns these functions.
#[pyfunction]
pub(crate) fn install(py: Python<'_>, errors: Py<PyAny>) {
    // Installed once; a second import of the same module changes nothing.
    let _ = ERRORS.set(py, errors);
}

/// The exception for a failure.
pub(crate) fn raise(py: Python<'_>, failure: &Failure) -> PyErr {
    raise_for_call(py, None, failure, None)
}

/// The exception for a failed call, with the trailing metadata that came with the failure. `make`: in place of
/// `make_error`.
pub(crate) fn raise_for_call(
    py: Python<'_>,
    make: Option<&Py<PyAny>>,
    failure: &Failure,
    trailing: Option<&Metadata>,
) -> PyErr {
    let make = match make {
        Some(make) => Ok(make),
        None => Errors::get(py).map(|errors| &errors.make_error),
    };
    match make {
        Ok(make) => raise_with(py, make, failure, trailing),
        // A process that is ending imports nothing any more.
        Err(_) => PyRuntimeError::new_err(failure.message.clone()),
    }
}

fn raise_with(py: Python<'_>, make: &Py<PyAny>, failure: &Failure, trailing: Option<&Metadata>) -> PyErr {
    if holds_more_than(&failure.details, MOST_DETAILS) {
        let message = format!("{} (its details hold more than {MOST_DETAILS} values)", failure.message);
        return raise_with(py, make, &Failure::new(failure.code, message), trailing);
    }
    let details = PyBytes::new_with(py, failure.details.len(), |into| {
        into.copy_from_slice(&failure.details);
        Ok(())
    });
    let trailing = trailing.map(|trailing| metadata_to(py, trailing));
    let made =
        details.and_then(|details| make.bind(py).run_with((failure.code, failure.message.as_str(), details, trailing)));
    made.map_or_else(|error| error, PyErr::from_value)
}

/// The failure that an exception stands for.
pub(crate) fn describe(py: Python<'_>, error: &PyErr) -> Failure {
    failure_of(error, Errors::get(py).and_then(|known| known.describe_error.bind(py).run([error.value(py).as_any()])))
}

/// The failure for an exception, from what a function like `describe_error` has returned.
pub(crate) fn failure_of(error: &PyErr, described: PyResult<Bound<'_, PyAny>>) -> Failure {
    match described.and_then(|described| described.extract::<(u8, String, Vec<u8>)>()) {
        Ok((code, message, details)) => Failure { code, message, details },
        Err(_) => Failure::new(Failure::UNKNOWN, error.to_string()),
    }
}

/// The exception for a handler that is to give a stream, if it has returned something that cannot be iterated over.
/// `error` is what trying that has raised.
#[cold]
pub(crate) fn no_stream(method: &str, result: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = result.py();
    if result.hasattr(intern!(py, "__iter__")).unwrap_or(true) {
        return error;
    }
    let explained = Errors::get(py)
        .and_then(|errors| errors.explain_no_stream.bind(py).run([PyString::new(py, method).as_any(), result]));
    explained.map_or_else(|error| error, PyErr::from_value)
}

/// The exception for wrong use of a value, such as a URL.
pub(crate) fn invalid(py: Python<'_>, message: String) -> PyErr {
    raise(py, &Failure::new(Failure::INVALID_ARGUMENT, message))
}
