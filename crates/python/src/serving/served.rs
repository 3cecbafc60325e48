//! The steps of serving a call that threads and event loops share.

use std::sync::Arc;

use nearcall_core::client::Connection as Caller;
use nearcall_core::server::{NextItem, Request, Server as Core, ServerCall, ServerConnection};
use nearcall_core::{Export, Failure, Incoming, LinkError};
use pyo3::exceptions::PyOSError;
use pyo3::panic::PanicException;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::calls::calling::Calling;
use crate::calls::crossing::{decoding, encoding};
use crate::gil::callback::Callback;
use crate::gil::errors::{describe, failure_of, raise};
use crate::references::objects::{Given, Served};
use crate::serving::context::{Call, OK, standing};
use crate::values::encoded::Encoded;
use crate::values::plan::Method;

/// What a server serves, and with what.
pub(crate) struct Serving {
    pub(crate) core: Arc<Core>,
    pub(crate) methods: Vec<Served>,
    /// How objects of clients are called.
    pub(crate) calling: Calling,
}

/// The failure for an exception of a method's handler. If the exception is a fault, the server's operator is told.
#[cold]
pub(crate) fn describe_for(py: Python<'_>, method: &Method, call: Call, error: &PyErr) -> Failure {
    let Some(describe) = &method.describe_error else { return describe(py, error) };
    // With its traceback, which `value` alone may lack.
    let exception = error.clone_ref(py).into_value(py);
    let described = Bound::new(py, call).and_then(|call| describe.bind(py).run([exception.bind(py).as_any(), &call]));
    // In a thread such an exception becomes a panic again, and never gets here.
    if error.is_instance_of::<PanicException>(py) { Request::fault() } else { failure_of(error, described) }
}

impl Serving {
    /// The method of that number and its handler: of the object `target`, which is then returned, or else of the server.
    #[inline]
    pub(crate) fn find<'a>(&'a self, target: Option<&'a Arc<Export>>, number: u16) -> (&'a Served, Option<&'a Given>) {
        let given = target.and_then(|export| Given::of(export.object()));
        // The core has checked that the method exists in that place.
        match given {
            Some(given) => (given.served.get().method(number), Some(given)),
            None => (&self.methods[usize::from(number)], None),
        }
    }

    /// The half of the connection that calls the client of a request. A client in this process may be gone before its
    /// connection.
    fn caller(&self, py: Python<'_>, connection: &Arc<ServerConnection>) -> PyResult<Arc<Caller>> {
        let gone = || raise(py, &Failure::new(Failure::UNAVAILABLE, "the connection is gone"));
        self.core.caller(connection).ok_or_else(gone)
    }

    /// Decodes a request's arguments.
    pub(crate) fn arguments<'py>(
        &self,
        py: Python<'py>,
        method: &Method,
        request: &Request,
        mut event: Incoming,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let (connection, named) = (request.connection(), request.is_named());
        let budget = request.values.of(connection);
        let decode = |event: &mut Incoming| method.arguments.decode(py, event, named, budget);
        if !method.arguments.references() {
            return decode(&mut event);
        }
        decoding(true, &self.caller(py, connection)?, &self.calling, &mut event, decode)
    }

    /// Encodes a result or an item of the server's stream.
    #[inline]
    pub(crate) fn encode_reply<'py>(
        &self,
        method: &Method,
        connection: &Arc<ServerConnection>,
        value: Bound<'py, PyAny>,
    ) -> PyResult<Encoded<'py>> {
        if !method.reply.references() {
            return method.reply.encode(value);
        }
        let caller = self.caller(value.py(), connection)?;
        let kept = value.clone();
        let mut encoded = encoding(true, &caller, &self.calling, || method.reply.encode(value))?;
        encoded.kept = Some(kept);
        Ok(encoded)
    }

    /// Ends a call with a result. Returns the status code; `None` in an event loop if there is no room.
    pub(crate) fn reply(
        &self,
        py: Python<'_>,
        method: &Method,
        request: &Request,
        result: Bound<'_, PyAny>,
        observed: bool,
    ) -> PyResult<Option<u8>> {
        if request.is_oneway() {
            request.end_oneway();
            return Ok(Some(OK));
        }
        let mut encoded = self.encode_reply(method, request.connection(), result)?;
        if let Some(code) = end_late(method, request) {
            // It was encoded nevertheless: objects that would have been given with it are taken back, and told so.
            return Ok(Some(code));
        }
        if encoded.unsent.is_some() && request.context().is_cancelled() {
            // The client would not look at the reply, and so would never release the objects given with it: they are taken
            // back here.
            request.forget();
            return Ok(Some(Failure::CANCELLED));
        }
        let code = standing(request, observed);
        match encoded.send(py, |body| request.reply(body)) {
            Ok(()) => {
                encoded.sent();
                Ok(Some(code))
            }
            Err(LinkError::Full) => Ok(None),
            Err(error) if error.spares_connection() => Err(too_long(py, &method.name, &error)),
            // The client is gone, so there is nobody to send to.
            Err(_) => Ok(Some(Failure::CANCELLED)),
        }
    }

    /// Decodes an item for the handler; `None` at the end of the stream. The item before is the handler's own matter now.
    pub(crate) fn decode_item(
        &self,
        py: Python<'_>,
        method: &Method,
        call: &ServerCall,
        next: NextItem,
    ) -> PyResult<Option<Py<PyAny>>> {
        match next {
            NextItem::Item(mut item) => {
                call.values().clear();
                let budget = Some(call.values().of(call.connection()));
                let value = method.request_item.as_ref().expect("a method with a client stream has an item");
                if !value.references() {
                    return value.decode(py, &mut item, budget).map(Some);
                }
                let caller = self.caller(py, call.connection())?;
                decoding(true, &caller, &self.calling, &mut item, |item| value.decode(py, item, budget)).map(Some)
            }
            NextItem::End | NextItem::Pending => Ok(None),
            NextItem::Over => Err(call_over(py, &method.name)),
            NextItem::Late => Err(raise(py, &late(&method.name))),
            NextItem::Cancelled => {
                let failure = Failure::new(Failure::CANCELLED, format!("the caller of {} gave it up", method.name));
                Err(raise(py, &failure))
            }
        }
    }
}

