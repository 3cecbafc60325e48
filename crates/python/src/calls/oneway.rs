//! Calls without a reply, and what happens to them when there is no room to send.

use std::time::{Duration, Instant};

use nearcall_core::client::Passed;
use nearcall_core::{Failure, Outgoing, is_past};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::asyncio::handler_loop;
use crate::calls::bound::BoundMethod;
use crate::calls::driving::{Arguments, Call, Departed};
use crate::calls::when_full::Policy;
use crate::gil::errors::raise;
use crate::gil::greenlets::{runner, sleep_until};

// A method that sends no reply, bound to a connection. No docstring: each object has its method's.
#[derive(Default)]
#[pyclass(frozen, extends = BoundMethod, module = "nearcall._core")]
pub(crate) struct Oneway;

/// How long a greenlet sleeps before it looks for room again: twice as long each time, up to the longest.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(20);

/// Whether to wait for room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// Until the deadline.
    ForRoom,
    Never,
}

#[pymethods]
impl Oneway {
    // Here, for Python gives every class a `__doc__` that hides the base's.
    #[getter(__doc__)]
    fn doc<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.as_super().get().method.get().doc(slf.py())
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__(slf: &Bound<'_, Self>, args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        let (py, bound) = (slf.py(), slf.as_super().get());
        let when_full = &bound.calling.when_full;
        let may_wait = when_full.policy == Policy::Block && !handler_loop::is_here(py);
        if may_wait && runner(py)?.is_some() {
            return bound.pass_beside(py, (args, kwargs));
        }
        if bound.pass(py, (args, kwargs), if may_wait { Wait::ForRoom } else { Wait::Never })? {
            return Ok(());
        }
        let name = &bound.method.get().name;
        match when_full.policy {
            Policy::Block if may_wait => Err(raise(py, &bound.too_late())),
            Policy::Block => {
                Err(handler_loop::refusal(&format!("{name}, for which {} is full,", bound.what_is_full())))
            }
            Policy::Error => Err(raise(py, &bound.no_room())),
            Policy::Drop => when_full.count(py, name),
        }
    }

    /// For an event loop: sends the call if there is room. Returns whether there was.
    #[pyo3(signature = (*args, **kwargs))]
    fn attempt(slf: &Bound<'_, Self>, args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<bool> {
        slf.as_super().get().pass(slf.py(), (args, kwargs), Wait::Never)
    }

    /// For an event loop: the exception for a call that found no room until its deadline.
    fn late(slf: &Bound<'_, Self>) -> Py<PyAny> {
        raise(slf.py(), &slf.as_super().get().too_late()).into_value(slf.py()).into_any()
    }

    fn __repr__(slf: &Bound<'_, Self>) -> String {
        format!("<one-way {}>", slf.as_super().get().shown())
    }
}

impl BoundMethod {
    /// Sends a one-way call. Returns whether the transport has it; `false` if there was no room.
    fn pass(&self, py: Python<'_>, arguments: Arguments<'_, '_>, wait: Wait) -> PyResult<bool> {
        let mut call = Call::new(self.surroundings(py)?);
        let until = call.driver.until();
        let mut stopped: Option<PyErr> = None;
        // `check_signals` needs the interpreter: it stays held while this runs.
        let mut go_on = || match py.check_signals() {
            Ok(()) => !is_past(until),
            Err(error) => {
                stopped = Some(error);
                false
            }
        };
        let mut core = self.calling.connection(py, &mut call, self.for_loop)?;
        let passed = loop {
            let sent = self.send(py, &core, &mut call, arguments, |request, _| {
                (request.flags, request.deadline_us) = (request.flags | Outgoing::ONEWAY, None);
                core.send_oneway(request, if wait == Wait::Never { None } else { Some(&mut go_on) })
            });
            core = match sent? {
                Ok((passed, _)) => break passed,
                // An event loop connects by itself, and then calls again.
                Err(again) if self.for_loop => return Err(self.method.get().raise_again(py, &again)),
                Err(again) => self.calling.renewed(py, self.method.get(), &mut call, &again)?,
            };
        };
        if passed == Passed::Begun {
            self.calling.when_full.begin(&self.method.get().name);
        }
        match stopped {
            Some(stopped) if passed != Passed::Sent => Err(stopped),
            _ => Ok(passed.was_sent()),
        }
    }

    /// Sends a one-way call as soon as there is room, while other greenlets run. Nothing tells of room: this looks again and again.
    #[cold]
    fn pass_beside(&self, py: Python<'_>, arguments: Arguments<'_, '_>) -> PyResult<()> {
        let (until, mut pause) = (self.surroundings(py)?.until(), SHORTEST);
        while !self.pass(py, arguments, Wait::Never)? {
            if is_past(until) {
                return Err(raise(py, &self.too_late()));
            }
            sleep_until(py, Instant::now() + pause)?;
            pause = (2 * pause).min(LONGEST);
        }
        Ok(())
    }

    fn what_is_full(&self) -> &'static str {
        if self.calling.ready().is_some_and(|core| core.is_memory()) { "the ring" } else { "the socket" }
    }

    #[cold]
    fn no_room(&self) -> Failure {
        let (name, full, url) = (&self.method.get().name, self.what_is_full(), self.calling.place());
        let text = format!(
            "{name}: {full} to {url} is full, because the server handles one-way calls more slowly than they are sent; \
             nothing was sent: try again later, send less, or connect with oneway=\"block\" to wait for room or \
             oneway=\"drop\" to drop and count"
        );
        Failure::new(Failure::RESOURCE_EXHAUSTED, text)
    }

    #[cold]
    fn too_late(&self) -> Failure {
        let (name, full, url) = (&self.method.get().name, self.what_is_full(), self.calling.place());
        let text = format!("{name}: {full} to {url} was full until the deadline; nothing was sent");
        Failure::new(Failure::DEADLINE_EXCEEDED, text)
    }
}
