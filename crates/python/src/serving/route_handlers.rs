//! What handles the messages that other nodes of the router send.

use std::sync::Arc;

use nearcall_core::Payload;
use nearcall_route::Inbox;
use pyo3::prelude::*;

use crate::gil::callback::Callback;
use crate::gil::errors::raise;
use crate::serving::route_message::RouteMessage;

/// The handler of the method that takes messages: they wait for somebody to take them.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct RouteInbox(pub(crate) Arc<Inbox>);

/// The handler of the method that takes messages, for a node with handlers: the thread that has received a message calls
/// a function with it.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct RouteDispatch {
    inbox: Arc<Inbox>,
    function: Py<PyAny>,
}

impl RouteDispatch {
    pub(crate) fn new(inbox: Arc<Inbox>, function: Py<PyAny>) -> Self {
        Self { inbox, function }
    }

    /// Handles a message.
    pub(crate) fn run<'py>(&self, py: Python<'py>, payload: &mut Payload) -> PyResult<Bound<'py, PyAny>> {
        let arrived = self.inbox.read(payload).map_err(|problem| raise(py, &problem.into()))?;
        let Some(arrived) = arrived else { return Ok(py.None().into_bound(py)) };
        self.inbox.count_taken();
        let message = Bound::new(py, RouteMessage::new(arrived))?;
        self.function.bind(py).run([message.as_any()])
    }
}
