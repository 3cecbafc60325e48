//! How a call ends for its caller when no reply comes: exceptions, for threads and event loops alike.

use std::sync::Arc;
use std::time::Instant;

use nearcall_core::client::{CallId, Connection as Core, NoEvent};
use nearcall_core::{Failure, Incoming, Kind, is_past};
use pyo3::prelude::*;

use crate::gil::errors::raise;
use crate::gil::greenlets::{runner, wait_elsewhere, waiting_beside};
use crate::gil::interpreter::waiting;
use crate::values::plan::Method;

/// Waits for the next event of a call, and puts it into the place. Gives the call up if that takes too long, or a signal's
/// handler raises.
pub(crate) fn await_event(
    py: Python<'_>,
    core: &Arc<Core>,
    id: CallId,
    until: Option<Instant>,
    place: &mut Option<Incoming>,
    name: &str,
) -> PyResult<()> {
    let waited = next_event(py, core, id, until, place);
    awaited(py, core, id, waited, name)
}

/// Waits for the next event of a call, and puts it into the place.
#[inline]
pub(crate) fn next_event(
    py: Python<'_>,
    core: &Arc<Core>,
    id: CallId,
    until: Option<Instant>,
    place: &mut Option<Incoming>,
) -> PyResult<Result<(), NoEvent>> {
    match runner(py)? {
        Some(runner) => next_event_beside(&runner, core, id, until, place),
        None => waiting(py, |go_on| core.next_event(id, until, place, go_on)),
    }
}

/// The same while other greenlets run. Another thread waits, and this one takes what has come: nothing is lost if the greenlet
/// gives up.
#[cold]
fn next_event_beside(
    runner: &Bound<'_, PyAny>,
    core: &Arc<Core>,
    id: CallId,
    until: Option<Instant>,
    place: &mut Option<Incoming>,
) -> PyResult<Result<(), NoEvent>> {
    loop {
        match core.arrived(id) {
            Ok(None) => {}
            Ok(event) => {
                *place = event;
                return Ok(Ok(()));
            }
            Err(none) => return Ok(Err(none)),
        }
        if is_past(until) {
            return Ok(Err(NoEvent::DeadlinePassed));
        }
        let there = Arc::clone(core);
        if let Err(none) = wait_elsewhere(runner, move |go_on| there.await_news(id, until, go_on))? {
            return Ok(Err(none));
        }
    }
}

/// Waits until there is credit for an item of the call's stream, or the call has ended.
pub(crate) fn await_credit(
    py: Python<'_>,
    core: &Arc<Core>,
    id: CallId,
    until: Option<Instant>,
) -> PyResult<Result<(), NoEvent>> {
    let core = Arc::clone(core);
    waiting_beside(py, move |go_on| core.await_credit(id, until, go_on))
}

/// What has become of a wait for an event of the call.
#[inline]
pub(crate) fn awaited(
    py: Python<'_>,
    core: &Core,
    id: CallId,
    waited: PyResult<Result<(), NoEvent>>,
    name: &str,
) -> PyResult<()> {
    if matches!(waited, Ok(Ok(()))) { Ok(()) } else { Err(no_event(py, core, id, waited, name)) }
}

#[cold]
fn no_event(py: Python<'_>, core: &Core, id: CallId, waited: PyResult<Result<(), NoEvent>>, name: &str) -> PyErr {
    let failure = match waited {
        Ok(Err(NoEvent::Ended)) => Failure::new(Failure::CANCELLED, format!("{name}: the call was given up")),
        Ok(Err(NoEvent::Inherited)) => {
            let text = format!(
                "{name}: this process was forked while the call was under way, which is its parent's: call anew"
            );
            Failure::new(Failure::FAILED_PRECONDITION, text)
        }
        Ok(_) => {
            core.cancel(id);
            late(name, core.name())
        }
        Err(raised) => {
            core.cancel(id);
            return raised;
        }
    };
    raise(py, &failure)
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
