//! How a thread waits for a call: with the interpreter released.

use std::sync::Arc;

use nearcall_core::Incoming;
use nearcall_core::client::{Again, Connection as Core, NoEvent};
use pyo3::prelude::*;

use crate::calls::bound::BoundMethod;
use crate::calls::driving::{Arguments, Call, Came, Sent};
use crate::calls::outcome::{await_event, awaited, next_event};
use crate::gil::greenlets::runner;
use crate::gil::interpreter::{detach, is_alone, waiting};

/// The longest message, in bytes, that a thread sends without giving the interpreter up if nobody else wants it.
const SHORT: usize = 4 << 10;

impl BoundMethod {
    /// Sends a call, and waits for what becomes of it.
    #[inline]
    pub(crate) fn attempt(
        &self,
        py: Python<'_>,
        core: &Arc<Core>,
        call: &mut Call,
        arguments: Arguments<'_, '_>,
    ) -> PyResult<Result<Py<PyAny>, Box<Again>>> {
        if let Some(runner) = runner(py)? {
            return self.attempt_beside(&runner, core, call, arguments);
        }
        let until = call.driver.until();
        // The reply is not moved until it is decoded.
        let (mut place, mut waited) = (None, Ok(Ok(())));
        let sent = self.send(py, core, call, arguments, |request, expected| {
            if request.len() <= SHORT
                && is_alone(py)
                && let Some(id) = core.call_at_once(request, expected, until, &mut place)
            {
                if place.is_none() {
                    waited = waiting(py, |go_on| core.next_event(id, until, &mut place, go_on));
                }
                return Ok(id);
            }
            let mut sent = None;
            waited = waiting(py, |go_on| {
                let id = *sent.insert(core.begin(request, expected)).as_ref().map_err(|_| NoEvent::Ended)?;
                core.next_event(id, until, &mut place, go_on)
            });
            sent.expect("it was tried")
        })?;
        match sent {
            Ok(sent) => self.finish(py, core, call, &sent, waited, &mut place),
            Err(again) => Ok(Err(again)),
        }
    }

    /// The same while other greenlets run: nothing waits for room, and a call that is alone spins for its reply first, as in an
    /// event loop.
    #[cold]
    fn attempt_beside(
        &self,
        runner: &Bound<'_, PyAny>,
        core: &Arc<Core>,
        call: &mut Call,
        arguments: Arguments<'_, '_>,
    ) -> PyResult<Result<Py<PyAny>, Box<Again>>> {
        let (py, until, mut place) = (runner.py(), call.driver.until(), None);
        let begun = self
            .send(py, core, call, arguments, |request, expected| detach(py, || core.begin_ahead(request, expected)))?;
        let sent = match begun {
            Ok(sent) => sent,
            Err(again) => return Ok(Err(again)),
        };
        if core.in_flight() == 1 && self.calling.waiting.may_end_at_once() {
            place = detach(py, || if core.spin() { core.try_event(sent.0) } else { None });
        }
        let waited = match place {
            Some(_) => Ok(Ok(())),
            None => next_event(py, core, sent.0, until, &mut place),
        };
        self.finish(py, core, call, &sent, waited, &mut place)
    }

    /// Goes on from the first wait, whose event is in `place` if there is one, to the attempt's outcome.
    #[inline]
    pub(crate) fn finish(
        &self,
        py: Python<'_>,
        core: &Arc<Core>,
        call: &mut Call,
        (id, successor): &Sent,
        waited: PyResult<Result<(), NoEvent>>,
        place: &mut Option<Incoming>,
    ) -> PyResult<Result<Py<PyAny>, Box<Again>>> {
        let (until, name) = (call.driver.until(), &self.method.get().name);
        awaited(py, core, *id, waited, name)?;
        loop {
            let event = place.as_mut().expect("there is an event");
            match self.take(py, core, successor.as_ref(), call, event)? {
                Came::Result(value) => return Ok(Ok(value)),
                Came::Again(again) => return Ok(Err(again)),
                Came::More => {
                    *place = None;
                    await_event(py, core, *id, until, place, name)?;
                }
            }
        }
    }

    /// Makes a call once more, until it has an outcome.
    #[cold]
    pub(crate) fn repeat(
        &self,
        py: Python<'_>,
        call: &mut Call,
        arguments: Arguments<'_, '_>,
        mut again: Box<Again>,
    ) -> PyResult<Py<PyAny>> {
        loop {
            let core = self.calling.renewed(py, self.method.get(), call, &again)?;
            match self.attempt(py, &core, call, arguments)? {
                Ok(value) => return Ok(value),
                Err(next) => again = next,
            }
        }
    }
}
