//! Requests for handlers that are coroutines: the event loop takes them, and nothing here waits.

use std::sync::Arc;
use std::time::Instant;

use nearcall_core::lock::Mutex;
use nearcall_core::server::{ItemOutcome, NextItem, Request, Server as Core};
use nearcall_core::{Kind, Outgoing};
use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::context::Call;
use crate::errors::describe_for;
use crate::plan::Method;
use crate::served::{Served, decode_arguments, decode_item, late, send_reply, too_long, tracked};

/// One request for a coroutine handler.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct LoopRequest {
    core: Arc<Core>,
    methods: Arc<Vec<Served>>,
    index: usize,
    request: Mutex<Request>,
}

impl LoopRequest {
    pub(crate) fn new(core: Arc<Core>, methods: Arc<Vec<Served>>, request: Request) -> Self {
        let index = usize::from(request.head.method);
        Self { core, methods, index, request: Mutex::new(request) }
    }

    fn served(&self) -> &Method {
        self.methods[self.index].method.get()
    }
}

#[pymethods]
impl LoopRequest {
    /// The method's number.
    #[getter]
    fn index(&self) -> usize {
        self.index
    }

    /// What `Server.changed` calls this request when something has changed for it.
    #[getter]
    fn key(&self) -> usize {
        self.request.lock().call.as_ref().map_or(0, |call| Arc::as_ptr(call).addr())
    }

    /// Whether the client waits for no reply.
    #[getter]
    fn oneway(&self) -> bool {
        self.request.lock().is_oneway()
    }

    /// Whether the client gave the call up, or is gone.
    #[getter]
    fn cancelled(&self) -> bool {
        self.request.lock().call.as_ref().is_some_and(|call| call.is_cancelled())
    }

    /// The call, for `nearcall.context()`.
    fn call(&self) -> Call {
        Call::new(&self.core, &self.request.lock(), self.served())
    }

    /// Seconds until the caller stops waiting; `None` if it waits for ever.
    #[getter]
    fn time_left(&self) -> Option<f64> {
        self.request.lock().deadline.map(|until| until.saturating_duration_since(Instant::now()).as_secs_f64())
    }

    /// Ends the call because its deadline has passed.
    fn fail_late(&self) {
        self.request.lock().fail(&self.core, &late(&self.served().name));
    }

    /// The arguments, every parameter in order but the stream. To be asked once.
    fn arguments<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        decode_arguments(py, self.served(), &mut self.request.lock())
    }

    /// The next item of the client's stream, or `default` if it is not here yet; raises `StopAsyncIteration` at the end.
    fn try_next(&self, py: Python<'_>, default: Py<PyAny>) -> PyResult<Py<PyAny>> {
        let call = tracked(&self.request.lock())?;
        match call.try_next_item(&self.core) {
            NextItem::Pending => Ok(default),
            next => decode_item(py, self.served(), next)?.ok_or_else(|| PyStopAsyncIteration::new_err(())),
        }
    }

    /// Sends an item of the server's stream: `True`; `False` if the client gave the call up, `None` if it must take
    /// earlier items first: `changed` tells when to try again.
    fn try_send(&self, py: Python<'_>, item: Bound<'_, PyAny>) -> PyResult<Option<bool>> {
        let call = tracked(&self.request.lock())?;
        let encoded = self.served().reply.encode(item)?;
        let sent = encoded.with(|body| call.try_send_item(&self.core, &Outgoing::new(Kind::Item, body)));
        Ok(match sent.map_err(|error| too_long(py, &self.served().name, &error))? {
            ItemOutcome::Sent => Some(true),
            ItemOutcome::Cancelled | ItemOutcome::Late => Some(false),
            ItemOutcome::NoCredit => None,
        })
    }

    /// Ends the call with a result. `False` if the client must read what it was sent first: `changed` tells when to try again.
    fn reply(&self, py: Python<'_>, result: Bound<'_, PyAny>) -> PyResult<bool> {
        let request = self.request.lock();
        if request.is_oneway() {
            request.end_oneway();
            return Ok(true);
        }
        let encoded = self.served().reply.encode(result)?;
        send_reply(py, &self.core, self.served(), &request, &encoded)
    }

    /// Ends the call well after its items.
    fn end(&self) {
        // The client being gone by now changes nothing.
        let _ = self.request.lock().end_stream(&self.core);
    }

    /// Ends the call with an exception.
    fn fail(&self, py: Python<'_>, exception: Bound<'_, PyAny>) {
        let failure = describe_for(py, self.served(), &PyErr::from_value(exception));
        self.request.lock().fail(&self.core, &failure);
    }

    /// The handler is through: nothing more comes for the call, nor is it counted. Without a word, if it was not ended.
    fn forget(&self) {
        let request = self.request.lock();
        request.forget();
        request.finish();
    }
}
