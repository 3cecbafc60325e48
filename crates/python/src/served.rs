//! What a served method is, and the steps of serving it that threads and event loops share.

use std::sync::Arc;

use nearcall_core::server::{NextItem, Request, Server as Core, ServerCall};
use nearcall_core::{Failure, LinkError};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use crate::context::{OK, standing};
use crate::errors::raise;
use crate::plan::Method;

/// A method and what runs it.
pub(crate) struct Served {
    pub(crate) method: Py<Method>,
    pub(crate) handler: Py<PyAny>,
}

/// The call's state shared with the receiving worker.
pub(crate) fn tracked(request: &Request) -> PyResult<Arc<ServerCall>> {
    request.call.clone().ok_or_else(|| PyOSError::new_err("the call has no stream"))
}

/// Ends a call with a result. How it ended; `None` for an event loop if there is no room.
pub(crate) fn reply(
    py: Python<'_>,
    core: &Core,
    method: &Method,
    request: &Request,
    result: Bound<'_, PyAny>,
    observed: bool,
) -> PyResult<Option<u8>> {
    if request.is_oneway() {
        request.end_oneway();
        return Ok(Some(OK));
    }
    let encoded = method.reply.encode(result)?;
    let code = standing(request, observed);
    match encoded.send(py, |body| request.reply(core, body)) {
        Ok(()) => Ok(Some(code)),
        Err(LinkError::Full) => Ok(None),
        Err(error) if error.spares_connection() => Err(too_long(py, &method.name, &error)),
        // The client is gone, and with it everybody who could be told.
        Err(_) => Ok(Some(Failure::CANCELLED)),
    }
}

/// Ends a call well after its items. How it ended.
pub(crate) fn end_stream(core: &Core, request: &Request, observed: bool) -> u8 {
    let code = standing(request, observed);
    if request.end_stream(core).is_ok() { code } else { Failure::CANCELLED }
}

pub(crate) fn late(name: &str) -> Failure {
    Failure::new(Failure::DEADLINE_EXCEEDED, format!("the deadline of {name} passed before it was done"))
}

pub(crate) fn too_long(py: Python<'_>, name: &str, error: &LinkError) -> PyErr {
    // Read at the client: it says whose limit that is, and where to raise it.
    let what = match error {
        LinkError::TooLong { len, limit } => format!(
            "the message has {len} bytes, this client's limit is {limit}; raise it with connect(..., max_message_size=...)"
        ),
        other => other.to_string(),
    };
    raise(py, &Failure::new(Failure::RESOURCE_EXHAUSTED, format!("the reply of {name}: {what}")))
}

/// An item for the handler, `None` at the end of the stream.
pub(crate) fn decode_item(py: Python<'_>, method: &Method, next: NextItem) -> PyResult<Option<Py<PyAny>>> {
    match next {
        NextItem::Item(item) => {
            let value = method.request_item.as_ref().expect("a method with a client stream has an item");
            value.decode(py, item).map(Some)
        }
        NextItem::End | NextItem::Pending => Ok(None),
        NextItem::Late => Err(raise(py, &late(&method.name))),
        NextItem::Cancelled => {
            let failure = Failure::new(Failure::CANCELLED, format!("the caller of {} gave it up", method.name));
            Err(raise(py, &failure))
        }
    }
}
