//! What handles the messages that other nodes of the router send.

use std::sync::Arc;

use nearcall_core::Payload;
use nearcall_route::{Inbox, Settled};
use pyo3::prelude::*;
use pyo3::types::PyBool;

use crate::gil::callback::Callback;
use crate::gil::errors::raise;
use crate::gil::interpreter::detach;
use crate::serving::route_message::RouteMessage;
use crate::serving::route_owner::Owner;

/// The handler of the method that takes messages: they wait for somebody to take them.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct RouteInbox(pub(crate) Arc<Inbox>);

/// The handler of the method that takes messages, for a node with handlers: the thread that has received a message calls
/// the one for its type. Those that come without a call wait in the inbox for threads of their own.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct RouteDispatch {
    inbox: Arc<Inbox>,
    owner: Arc<Owner>,
    /// Called with messages of a type that no handler takes.
    unhandled: Py<PyAny>,
    /// Called with the name of a handler, a message, and what the handler has raised.
    failed: Py<PyAny>,
}

impl RouteDispatch {
    pub(crate) fn new(inbox: Arc<Inbox>, owner: Arc<Owner>, unhandled: Py<PyAny>, failed: Py<PyAny>) -> Self {
        Self { inbox, owner, unhandled, failed }
    }

    /// Takes a message out of a call. `None` if a call had waited for it.
    pub(crate) fn take<'py>(
        &self,
        py: Python<'py>,
        payload: &mut Payload,
    ) -> PyResult<Option<Bound<'py, RouteMessage>>> {
        let head = self.inbox.read(payload).map_err(|problem| raise(py, &problem.into()))?;
        let Some(head) = head else { return Ok(None) };
        self.inbox.count_taken();
        Bound::new(py, RouteMessage::new(head, payload.take(), &self.owner)).map(Some)
    }

    /// Handles a message. What has become of it.
    pub(crate) fn handle(&self, py: Python<'_>, message: &Bound<'_, RouteMessage>) -> PyResult<Settled> {
        let kind = message.get().kind();
        let Some(handler) = self.owner.handler(py, kind) else {
            let answered = self.unhandled.bind(py).run([message.as_any()])?;
            return Ok(if answered.is(&*PyBool::new(py, true)) { Settled::Handled } else { Settled::Failed });
        };
        let _running = self.owner.run();
        // A payload that does not fit never reaches the handler.
        let fits = match &handler.codec {
            Some(codec) => message.get().decode(py, codec.get()).map(drop),
            None => Ok(()),
        };
        let otherwise = if fits.is_ok() { Settled::Failed } else { Settled::Useless };
        let Err(error) = fits.and_then(|()| handler.function.bind(py).run([message.as_any()])) else {
            return Ok(Settled::Handled);
        };
        let name = self.owner.name(kind).into_pyobject(py)?;
        self.failed.bind(py).run([name.as_any(), message.as_any(), error.value(py).as_any()])?;
        Ok(otherwise)
    }
}

#[pymethods]
impl RouteDispatch {
    /// Handles messages of the inbox, of which it takes `most` at once, until nothing more will come. For a thread of its
    /// own.
    fn work(&self, py: Python<'_>, most: usize) -> PyResult<()> {
        loop {
            let taken = detach(py, || self.inbox.take(most, None));
            if taken.is_empty() {
                return Ok(());
            }
            for arrived in taken {
                let message = Bound::new(py, RouteMessage::waited(arrived, &self.owner))?;
                let settled = self.handle(py, &message)?;
                message.get().end(settled);
            }
        }
    }
}
