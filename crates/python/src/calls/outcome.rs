//! How a call ends for its caller when no reply comes: exceptions, for threads and event loops alike.

use std::time::Instant;

use nearcall_core::client::{CallId, Connection as Core, NoEvent};
use nearcall_core::{Failure, Incoming, Kind};
use pyo3::prelude::*;

use crate::gil::errors::raise;
use crate::gil::interpreter::detach;
use crate::values::plan::Method;

/// Goes on after a wait that ended without an event: handles signals and waits again, or gives the call up.
#[cold]
pub(crate) fn wait_on(
    py: Python<'_>,
    core: &Core,
    id: CallId,
    until: Option<Instant>,
    mut why: NoEvent,
    name: &str,
) -> PyResult<Incoming> {
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
                return Err(raise(py, &late(name, core.name())));
            }
            NoEvent::Ended => {
                let failure = Failure::new(Failure::CANCELLED, format!("{name}: the call was given up"));
                return Err(raise(py, &failure));
            }
            NoEvent::Inherited => return Err(raise(py, &inherited(name))),
        }
        match detach(py, || core.next_event(id, until)) {
            Ok(event) => return Ok(event),
            Err(no_event) => why = no_event,
        }
    }
}

/// The failure of a call that the process has which this one was forked from.
fn inherited(name: &str) -> Failure {
    let text =
        format!("{name}: this process was forked while the call was under way, which is its parent's: call anew");
    Failure::new(Failure::FAILED_PRECONDITION, text)
}

pub(crate) fn late(name: &str, url: &str) -> Failure {
    Failure::new(Failure::DEADLINE_EXCEEDED, format!("{name} at {url} did not answer before the deadline"))
}

/// The exception for an event that is not the awaited reply.
#[cold]
pub(crate) fn outcome(py: Python<'_>, event: &Incoming, method: &Method) -> PyErr {
    match event.head.kind {
        Kind::Error => method.raise(py, &event.failure().unwrap_or_else(Failure::from), event.head.metadata()),
        kind => raise(
            py,
            &Failure::new(
                Failure::INTERNAL,
                format!("{}: the other side sent {kind:?} where no such thing can come", method.name),
            ),
        ),
    }
}

/// The exception for a call that could not be sent.
#[cold]
pub(crate) fn name_failure(py: Python<'_>, failure: &Failure, name: &str) -> PyErr {
    let unnamed = failure.code == Failure::DEADLINE_EXCEEDED && !failure.message.starts_with(name);
    if unnamed || matches!(failure.code, Failure::RESOURCE_EXHAUSTED | Failure::INVALID_ARGUMENT) {
        return raise(py, &Failure::new(failure.code, format!("{name}: {}", failure.message)));
    }
    raise(py, failure)
}
