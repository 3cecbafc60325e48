//! Calls without streams, from threads: encode, send, wait with the interpreter released, decode.

use std::sync::Arc;
use std::time::Instant;

use nearcall_core::client::{CallId, Connection as Core, Expected};
use nearcall_core::{Failure, Incoming, Kind, Outgoing};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::calling::{Calling, is_hopeful, may_repeat};
use crate::deadline::Surroundings;
use crate::errors::raise;
use crate::interpreter::detach;
use crate::outcome::{name_failure, outcome, wait_on};
use crate::plan::Method;
use crate::references::{decoding, encoding};

/// How often a call is sent at the most.
pub(crate) const ATTEMPTS: u32 = 3;

/// A method without streams, bound to a connection.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct Unary {
    calling: Calling,
    method: Py<Method>,
}

impl Unary {
    pub(crate) fn new(calling: Calling, method: Py<Method>) -> Self {
        Self { calling, method }
    }
}

/// One call, as it was made.
struct Call<'a, 'py> {
    py: Python<'py>,
    args: &'a Bound<'py, PyTuple>,
    kwargs: Option<&'a Bound<'py, PyDict>>,
    surroundings: Surroundings,
    until: Option<Instant>,
}

/// How an attempt at a call ended, unless it failed for good.
enum Attempt {
    /// With a result.
    Ended(Py<PyAny>),
    /// It did not come to the server, or did and may be repeated.
    Repeat(Failure),
}

#[pymethods]
impl Unary {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let surroundings = Surroundings::look(py, self.calling.timeout)?;
        let call = Call { py, args, kwargs, until: surroundings.until(), surroundings };
        let core = match self.calling.ready() {
            Some(core) => core,
            None => self.calling.usable(py, call.until)?,
        };
        match self.attempt(&call, &core)? {
            Attempt::Ended(value) => Ok(value),
            Attempt::Repeat(failure) => self.repeat(&call, &core, failure),
        }
    }

    fn __repr__(&self) -> String {
        format!("<{} at {}>", self.method.get().name, self.calling.place())
    }
}

impl Unary {
    /// Encodes and sends for the server at the other end of `core`: the next one may want the arguments otherwise.
    #[inline]
    fn attempt(&self, call: &Call<'_, '_>, core: &Arc<Core>) -> PyResult<Attempt> {
        let (py, until) = (call.py, call.until);
        let successor = self.method.get().successor(py);
        let method = successor.as_ref().unwrap_or(&self.method).get();
        let encode = || method.encode_call(call.args, call.kwargs);
        let mut encoded = match encoding(method.arguments.references, core, &self.calling, encode) {
            Ok(encoded) => encoded,
            Err(refusal) => return self.calling.reconsider(py, core, refusal).map(Attempt::Repeat),
        };
        let metadata = call.surroundings.metadata(py)?;
        let begun: Result<_, Failure> = encoded.with(|body| {
            let mut request = Outgoing::new(Kind::Call, body);
            request.method = method.number;
            request.flags = encoded.flags();
            request.path = method.path.as_ref();
            request.target = self.calling.target();
            request.deadline_us = call.surroundings.micros();
            request.metadata = metadata;
            detach(py, || {
                let id = core.begin(&request, Expected { in_loop: false, references: method.reply.references })?;
                Ok((id, core.next_event(id, until)))
            })
        });
        let (id, first) = match begun {
            Ok(begun) => {
                encoded.sent();
                begun
            }
            // Not even begun: the connection was lost before.
            Err(failure) if self.calling.may_move() && !core.is_usable() && failure.code == Failure::UNAVAILABLE => {
                return Ok(Attempt::Repeat(failure));
            }
            Err(failure) => return Err(name_failure(py, &failure, &method.name)),
        };
        let mut event = match first {
            Ok(event) => event,
            Err(no_event) => wait_on(py, core, id, until, no_event, &method.name)?,
        };
        if event.head.extras().is_some() {
            event = self.take_metadata(py, core, event, id, &call.surroundings, until)?;
        }
        if event.head.kind == Kind::Error && self.calling.may_move() && (!core.is_usable() || event.is_unbegun()) {
            let failure = event.failure().unwrap_or_else(Failure::from);
            if failure.code == Failure::UNAVAILABLE && (event.is_unbegun() || may_repeat(core, method)) {
                return Ok(Attempt::Repeat(failure));
            }
        }
        match event.head.kind {
            Kind::Reply => {
                let decode = || method.reply.decode(py, &mut event);
                decoding(method.reply.references, core, &self.calling, decode).map(Attempt::Ended)
            }
            _ => Err(outcome(py, &event, method)),
        }
    }

    #[cold]
    fn repeat(&self, call: &Call<'_, '_>, failed: &Core, mut failure: Failure) -> PyResult<Py<PyAny>> {
        let hopeful = is_hopeful(failed, self.method.get());
        for _ in 1..ATTEMPTS {
            let core = match self.calling.usable_again(call.py, hopeful, call.until) {
                Ok(core) => core,
                // What happened to the call says more than that nobody is there now.
                Err(_) if self.method.get().idempotent => break,
                Err(error) => return Err(error),
            };
            match self.attempt(call, &core)? {
                Attempt::Ended(value) => return Ok(value),
                Attempt::Repeat(again) => failure = again,
            }
        }
        Err(raise(call.py, &failure))
    }

    /// Tells the surrounding block of the metadata that came, and waits for the outcome behind initial metadata.
    #[cold]
    fn take_metadata(
        &self,
        py: Python<'_>,
        core: &Core,
        mut event: Incoming,
        id: CallId,
        surroundings: &Surroundings,
        until: Option<Instant>,
    ) -> PyResult<Incoming> {
        while event.head.kind == Kind::Head {
            surroundings.received(py, true, event.head.metadata())?;
            event = match detach(py, || core.next_event(id, until)) {
                Ok(event) => event,
                Err(no_event) => wait_on(py, core, id, until, no_event, &self.method.get().name)?,
            };
        }
        surroundings.received(py, false, event.head.metadata())?;
        Ok(event)
    }
}
