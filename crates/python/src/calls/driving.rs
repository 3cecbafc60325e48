//! What drives a call, whoever waits for it: how it is sent, what becomes of what comes for it, and where it goes when it
//! is sent once more. What to do next is the [driver](CallDriver)'s to say; threads, tasks and streams differ in how they wait.

use std::sync::Arc;
use std::time::Instant;

use nearcall_core::client::{Again, CallDriver, CallId, Connection as Core, Expected, NextStep, Passed, Replay, Rules};
use nearcall_core::{Compress, Encoding, Failure, Incoming, Kind, Metadata, Outgoing};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::calls::bound::BoundMethod;
use crate::calls::calling::Calling;
use crate::calls::crossing::{decoding, encoding};
use crate::calls::deadline::Surroundings;
use crate::calls::outcome::{name_failure, outcome};
use crate::gil::greenlets::sleep_until;
use crate::values::encoded::Encoded;
use crate::values::plan::Method;

/// A call as it was made, and how far it has come.
pub(crate) struct Call {
    pub(crate) surroundings: Surroundings,
    pub(crate) driver: CallDriver,
}

impl Call {
    #[inline]
    pub(crate) fn new(surroundings: Surroundings) -> Self {
        Self { driver: CallDriver::new(surroundings.until()), surroundings }
    }
}

/// The arguments by position and by name.
pub(crate) type Arguments<'a, 'py> = (&'a Bound<'py, PyTuple>, Option<&'a Bound<'py, PyDict>>);

/// A call that was sent, and the method's successor if the call was encoded with it; so is its reply.
pub(crate) type Sent<T = CallId> = (T, Option<Py<Method>>);

/// What has become of a call.
pub(crate) enum Came {
    Result(Py<PyAny>),
    Again(Box<Again>),
    /// More is to come.
    More,
}

/// What the core returns for a call that it was given.
pub(crate) trait Departed {
    /// Whether the call was sent.
    fn was_sent(&self) -> bool {
        true
    }
}

impl Departed for CallId {}
impl Departed for (CallId, Option<Replay>) {}
impl Departed for Passed {
    fn was_sent(&self) -> bool {
        *self != Self::NoRoom
    }
}

impl Calling {
    /// What holds for calls of the method.
    #[inline]
    pub(crate) fn rules(&self, method: &Method) -> Rules<'_> {
        let retries = self.retries.as_deref();
        Rules { retries, idempotent: method.idempotent, may_move: self.may_move() }
    }

    /// A connection for a call that was not sent yet.
    #[inline]
    pub(crate) fn connection(&self, py: Python<'_>, call: &mut Call, in_loop: bool) -> PyResult<Arc<Core>> {
        if let Some(core) = if in_loop { self.ready_for_loop(py)? } else { self.ready() } {
            return Ok(core);
        }
        // An event loop has connected before, and must not wait here.
        let core = self.usable(py, false, if in_loop { Some(Instant::now()) } else { call.driver.until() })?;
        call.surroundings = call.surroundings.look_again(py);
        Ok(core)
    }

    /// A connection for a call that is sent once more, after the pause before that.
    #[cold]
    pub(crate) fn renewed(
        &self,
        py: Python<'_>,
        method: &Method,
        call: &mut Call,
        again: &Again,
    ) -> PyResult<Arc<Core>> {
        sleep_until(py, Instant::now() + again.pause)?;
        let core = self.usable(py, again.hopeful, call.driver.until()).map_err(|error| {
            let is_signal = !error.is_instance_of::<PyException>(py);
            if again.says_more && !is_signal { method.raise_again(py, again) } else { error }
        })?;
        call.surroundings = call.surroundings.look_again(py);
        Ok(core)
    }

    /// Encodes a call for the server at the other end of `core`, because the next server may want other arguments, and
    /// sends it by `begin`.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "they are what a call consists of")]
    pub(crate) fn send<'py, T: Departed>(
        &self,
        py: Python<'py>,
        core: &Arc<Core>,
        method: &Method,
        call: &mut Call,
        in_loop: bool,
        encode: impl FnOnce() -> PyResult<Encoded<'py>>,
        begin: impl FnOnce(&mut Outgoing<'_>, Expected<'_>) -> Result<T, Failure>,
    ) -> PyResult<Result<T, Box<Again>>> {
        let mut encoded = match encoding(method.arguments.references(), core, self, encode) {
            Ok(encoded) => encoded,
            // An event loop notices by itself that a server is gone.
            Err(refusal) if in_loop => return Err(refusal),
            Err(refusal) => {
                let failure = self.reconsider(py, core, refusal)?;
                return self.unsent(py, core, method, call, failure).map(Err);
            }
        };
        let is_plain = call.surroundings.has_no_blocks() && call.driver.is_as_new();
        let additions = if is_plain { None } else { Some(additions(py, call)?) };
        let begun = encoded.with(|body| {
            let mut request = Outgoing {
                method: method.number,
                flags: encoded.flags(),
                path: method.path.as_ref(),
                target: self.target(),
                deadline_us: call.surroundings.micros(),
                ..Outgoing::new(Kind::Call, body)
            };
            if let Some(additions) = additions {
                (request.metadata, (request.compress, request.encoding)) = additions;
            }
            let (references, given) = (method.reply.references(), encoded.given());
            begin(&mut request, Expected { in_loop, references, given })
        });
        match begun {
            Ok(begun) => {
                if begun.was_sent() {
                    encoded.sent();
                }
                Ok(Ok(begun))
            }
            Err(failure) => self.unsent(py, core, method, call, failure).map(Err),
        }
    }

    #[cold]
    fn unsent(
        &self,
        py: Python<'_>,
        core: &Core,
        method: &Method,
        call: &mut Call,
        failure: Failure,
    ) -> PyResult<Box<Again>> {
        let again = call.driver.unsent(&self.rules(method), core, failure);
        again.map_err(|failure| name_failure(py, &failure, &method.name))
    }
}

