//! Calls without streams, from threads: encode, send, wait with the interpreter released, decode.

use std::sync::Arc;
use std::time::Instant;

use nearcall_core::client::{CallId, Connection as Core, Expected, NoEvent, Tally};
use nearcall_core::{Failure, Incoming, Kind, Outgoing};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::calling::{Again, Calling, counted, pause};
use crate::deadline::Surroundings;
use crate::errors::raise_for;
use crate::interpreter::detach;
use crate::outcome::{name_failure, outcome, wait_on};
use crate::plan::Method;
use crate::references::{decoding, encoding};
use crate::started::StartedCall;

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
pub(crate) struct Call<'a, 'py> {
    pub(crate) py: Python<'py>,
    pub(crate) args: &'a Bound<'py, PyTuple>,
    pub(crate) kwargs: Option<&'a Bound<'py, PyDict>>,
    pub(crate) surroundings: Surroundings,
    pub(crate) until: Option<Instant>,
    /// How often it was sent.
    pub(crate) tally: Tally,
}

/// A call that was sent, and what was done with it at once.
pub(crate) struct Sent<T> {
    pub(crate) id: CallId,
    /// What the call went by if that was no longer the method as it was at first; the reply goes by it, too.
    pub(crate) successor: Option<Py<Method>>,
    pub(crate) first: T,
}

/// How an attempt at a call ended, unless it failed for good.
pub(crate) enum Attempt {
    /// With a result.
    Ended(Py<PyAny>),
    /// It did not come to the server, or did and may be repeated.
    Repeat(Again),
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
        let surroundings = self.surroundings(py)?;
        let mut call = Call { py, args, kwargs, until: surroundings.until(), surroundings, tally: Tally::default() };
        let core = self.core(&mut call)?;
        match self.attempt(&mut call, &core)? {
            Attempt::Ended(value) => Ok(value),
            Attempt::Repeat(again) => self.repeat(&mut call, again),
        }
    }

    /// Sends a call and does not wait for its reply, nor for room to send it.
    #[pyo3(signature = (*args, **kwargs))]
    fn start(
        slf: &Bound<'_, Self>,
        args: Bound<'_, PyTuple>,
        kwargs: Option<Bound<'_, PyDict>>,
    ) -> PyResult<StartedCall> {
        StartedCall::send(slf, args, kwargs)
    }

    /// The same method, with so many seconds for each call in the place of the client's timeout.
    fn within(&self, py: Python<'_>, seconds: f64) -> PyResult<Self> {
        Ok(Self { calling: self.calling.within(py, seconds)?, method: self.method.clone_ref(py) })
    }

    fn __repr__(&self) -> String {
        format!("<{}>", self.shown())
    }
}

impl Unary {
    /// Which method it is, and where.
    pub(crate) fn shown(&self) -> String {
        format!("{} at {}", self.method.get().name, self.calling.place())
    }

    /// What the surrounding blocks, and the method itself, say of a call that begins now.
    pub(crate) fn surroundings(&self, py: Python<'_>) -> PyResult<Surroundings> {
        Surroundings::look(py, self.calling.limits.of_call())
    }

    /// A connection for it.
    #[inline]
    pub(crate) fn core(&self, call: &mut Call<'_, '_>) -> PyResult<Arc<Core>> {
        if let Some(core) = self.calling.ready() {
            return Ok(core);
        }
        let core = self.calling.usable(call.py, call.until)?;
        call.surroundings.look_again();
        Ok(core)
    }

    #[inline]
    fn attempt(&self, call: &mut Call<'_, '_>, core: &Arc<Core>) -> PyResult<Attempt> {
        let until = call.until;
        let sent = self.send(call, core, |request, expected| {
            let id = core.begin(request, expected)?;
            Ok((id, core.next_event(id, until)))
        })?;
        match sent {
            Ok(sent) => self.finish(call, core, sent),
            Err(failure) => self.unsent(call, core, failure).map(Attempt::Repeat),
        }
    }

