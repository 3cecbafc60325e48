//! The client's stream, for a handler that runs in a thread.

use std::sync::Arc;
use std::time::Instant;

use nearcall_core::server::{Request, Server as Core, ServerCall, ServerConnection, ValuesCharge};
use pyo3::prelude::*;

use crate::calling::Calling;
use crate::plan::Method;
use crate::served::decode_item;

/// The client's stream, as the handler sees it: an iterator.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct RequestStream {
    core: Arc<Core>,
    calling: Calling,
    connection: Arc<ServerConnection>,
    call: Arc<ServerCall>,
    method: Py<Method>,
    until: Option<Instant>,
    /// What the last item takes.
    values: ValuesCharge,
}

impl RequestStream {
    pub(crate) fn new(
        core: Arc<Core>,
        calling: Calling,
        method: Py<Method>,
        request: &Request,
        call: Arc<ServerCall>,
    ) -> Self {
        let connection = Arc::clone(request.connection());
        let (until, values) = (request.deadline, ValuesCharge::default());
        Self { core, calling, connection, call, method, until, values }
    }
}

#[pymethods]
impl RequestStream {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let next = self.core.next_item(&self.call, self.until);
        decode_item(py, &self.core, &self.calling, self.method.get(), &self.connection, &self.values, next)
    }
}
