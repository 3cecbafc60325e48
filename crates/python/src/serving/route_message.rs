//! A message that a node has taken in.

use std::sync::{Arc, OnceLock};

use nearcall_core::Payload;
use nearcall_route::{Arrived, Head};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::values::payload::bytes;
use crate::values::view::View;

/// A message that has arrived.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct RouteMessage {
    head: Head,
    /// The call that brought it.
    call: Arc<Payload>,
    /// Where in that the message's own payload begins.
    begin: usize,
    bytes: OnceLock<Py<PyBytes>>,
}

impl RouteMessage {
    pub(crate) fn new(arrived: Arrived) -> Self {
        let Arrived { head, call, begin, .. } = arrived;
        Self { head, call: Arc::new(call), begin, bytes: OnceLock::new() }
    }

    /// What it says beside its payload.
    pub(crate) fn head(&self) -> &Head {
        &self.head
    }
}

#[pymethods]
impl RouteMessage {
    #[getter(r#type)]
    fn kind(&self) -> i32 {
        self.head.kind()
    }

    #[getter]
    fn subscription(&self) -> i32 {
        self.head.subscription()
    }

    #[getter]
    fn transaction(&self) -> &[u8] {
        self.head.transaction()
    }

    #[getter]
    fn entity(&self) -> &str {
        self.head.entity()
    }

    #[getter]
    fn source(&self) -> &str {
        self.head.source()
    }

    #[getter]
    fn address(&self) -> &str {
        self.head.address()
    }

    #[getter]
    fn trace(&self) -> &[u8] {
        self.head.trace()
    }

    /// The payload, copied.
    #[getter]
    pub(crate) fn payload(&self, py: Python<'_>) -> PyResult<Py<PyBytes>> {
        if let Some(bytes) = self.bytes.get() {
            return Ok(bytes.clone_ref(py));
        }
        let copy = bytes(py, &self.call, self.begin, self.__len__())?.unbind();
        Ok(self.bytes.get_or_init(|| copy).clone_ref(py))
    }

    /// The payload where it lies.
    #[getter]
    fn view<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyMemoryView>> {
        View::of(py, &self.call, self.begin, self.__len__())
    }

    /// Bytes of the payload.
    fn __len__(&self) -> usize {
        self.call.len() - self.begin
    }
}
