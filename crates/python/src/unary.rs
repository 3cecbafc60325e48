//! Calls without streams, from threads: encode, send, wait with the interpreter released, decode. A thread may wait for a call
//! at once, or begin many and wait for them later.

use std::sync::Arc;
use std::time::Instant;

use nearcall_core::client::{CallId, Connection as Core, Expected, NoEvent, Tally};
use nearcall_core::lock::Mutex;
use nearcall_core::{Failure, Incoming, Kind, Outgoing};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::calling::{Again, Calling, counted, pause};
use crate::crossing::{decoding, encoding};
use crate::deadline::Surroundings;
use crate::interpreter::detach;
use crate::outcome::{name_failure, outcome, wait_on};
use crate::plan::Method;

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
    /// How often it was sent.
    tally: Tally,
}

/// A call that was sent, and what was done with it at once.
struct Sent<T> {
    id: CallId,
    /// What the call went by if that was no longer the method as it was at first; the reply goes by it, too.
    successor: Option<Py<Method>>,
    first: T,
}

/// How an attempt at a call ended, unless it failed for good.
enum Attempt {
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
    fn shown(&self) -> String {
        format!("{} at {}", self.method.get().name, self.calling.place())
    }

    /// What the surrounding blocks, and the method itself, say of a call that begins now.
    fn surroundings(&self, py: Python<'_>) -> PyResult<Surroundings> {
        Surroundings::look(py, self.calling.limits.of_call())
    }

    /// A connection for it.
    #[inline]
    fn core(&self, call: &mut Call<'_, '_>) -> PyResult<Arc<Core>> {
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
    fn send<T: Send>(
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
    fn finish(
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
    fn unsent(&self, call: &mut Call<'_, '_>, core: &Core, failure: Failure) -> PyResult<Again> {
        let method = self.method.get();
        let again = self.calling.again_unsent(core, method, failure, &mut call.tally);
        again.map_err(|failure| name_failure(call.py, &failure, &method.name))
    }

    #[cold]
    fn repeat(&self, call: &mut Call<'_, '_>, mut again: Again) -> PyResult<Py<PyAny>> {
        loop {
            if !pause(call.py, again.pause, call.until)? {
                // What happened to the call says more than that there is no time left.
                return Err(self.method.get().raise(call.py, &again.failure));
            }
            let core = match self.calling.usable_again(call.py, again.hopeful, call.until) {
                Ok(core) => core,
                // The same, of nobody being there now.
                Err(_) if self.method.get().idempotent => {
                    return Err(self.method.get().raise(call.py, &again.failure));
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

/// A call that was sent. Its result is taken once; it is given up when nobody holds it any more.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct StartedCall {
    unary: Py<Unary>,
    /// Until somebody waits for it, or gives it up.
    under_way: Mutex<Option<UnderWay>>,
    /// What was sent first, for who gives the call up while another thread waits for it.
    first: Option<(Arc<Core>, CallId)>,
}

struct UnderWay {
    core: Arc<Core>,
    /// The failure is that of a call that was not even begun, and may be sent over another connection.
    sent: Result<Sent<()>, Failure>,
    // For a call that is repeated.
    args: Py<PyTuple>,
    kwargs: Option<Py<PyDict>>,
    surroundings: Surroundings,
    until: Option<Instant>,
}

impl StartedCall {
    /// Sends it, with the time that the surrounding block leaves now.
    pub(crate) fn send(
        unary: &Bound<'_, Unary>,
        args: Bound<'_, PyTuple>,
        kwargs: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let surroundings = unary.get().surroundings(unary.py())?;
        let (py, until, tally) = (unary.py(), surroundings.until(), Tally::default());
        let mut call = Call { py, args: &args, kwargs: kwargs.as_ref(), until, surroundings, tally };
        let core = unary.get().core(&mut call)?;
        let sent =
            unary.get().send(&call, &core, |request, expected| Ok((core.begin_ahead(request, expected)?, ())))?;
        let Call { surroundings, until, .. } = call;
        let (args, kwargs) = (args.unbind(), kwargs.map(Bound::unbind));
        let first = sent.as_ref().ok().map(|sent| (Arc::clone(&core), sent.id));
        let under_way = UnderWay { core, sent, args, kwargs, surroundings, until };
        Ok(Self { unary: unary.clone().unbind(), under_way: Mutex::new(Some(under_way)), first })
    }
}

#[pymethods]
impl StartedCall {
    /// Waits for the outcome: returns the result, or raises what the call raises.
    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let Some(under_way) = self.under_way.lock().take() else {
            return Err(PyRuntimeError::new_err("the result was taken already, or the call was given up"));
        };
        let UnderWay { core, sent, args, kwargs, surroundings, until } = under_way;
        let (args, kwargs) = (args.bind(py), kwargs.as_ref().map(|kwargs| kwargs.bind(py)));
        let mut call = Call { py, args, kwargs, surroundings, until, tally: Tally::default() };
        let unary = self.unary.get();
        let attempt = match sent {
            Ok(Sent { id, successor, first: () }) => {
                let first = detach(py, || core.next_event(id, until));
                unary.finish(&mut call, &core, Sent { id, successor, first })?
            }
            Err(failure) => Attempt::Repeat(unary.unsent(&mut call, &core, failure)?),
        };
        match attempt {
            Attempt::Ended(value) => Ok(value),
            Attempt::Repeat(again) => unary.repeat(&mut call, again),
        }
    }

    /// Gives the call up, also while another thread waits for it. Harmless when it has ended.
    fn cancel(&self, py: Python<'_>) {
        // Nobody waits for it from now on.
        drop(self.under_way.lock().take());
        if let Some((core, id)) = &self.first {
            detach(py, || core.cancel(*id));
        }
    }

    fn __repr__(&self) -> String {
        format!("<call of {}>", self.unary.get().shown())
    }
}

impl Drop for StartedCall {
    fn drop(&mut self) {
        if let (Some(_), Some((core, id))) = (self.under_way.get_mut(), &self.first) {
            core.cancel(*id);
        }
    }
}
