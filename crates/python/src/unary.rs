//! Calls without streams, from threads: encode, send, wait with the interpreter released, decode.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use nearcall_core::client::{CallId, Connection as Core, NoEvent};
use nearcall_core::{Event, Failure, Kind, Outgoing, Url};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::connection::Calling;
use crate::deadline::Surroundings;
use crate::errors::{raise, raise_for};
use crate::payload::Encoded;
use crate::plan::Method;

/// How often a call is sent at the most.
const ATTEMPTS: u32 = 3;
/// How long a repeated call waits for the server to come back.
const COMEBACK: Duration = Duration::from_secs(1);

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
        let core = self.calling.channel.current();
        let first = if core.is_usable() {
            self.attempt(py, &core, &encoded, &surroundings, until)?
        } else {
            let core = self.calling.usable(py, until)?;
            self.attempt(py, &core, &encoded, &surroundings, until)?
        };
        let event = match first {
            Attempt::Answered(event) => event,
            Attempt::Failed(error) => return Err(error),
            Attempt::Repeat(failure) => self.repeat(py, &encoded, &surroundings, until, failure)?,
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
            py.detach(|| {
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
            // A server that goes away refuses what it has not begun; a lost connection leaves that open.
            let safe = core.is_going_away() && !core.is_dead() || method.idempotent;
            if failure.code == Failure::UNAVAILABLE && safe {
                return Ok(Attempt::Repeat(failure));
            }
        }
        Ok(Attempt::Answered(event))
    }

    #[cold]
    fn repeat(
        &self,
        py: Python<'_>,
        encoded: &Encoded<'_>,
        surroundings: &Surroundings,
        until: Option<Instant>,
        mut failure: Failure,
    ) -> PyResult<Event> {
        for _ in 1..ATTEMPTS {
            let core = match self.calling.usable_again(py, COMEBACK, until) {
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
            event = match py.detach(|| core.next_event(id, until)) {
                Ok(event) => event,
                Err(no_event) => wait_on(py, core, id, until, no_event, &self.method.get().name)?,
            };
        }
        surroundings.received(py, false, event.head.metadata())?;
        Ok(event)
    }
}

/// The wait for an event did not bring one: handles signals, waits on, or gives the call up.
#[cold]
pub(crate) fn wait_on(
    py: Python<'_>,
    core: &Core,
    id: CallId,
    until: Option<Instant>,
    mut why: NoEvent,
    name: &str,
) -> PyResult<Event> {
    loop {
        match why {
            NoEvent::Interrupted => {
                if let Err(error) = py.check_signals() {
                    core.cancel(id);
                    return Err(error);
                }
            }
            NoEvent::DeadlinePassed => {
                core.cancel(id);
                return Err(raise(py, &late(name, core.url())));
            }
            NoEvent::Ended => {
                let failure = Failure::new(Failure::CANCELLED, format!("{name}: the call was given up"));
                return Err(raise(py, &failure));
            }
        }
        match py.detach(|| core.next_event(id, until)) {
            Ok(event) => return Ok(event),
            Err(no_event) => why = no_event,
        }
    }
}

pub(crate) fn late(name: &str, url: &Url) -> Failure {
    Failure::new(Failure::DEADLINE_EXCEEDED, format!("{name} at {url} did not answer before the deadline"))
}

/// The exception for an event that is not the awaited one.
#[cold]
pub(crate) fn outcome(py: Python<'_>, event: &Event, method: &Method) -> PyErr {
    match event.head.kind {
        Kind::Error => raise_for(py, method, &event.failure().unwrap_or_else(Failure::from)),
        kind => raise(
            py,
            &Failure::new(
                Failure::INTERNAL,
                format!("{}: the server sent {kind:?} where no such thing can come", method.name),
            ),
        ),
    }
}

/// The exception for a call that could not be sent.
#[cold]
pub(crate) fn name_failure(py: Python<'_>, failure: &Failure, name: &str) -> PyErr {
    if failure.code == Failure::RESOURCE_EXHAUSTED {
        return raise(py, &Failure::new(failure.code, format!("{name}: {}", failure.message)));
    }
    raise(py, failure)
}
