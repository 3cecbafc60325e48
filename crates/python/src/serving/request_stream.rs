//! The client's stream, for a handler that runs in a thread.

use std::sync::{Arc, Weak};
use std::time::Instant;

use nearcall_core::server::{Request, ServerCall};
use pyo3::prelude::*;

use crate::serving::served::{Serving, call_over};
use crate::values::plan::Method;

/// The client's stream, as the handler sees it: an iterator.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct RequestStream {
    of: Arc<Serving>,
    /// Weak: whoever keeps the iterator keeps nothing of a call that is over.
    call: Weak<ServerCall>,
    method: Py<Method>,
    until: Option<Instant>,
}

impl RequestStream {
    pub(crate) fn new(of: Arc<Serving>, method: Py<Method>, request: &Request, call: &Arc<ServerCall>) -> Self {
        Self { of, call: Arc::downgrade(call), method, until: request.deadline }
    }
}

#[pymethods]
impl RequestStream {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let method = self.method.get();
        let call = self.call.upgrade().ok_or_else(|| call_over(py, &method.name))?;
        let next = self.of.core.next_item(&call, self.until);
        self.of.decode_item(py, method, &call, next)
    }
}
