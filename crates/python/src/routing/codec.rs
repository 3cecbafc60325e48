//! Typed payloads of messages.

use nearcall_core::{Body, FrameHead, Incoming, Kind};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::serving::route_message::RouteMessage;
use crate::values::plan::{Form, Method};

/// Encodes and decodes the payloads of one type: as the result of a method that returns it.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct RouteCodec(Py<Method>);

#[pymethods]
impl RouteCodec {
    #[new]
    fn new(method: Py<Method>) -> PyResult<Self> {
        if matches!(method.get().reply.form, Form::Parts | Form::Nothing) {
            return Err(PyTypeError::new_err("arrays in it lie beside a payload, and a message has only one"));
        }
        Ok(Self(method))
    }

    /// A value as the payload of a message, after making sure that it can be read again.
    fn encode<'py>(&self, value: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let py = value.py();
        let encoded = self.0.get().reply.encode(value)?;
        let payload = encoded.with(|body| match body {
            Body::Whole(bytes) | Body::Parts(bytes, _) => PyBytes::new(py, bytes),
            Body::Pieces(pieces) => PyBytes::new(py, &pieces.concat()),
        });
        self.read(py, payload.as_bytes())?;
        Ok(payload)
    }

    /// The value of a message's payload.
    fn decode(&self, py: Python<'_>, message: &RouteMessage) -> PyResult<Py<PyAny>> {
        self.read(py, message.payload(py)?.as_bytes(py))
    }
}

impl RouteCodec {
    fn read(&self, py: Python<'_>, payload: &[u8]) -> PyResult<Py<PyAny>> {
        let mut incoming = Incoming::new(FrameHead::new(Kind::Reply, 0), payload);
        self.0.get().reply.decode(py, &mut incoming, None)
    }
}
