//! Typed payloads of messages.

use nearcall_core::{Body, FrameHead, Incoming, Kind};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::gil::callback::Callback;
use crate::values::plan::{Form, Method};

/// Encodes and decodes the payloads of one type: as the result of a method that returns it.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct RouteCodec {
    method: Py<Method>,
    /// Makes the exception for a payload that does not fit.
    explain: Py<PyAny>,
}

#[pymethods]
impl RouteCodec {
    /// `explain` makes the exception for a value or payload that does not fit, of the one that says why.
    #[new]
    fn new(method: Py<Method>, explain: Py<PyAny>) -> PyResult<Self> {
        if matches!(method.get().reply.form, Form::Parts | Form::Nothing) {
            return Err(PyTypeError::new_err("arrays in it lie beside a payload, and a message has only one"));
        }
        Ok(Self { method, explain })
    }

    /// A value as the payload of a message, after making sure that it can be read again.
    fn encode<'py>(&self, value: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let py = value.py();
        let encode = || {
            let encoded = self.method.get().reply.encode(value)?;
            let payload = encoded.with(|body| match body {
                Body::Whole(bytes) | Body::Parts(bytes, _) => PyBytes::new(py, bytes),
                Body::Pieces(pieces) => PyBytes::new(py, &pieces.concat()),
            });
            self.read(py, payload.as_bytes())?;
            Ok(payload)
        };
        encode().map_err(|error| self.explained(py, error))
    }

    /// The value of a payload.
    pub(crate) fn decode(&self, py: Python<'_>, payload: &[u8]) -> PyResult<Py<PyAny>> {
        self.read(py, payload).map_err(|error| self.explained(py, error))
    }
}

impl RouteCodec {
    fn read(&self, py: Python<'_>, payload: &[u8]) -> PyResult<Py<PyAny>> {
        let mut incoming = Incoming::new(FrameHead::new(Kind::Reply, 0), payload);
        self.method.get().reply.decode(py, &mut incoming, None)
    }

    #[cold]
    fn explained(&self, py: Python<'_>, error: PyErr) -> PyErr {
        let explained = self.explain.bind(py).run([error.value(py).as_any()]);
        explained.map_or(error, PyErr::from_value)
    }
}