    /// Encodes and sends for the server at the other end of `core`: the next one may want the arguments otherwise. What
    /// `begin` does is done without the interpreter. The inner failure is that of a call that was not even begun, because
    /// the connection was lost before.
    #[inline]
    pub(crate) fn send<T: Send>(
        &self,
        call: &Call<'_, '_>,
        core: &Arc<Core>,
        begin: impl FnOnce(&Outgoing<'_>, Expected) -> Result<(CallId, T), Failure> + Send,
    ) -> PyResult<Result<Sent<T>, Failure>> {
        let py = call.py;
        let successor = self.method.get().successor(py);
        let method = successor.as_ref().unwrap_or(&self.method).get();
        let encode = || method.encode_call(call.args, call.kwargs);
        let mut encoded = match encoding(method.arguments.references, core, &self.calling, encode) {
            Ok(encoded) => encoded,
            Err(refusal) => return self.calling.reconsider(py, core, refusal).map(Err),
        };
        let metadata = counted(call.surroundings.metadata(py)?, call.tally);
        let compression = call.surroundings.compression(py)?;
        let begun: Result<_, Failure> = encoded.with(|body| {
            let mut request = Outgoing::new(Kind::Call, body);
            request.method = method.number;
            request.flags = encoded.flags();
            request.path = method.path.as_ref();
            request.target = self.calling.target();
            request.deadline_us = call.surroundings.micros();
            request.metadata = metadata;
            (request.compress, request.encoding) = compression;
            detach(py, || begin(&request, Expected { in_loop: false, references: method.reply.references }))
        });
        match begun {
            Ok((id, first)) => {
                encoded.sent();
                Ok(Ok(Sent { id, successor, first }))
            }
            Err(failure) if self.calling.may_move() && !core.is_usable() && failure.code == Failure::UNAVAILABLE => {
                Ok(Err(failure))
            }
            Err(failure) => Err(name_failure(py, &failure, &method.name)),
        }
    }

    /// From what came first to the outcome.
    #[inline]
    pub(crate) fn finish(
        &self,
        call: &mut Call<'_, '_>,
        core: &Arc<Core>,
        sent: Sent<Result<Incoming, NoEvent>>,
    ) -> PyResult<Attempt> {
        let (py, until, id) = (call.py, call.until, sent.id);
        let method = sent.successor.as_ref().unwrap_or(&self.method).get();
        let mut event = match sent.first {
            Ok(event) => event,
            Err(no_event) => wait_on(py, core, id, until, no_event, &method.name)?,
        };
        if event.head.extras().is_some() {
            event = self.take_metadata(py, core, event, id, &call.surroundings, until)?;
        }
        match event.head.kind {
            Kind::Reply => {
                self.calling.succeeded();
                let decode = |event: &mut Incoming| method.reply.decode(py, event);
                decoding(method.reply.references, core, &self.calling, &mut event, decode).map(Attempt::Ended)
            }
            _ => match self.calling.again(core, method, &event, &mut call.tally) {
                Some(again) => Ok(Attempt::Repeat(again)),
                None => Err(outcome(py, &event, method)),
            },
        }
    }

    /// What is to be done about a call that was not even begun.
    #[cold]
    pub(crate) fn unsent(&self, call: &mut Call<'_, '_>, core: &Core, failure: Failure) -> PyResult<Again> {
        let method = self.method.get();
        let again = self.calling.again_unsent(core, method, failure, &mut call.tally);
        again.map_err(|failure| name_failure(call.py, &failure, &method.name))
    }

    #[cold]
    pub(crate) fn repeat(&self, call: &mut Call<'_, '_>, mut again: Again) -> PyResult<Py<PyAny>> {
        loop {
            if !pause(call.py, again.pause, call.until)? {
                // What happened to the call says more than that there is no time left.
                return Err(raise_for(call.py, self.method.get(), &again.failure));
            }
            let core = match self.calling.usable_again(call.py, again.hopeful, call.until) {
                Ok(core) => core,
                // The same, of nobody being there now.
                Err(_) if self.method.get().idempotent => {
                    return Err(raise_for(call.py, self.method.get(), &again.failure));
                }
                Err(error) => return Err(error),
            };
            call.surroundings.look_again();
            match self.attempt(call, &core)? {
                Attempt::Ended(value) => return Ok(value),
                Attempt::Repeat(next) => again = next,
            }
        }
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