/// The call's state, which the receiving worker shares.
pub(crate) fn tracked(request: &Request) -> PyResult<Arc<ServerCall>> {
    request.call.clone().ok_or_else(|| PyOSError::new_err("the call has no stream"))
}

/// Ends a call successfully after its items. Returns the status code.
pub(crate) fn end_stream(method: &Method, request: &Request, observed: bool) -> u8 {
    if let Some(code) = end_late(method, request) {
        return code;
    }
    let code = standing(request, observed);
    if request.end_stream().is_ok() { code } else { Failure::CANCELLED }
}

/// Ends a call with a failure. Returns the status code.
pub(crate) fn fail(method: &Method, request: &Request, failure: &Failure) -> u8 {
    end_late(method, request).unwrap_or_else(|| {
        request.fail(failure);
        failure.code
    })
}

/// Ends a call whose deadline has passed, and returns the status code; `None` if it has not. What comes after the deadline is
/// its passing, whatever the handler made of that: a handler that `on_cancel` has told of the deadline may return or raise
/// before the caller's own clock says the same, and a caller does not take half a stream for a whole one.
pub(crate) fn end_late(method: &Method, request: &Request) -> Option<u8> {
    request.is_late().then(|| {
        let failure = late(&method.name);
        request.fail(&failure);
        failure.code
    })
}

pub(crate) fn late(name: &str) -> Failure {
    Failure::new(Failure::DEADLINE_EXCEEDED, format!("the deadline of {name} passed before it was done"))
}

pub(crate) fn too_long(py: Python<'_>, name: &str, error: &LinkError) -> PyErr {
    raise(py, &too_long_failure(name, error))
}

/// Why a result or an item was not sent, if the connection survives.
pub(crate) fn too_long_failure(name: &str, error: &LinkError) -> Failure {
    // The client reads this text: it says whose limit that is, and where to raise it.
    let what = match error {
        LinkError::TooLong { len, limit } => format!(
            "the message has {len} bytes, this client's limit is {limit}; raise it with connect(..., max_message_size=...)"
        ),
        other => other.to_string(),
    };
    // A message that this kind of wire cannot carry at all is the handler's fault.
    let code = if matches!(error, LinkError::Unfit(_)) { Failure::INTERNAL } else { Failure::RESOURCE_EXHAUSTED };
    Failure::new(code, format!("the reply of {name}: {what}"))
}

/// The exception for asking a call for what it has no more: it is over.
#[cold]
pub(crate) fn call_over(py: Python<'_>, name: &str) -> PyErr {
    let what = format!("the call of {name} is over, and with it what its caller sent");
    raise(py, &Failure::new(Failure::CANCELLED, what))
}
