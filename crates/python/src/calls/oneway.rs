//! Calls without a reply, and what happens to them when there is no room to send.

use std::sync::Arc;
use std::time::Instant;

use nearcall_core::client::{Connection as Core, Passed};
use nearcall_core::{Failure, Kind, Metadata, Outgoing, is_past, seconds_left};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::asyncio::handler_loop;
use crate::calls::bound::BoundMethod;
use crate::calls::calling::Calling;
use crate::calls::crossing::encoding;
use crate::calls::deadline::Surroundings;
use crate::calls::outcome::name_failure;
use crate::calls::when_full::Policy;
use crate::gil::errors::raise;
use crate::values::plan::Method;

// A method that sends no reply, bound to a connection. No docstring: each object has its method's.
#[pyclass(frozen, extends = BoundMethod, module = "nearcall._core")]
pub(crate) struct Oneway {
    calling: Calling,
    method: Py<Method>,
    for_loop: bool,
}

/// Whether to wait for room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// Until the deadline.
    ForRoom,
    Never,
}

#[pymethods]
impl Oneway {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__(&self, py: Python<'_>, args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        let when_full = &self.calling.when_full;
        let may_wait = when_full.policy == Policy::Block && !handler_loop::is_here(py);
        let wait = if may_wait { Wait::ForRoom } else { Wait::Never };
        let surroundings = Surroundings::look(py, self.calling.limits.of_call())?;
        if self.pass(py, args, kwargs, wait, &surroundings)? {
            return Ok(());
        }
        let name = &self.method.get().name;
        match when_full.policy {
            Policy::Block if may_wait => Err(raise(py, &self.too_late())),
            Policy::Block => Err(handler_loop::refusal(&format!("{name}, for which {} is full,", self.what_is_full()))),
            Policy::Error => Err(raise(py, &self.no_room())),
            Policy::Drop => when_full.count(py, name),
        }
    }

    /// For an event loop: sends the call if there is room. Returns whether there was.
    #[pyo3(signature = (*args, **kwargs))]
    fn attempt(&self, py: Python<'_>, args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<bool> {
        let surroundings = Surroundings::look(py, self.calling.limits.of_call())?;
        self.pass(py, args, kwargs, Wait::Never, &surroundings)
    }

    /// For an event loop: seconds that a call made now may wait.
    fn time_left(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        let until = Surroundings::look(py, self.calling.limits.of_call())?.until();
        Ok(until.map(seconds_left))
    }

    /// For an event loop: the exception for a call that found no room until its deadline.
    fn late(&self, py: Python<'_>) -> Py<PyAny> {
        raise(py, &self.too_late()).into_value(py).into_any()
    }

    #[getter(__doc__)]
    fn doc<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.method.get().doc(py)
    }

    fn __repr__(&self) -> String {
        format!("<one-way {} at {}>", self.method.get().name, self.calling.place())
    }
}

impl Oneway {
    pub(crate) fn new(py: Python<'_>, calling: Calling, method: Py<Method>, for_loop: bool) -> PyResult<Py<Self>> {
        let base = BoundMethod::new(py, &method, &calling, for_loop);
        Py::new(py, PyClassInitializer::from(base).add_subclass(Self { calling, method, for_loop }))
    }

    fn usable(&self, py: Python<'_>, until: Option<Instant>) -> PyResult<Arc<Core>> {
        // An event loop connects by itself, and then calls again.
        self.calling.usable(py, if self.for_loop { Some(Instant::now()) } else { until })
    }

    /// Sends the call. Returns whether the transport has it; `false` if there was no room.
    fn pass(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
        wait: Wait,
        surroundings: &Surroundings,
    ) -> PyResult<bool> {
        let metadata = surroundings.metadata(py)?;
        let until = surroundings.until();
        let mut stopped: Option<PyErr> = None;
        // `check_signals` needs the interpreter: it stays held while this runs.
        let mut go_on = || match py.check_signals() {
            Ok(()) => !is_past(until),
            Err(error) => {
                stopped = Some(error);
                false
            }
        };
        let mut send = |core: &Arc<Core>, metadata: Option<Metadata>| -> PyResult<Result<Passed, Failure>> {
            // The next server may want other arguments, so they are encoded for the server at the other end of `core`.
            let successor = self.method.get().successor(py);
            let method = successor.as_ref().unwrap_or(&self.method).get();
            let encode = || method.encode_call(args, kwargs);
            let mut encoded = match encoding(method.arguments.references(), core, &self.calling, encode) {
                Ok(encoded) => encoded,
                // An event loop notices by itself that a server is gone.
                Err(refusal) if self.for_loop => return Err(refusal),
                Err(refusal) => return self.calling.reconsider(py, core, refusal).map(Err),
            };
            let passed = encoded.with(|body| {
                let mut request = Outgoing::new(Kind::Call, body);
                request.method = method.number;
                request.flags = encoded.flags() | Outgoing::ONEWAY;
                request.target = self.calling.target();
                request.metadata = metadata;
                core.send_oneway(&request, if wait == Wait::Never { None } else { Some(&mut go_on) })
            });
            if matches!(passed, Ok(Passed::Sent | Passed::Begun)) {
                encoded.sent();
            }
            Ok(passed)
        };
        let ready = if self.for_loop { self.calling.ready_for_loop(py)? } else { self.calling.ready() };
        let core = match ready {
            Some(core) => core,
            None => self.usable(py, until)?,
        };
        let name = &self.method.get().name;
        let passed = match send(&core, metadata.clone())? {
            // The call was not sent, so it can be sent again.
            Err(failure) if self.calling.may_begin_elsewhere(&core, &failure) => {
                let core = self.usable(py, until)?;
                send(&core, metadata)?
            }
            other => other,
        };
        match passed.map_err(|failure| name_failure(py, &failure, name))? {
            Passed::Sent => Ok(true),
            Passed::Begun => {
                self.calling.when_full.begin(name);
                stopped.map_or(Ok(true), Err)
            }
            Passed::NoRoom => stopped.map_or(Ok(false), Err),
        }
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
