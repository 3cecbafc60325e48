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

/// A coroutine that is written in Rust. [`coroutine_methods!`] makes methods of this, as tasks call them.
pub(crate) trait Coroutine {
    /// Goes on with what the task sends.
    fn step<'py>(&self, py: Python<'py>, value: &Bound<'py, PyAny>) -> PyResult<Step<'py>>;

    /// Goes on with an exception, where the coroutine waits.
    fn raise<'py>(&self, py: Python<'py>, exception: Bound<'py, PyAny>) -> PyResult<Step<'py>>;

    /// Ends the coroutine where it waits.
    fn end(&self, py: Python<'_>) -> PyResult<()>;
}

/// The methods of a class that is a [`Coroutine`]: those by which tasks run it, and its own.
macro_rules! coroutine_methods {
    (impl $class:ident { $($own:tt)* }) => {
        #[pyo3::pymethods]
        impl $class {
            fn __await__(slf: pyo3::Py<Self>) -> pyo3::Py<Self> {
                slf
            }

            fn __iter__(slf: pyo3::Py<Self>) -> pyo3::Py<Self> {
                slf
            }

            fn __next__<'py>(&self, py: pyo3::Python<'py>) -> pyo3::PyResult<Option<pyo3::Bound<'py, pyo3::PyAny>>> {
                $crate::gil::coroutine::Coroutine::step(self, py, py.None().bind(py))?.iterated()
            }

            fn send<'py>(
                &self,
                py: pyo3::Python<'py>,
                value: &pyo3::Bound<'py, pyo3::PyAny>,
            ) -> pyo3::PyResult<pyo3::Bound<'py, pyo3::PyAny>> {
                $crate::gil::coroutine::Coroutine::step(self, py, value)?.sent()
            }

            #[pyo3(signature = (kind, value=None, traceback=None))]
            fn throw<'py>(
                &self,
                py: pyo3::Python<'py>,
                kind: pyo3::Bound<'py, pyo3::PyAny>,
                value: Option<pyo3::Bound<'py, pyo3::PyAny>>,
                traceback: Option<pyo3::Bound<'py, pyo3::PyAny>>,
            ) -> pyo3::PyResult<pyo3::Bound<'py, pyo3::PyAny>> {
                drop(traceback);
                let exception = $crate::gil::coroutine::thrown(kind, value);
                $crate::gil::coroutine::Coroutine::raise(self, py, exception)?.sent()
            }

            fn close(&self, py: pyo3::Python<'_>) -> pyo3::PyResult<()> {
                $crate::gil::coroutine::Coroutine::end(self, py)
            }

            $($own)*
        }
    };
}
pub(crate) use coroutine_methods;

/// The exception that `throw` is given: the first argument, or the second one after its class.
pub(crate) fn thrown<'py>(kind: Bound<'py, PyAny>, value: Option<Bound<'py, PyAny>>) -> Bound<'py, PyAny> {
    match value {
        Some(value) if !value.is_none() => value,
        _ => kind,
    }
}
