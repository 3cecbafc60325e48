//! Calls without streams, from threads: encode, send, wait with the interpreter released, decode.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Instant;

use nearcall_core::client::{CallId, Connection as Core};
use nearcall_core::{Event, Failure, Kind, Outgoing};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::calling::{Calling, is_hopeful, may_repeat};
use crate::deadline::Surroundings;
use crate::errors::raise;
use crate::interpreter::detach;
use crate::outcome::{name_failure, outcome, wait_on};
use crate::payload::Encoded;
use crate::plan::Method;

/// How often a call is sent at the most.
const ATTEMPTS: u32 = 3;

/// A method without streams, bound to a connection.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct Unary {
    calling: Calling,
    method: Py<Method>,
    index: Arc<AtomicU16>,
}

impl Unary {
    pub(crate) fn new(calling: Calling, method: Py<Method>, index: Arc<AtomicU16>) -> Self {
        Self { calling, method, index }
    }
}

/// How an attempt at a call ended.
enum Attempt {
    /// The server has answered.
    Answered(Event),
    /// It did not come to the server, or did and may be repeated.
    Repeat(Failure),
    /// It has failed for good.
    Failed(PyErr),
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
        let method = self.method.get();
        let encoded = method.encode_call(args, kwargs)?;
        let surroundings = Surroundings::look(py, self.calling.timeout)?;
        let until = surroundings.until();
        let core = match self.calling.channel.ready() {
            Some(core) => core,
            None => self.calling.usable(py, until)?,
        };
        let first = self.attempt(py, &core, &encoded, &surroundings, until)?;
        let event = match first {
            Attempt::Answered(event) => event,
            Attempt::Failed(error) => return Err(error),
            Attempt::Repeat(failure) => self.repeat(py, &core, &encoded, &surroundings, until, failure)?,
        };
        match event.head.kind {
            Kind::Reply => method.reply.decode(py, event),
            _ => Err(outcome(py, &event, method)),
        }
    }

    fn __repr__(&self) -> String {
        format!("<{} at {}>", self.method.get().name, self.calling.channel.url())
    }
}

impl Unary {
    #[inline]
    fn attempt(
        &self,
        py: Python<'_>,
        core: &Core,
        encoded: &Encoded<'_>,
        surroundings: &Surroundings,
        until: Option<Instant>,
    ) -> PyResult<Attempt> {
        let method = self.method.get();
        let metadata = surroundings.metadata(py)?;
        let begun: Result<_, Failure> = encoded.with(|body| {
            let mut request = Outgoing::new(Kind::Call, body);
            // Relaxed: a stale number reaches only a connection that is gone.
            request.method = self.index.load(Ordering::Relaxed);
            request.flags = encoded.flags();
            request.deadline_us = surroundings.micros();
            request.metadata = metadata;
            detach(py, || {
                let id = core.begin(&request, false)?;
                Ok((id, core.next_event(id, until)))
            })
        });
        let (id, first) = match begun {
            Ok(begun) => begun,
            // Not even begun: the connection was lost before.
            Err(failure) if !core.is_usable() && failure.code == Failure::UNAVAILABLE => {
                return Ok(Attempt::Repeat(failure));
            }
            Err(failure) => return Ok(Attempt::Failed(name_failure(py, &failure, &method.name))),
        };
        let mut event = match first {
            Ok(event) => event,
            Err(no_event) => wait_on(py, core, id, until, no_event, &method.name)?,
        };
        if event.head.extras().is_some() {
            event = self.take_metadata(py, core, event, id, surroundings, until)?;
        }
        if event.head.kind == Kind::Error && !core.is_usable() {
            let failure = event.failure().unwrap_or_else(Failure::from);
            if failure.code == Failure::UNAVAILABLE && may_repeat(core, method) {
                return Ok(Attempt::Repeat(failure));
            }
        }
        Ok(Attempt::Answered(event))
    }

    #[cold]
    fn repeat(
        &self,
        py: Python<'_>,
        failed: &Core,
        encoded: &Encoded<'_>,
        surroundings: &Surroundings,
        until: Option<Instant>,
        mut failure: Failure,
    ) -> PyResult<Event> {
        let hopeful = is_hopeful(failed, self.method.get());
        for _ in 1..ATTEMPTS {
            let core = match self.calling.usable_again(py, hopeful, until) {
                Ok(core) => core,
                // What happened to the call says more than that nobody is there now.
                Err(_) if self.method.get().idempotent => break,
                Err(error) => return Err(error),
            };
            match self.attempt(py, &core, encoded, surroundings, until)? {
                Attempt::Answered(event) => return Ok(event),
                Attempt::Failed(error) => return Err(error),
                Attempt::Repeat(again) => failure = again,
            }
        }
        Err(raise(py, &failure))
    }

    /// Tells the surrounding block of the metadata that came, and waits for the outcome behind initial metadata.
    #[cold]
    fn take_metadata(
        &self,
        py: Python<'_>,
        core: &Core,
        mut event: Event,
        id: CallId,
        surroundings: &Surroundings,
        until: Option<Instant>,
    ) -> PyResult<Event> {
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