impl BoundMethod {
    /// What the surrounding blocks, and the method itself, say of a call that begins now.
    pub(crate) fn surroundings(&self, py: Python<'_>) -> PyResult<Surroundings> {
        Surroundings::look(py, self.calling.limits.of_call())
    }

    /// Sends a call by `begin`.
    #[inline]
    pub(crate) fn send<T: Departed>(
        &self,
        py: Python<'_>,
        core: &Arc<Core>,
        call: &mut Call,
        (args, kwargs): Arguments<'_, '_>,
        begin: impl FnOnce(&mut Outgoing<'_>, Expected<'_>) -> Result<T, Failure>,
    ) -> PyResult<Result<Sent<T>, Box<Again>>> {
        let successor = self.method.get().successor(py);
        let method = successor.as_ref().unwrap_or(&self.method).get();
        let encode = || method.encode_call(args, kwargs);
        let begun = self.calling.send(py, core, method, call, self.for_loop, encode, begin)?;
        Ok(begun.map(|begun| (begun, successor)))
    }

    /// Takes what has come for a call without streams.
    #[inline]
    pub(crate) fn take(
        &self,
        py: Python<'_>,
        core: &Arc<Core>,
        successor: Option<&Py<Method>>,
        call: &mut Call,
        event: &mut Incoming,
    ) -> PyResult<Came> {
        if event.head.extras().is_some() {
            let initial = event.head.kind == Kind::Head;
            call.surroundings.received(py, initial, event.head.metadata())?;
        }
        let method = successor.unwrap_or(&self.method).get();
        match call.driver.came(&self.calling.rules(method), core, event) {
            NextStep::Take => {
                let decode = |event: &mut Incoming| method.reply.decode(py, event, None);
                decoding(method.reply.references(), core, &self.calling, event, decode).map(Came::Result)
            }
            NextStep::Wait => Ok(Came::More),
            NextStep::Again(again) => Ok(Came::Again(again)),
            NextStep::Fail => Err(outcome(py, event, method)),
        }
    }
}

/// Metadata, and how the call is compressed.
type Additions = (Option<Metadata>, (Compress, Option<Encoding>));

/// What the surrounding blocks and earlier attempts add to a call.
#[cold]
fn additions(py: Python<'_>, call: &Call) -> PyResult<Additions> {
    Ok((call.driver.metadata(call.surroundings.metadata(py)?), call.surroundings.compression(py)?))
}
