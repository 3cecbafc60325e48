//! Calls from threads: encode, send, wait with the interpreter released, decode.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_core::client::{CallId, Connection as Core, NoEvent};
use nearcall_core::{AroundWait, Event, Failure, Kind, Metadata, Outgoing, Peer, Url};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::aio::{AsyncUnary, Waiting};
use crate::deadline::Surroundings;
use crate::errors::{invalid, raise, raise_connect};
use crate::options::options;
use crate::payload::Encoded;
use crate::plan::Method;
use crate::stream::Stream;

/// A connection to a server.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct Connection {
    pub(crate) core: Arc<Core>,
    pub(crate) waiting: Arc<Waiting>,
    timeout: Option<Duration>,
}

/// Lets other Python threads run while this one waits in the core.
pub(crate) fn around_wait() -> AroundWait {
    Arc::new(|wait| {
        // SAFETY: asks only about this thread's state.
        let attached = unsafe { pyo3::ffi::PyGILState_Check() } == 1;
        if attached {
            Python::attach(|py| py.detach(wait));
        } else {
            wait();
        }
    })
}

#[pymethods]
impl Connection {
    /// Connects; blocks for at most `handshake_timeout` seconds.
    #[new]
    #[pyo3(signature = (url, *, spin, ring_size, max_message_size, handshake_timeout, timeout))]
    fn new(
        py: Python<'_>,
        url: &str,
        spin: &Bound<'_, PyAny>,
        ring_size: usize,
        max_message_size: u64,
        handshake_timeout: f64,
        timeout: Option<f64>,
    ) -> PyResult<Self> {
        let url: Url = url.parse().map_err(|bad: nearcall_core::BadUrl| invalid(py, bad.to_string()))?;
        let options = options(py, spin, ring_size, max_message_size, handshake_timeout)?;
        let timeout = timeout
            .map(|seconds| {
                Duration::try_from_secs_f64(seconds)
                    .map_err(|_| invalid(py, format!("timeout must be a number of seconds, not {seconds}")))
            })
            .transpose()?;
        let core = py.detach(|| Core::connect(&url, &options, around_wait()));
        let core = Arc::new(core.map_err(|error| raise_connect(py, &error))?);
        Ok(Self { core, waiting: Arc::default(), timeout })
    }

    /// The server's own description, JSON.
    #[getter]
    fn description(&self) -> &str {
        &self.core.welcome().description
    }

    /// Version of the server's library.
    #[getter]
    fn server_version(&self) -> &str {
        &self.core.welcome().version
    }

    /// Where the server is.
    #[getter]
    fn url(&self) -> String {
        self.core.url().to_string()
    }

    /// Who the server is: pid, uid and gid, or the address.
    #[getter]
    fn peer<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        peer(py, self.core.peer())
    }

    /// Whether the connection is closed or lost.
    #[getter]
    fn closed(&self) -> bool {
        self.core.is_dead()
    }

    /// Calls under way.
    #[getter]
    fn in_flight(&self) -> usize {
        self.core.in_flight()
    }

    /// The descriptor an event loop polls for reading.
    fn fileno(&self) -> i32 {
        use std::os::fd::AsRawFd;
        self.core.link().fd().as_raw_fd()
    }

    /// To be called by the event loop when the descriptor is readable.
    fn on_readable(&self, py: Python<'_>) -> PyResult<()> {
        self.waiting.on_readable(py, &self.core)
    }

    /// To be called by the event loop when it has run all that was ready and a call waits.
    fn on_idle(&self, py: Python<'_>) -> PyResult<()> {
        self.waiting.on_idle(py, &self.core)
    }

    /// Gives the connection to an event loop: its `call_soon`, and a callable that calls `on_idle`.
    fn use_loop(&self, py: Python<'_>, call_soon: Py<PyAny>, on_idle: Py<PyAny>) {
        self.waiting.use_loop(py, call_soon, on_idle);
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.core.close());
        self.waiting.wake_all(py, &self.core)
    }

    /// Seconds a round trip takes that no handler sees.
    #[pyo3(signature = (timeout=None))]
    fn ping(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<f64> {
        let default = timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).or(self.timeout);
        let until = Surroundings::look(py, default)?.until();
        loop {
            match py.detach(|| self.core.ping(until)) {
                Ok(took) => return Ok(took.as_secs_f64()),
                Err(Err(failure)) => return Err(raise(py, &failure)),
                Err(Ok(NoEvent::Interrupted)) => py.check_signals()?,
                Err(Ok(_)) => return Err(raise(py, &late("ping", self.core.url()))),
            }
        }
    }

    /// A callable for a method without streams.
    fn unary(&self, method: Py<Method>, index: u16) -> Unary {
        Unary { core: Arc::clone(&self.core), method, index, timeout: self.timeout }
    }

    /// A callable for a method that sends no reply.
    fn oneway(&self, method: Py<Method>, index: u16) -> Oneway {
        Oneway { core: Arc::clone(&self.core), method, index }
    }

    /// A callable for a method without streams that returns an awaitable.
    fn async_unary(&self, method: Py<Method>, index: u16) -> AsyncUnary {
        AsyncUnary::new(Arc::clone(&self.core), Arc::clone(&self.waiting), method, index, self.timeout)
    }

    /// Begins a call with streams. `arguments` is what the plan's `split` returned.
    #[pyo3(signature = (method, index, arguments, *, for_loop))]
    fn open(
        &self,
        py: Python<'_>,
        method: Py<Method>,
        index: u16,
        arguments: &Bound<'_, PyAny>,
        for_loop: bool,
    ) -> PyResult<Stream> {
        let surroundings = Surroundings::look(py, self.timeout)?;
        let metadata = surroundings.metadata(py)?;
        let encoded = method.get().encode_bound(arguments)?;
        let id = encoded.with(|body| {
            let mut request = Outgoing::new(Kind::Call, body);
            request.method = index;
            request.flags = encoded.flags();
            request.deadline_us = surroundings.micros();
            request.metadata = metadata;
            self.core.begin(&request, for_loop)
        });
        let id = id.map_err(|failure| name_failure(py, &failure, &method.get().name))?;
        Ok(Stream::new(Arc::clone(&self.core), Arc::clone(&self.waiting), method, id, surroundings))
    }
}

/// A method without streams, bound to a connection.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct Unary {
    core: Arc<Core>,
    method: Py<Method>,
    index: u16,
    timeout: Option<Duration>,
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
        let surroundings = Surroundings::look(py, self.timeout)?;
        let metadata = surroundings.metadata(py)?;
        let until = surroundings.until();
        let (id, first) = encoded
            .with(|body| {
                let mut request = Outgoing::new(Kind::Call, body);
                request.method = self.index;
                request.flags = encoded.flags();
                request.deadline_us = surroundings.micros();
                request.metadata = metadata;
                py.detach(|| {
                    let id = self.core.begin(&request, false)?;
                    Ok((id, self.core.next_event(id, until)))
                })
            })
            .map_err(|failure: Failure| name_failure(py, &failure, &method.name))?;
        let mut event = match first {
            Ok(event) => event,
            Err(no_event) => wait_on(py, &self.core, id, until, no_event, &method.name)?,
        };
        if event.head.extras().is_some() {
            event = self.take_metadata(py, event, id, &surroundings)?;
        }
        match event.head.kind {
            Kind::Reply => method.reply.decode(py, event),
            _ => Err(outcome(py, &event, &method.name)),
        }
    }

    fn __repr__(&self) -> String {
        format!("<{} at {}>", self.method.get().name, self.core.url())
    }
}

impl Unary {
    /// Tells the surrounding block of the metadata that came, and waits for the outcome behind initial metadata.
    #[cold]
    fn take_metadata(
        &self,
        py: Python<'_>,
        mut event: Event,
        id: CallId,
        surroundings: &Surroundings,
    ) -> PyResult<Event> {
        let until = surroundings.until();
        while event.head.kind == Kind::Head {
            surroundings.received(py, true, event.head.metadata())?;
            event = match py.detach(|| self.core.next_event(id, until)) {
                Ok(event) => event,
                Err(no_event) => wait_on(py, &self.core, id, until, no_event, &self.method.get().name)?,
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
pub(crate) fn outcome(py: Python<'_>, event: &Event, name: &str) -> PyErr {
    match event.head.kind {
        Kind::Error => raise(py, &event.failure().unwrap_or_else(Failure::from)),
        kind => raise(
            py,
            &Failure::new(Failure::INTERNAL, format!("{name}: the server sent {kind:?} where no such thing can come")),
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

/// A method that sends no reply, bound to a connection.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct Oneway {
    core: Arc<Core>,
    method: Py<Method>,
    index: u16,
}

#[pymethods]
impl Oneway {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let method = self.method.get();
        let encoded = method.encode_call(args, kwargs)?;
        let metadata = Surroundings::look(py, None)?.metadata(py)?;
        send_oneway(&self.core, &encoded, self.index, metadata).map_err(|failure| name_failure(py, &failure, &method.name))
    }

    fn __repr__(&self) -> String {
        format!("<one-way {} at {}>", self.method.get().name, self.core.url())
    }
}

fn send_oneway(
    core: &Core,
    encoded: &Encoded<'_>,
    index: u16,
    metadata: Option<Metadata>,
) -> Result<(), Failure> {
    encoded.with(|body| {
        let mut request = Outgoing::new(Kind::Call, body);
        request.method = index;
        request.flags = encoded.flags() | Outgoing::ONEWAY;
        request.metadata = metadata;
        core.send_oneway(&request)
    })
}

/// A peer's identity as a dictionary.
pub(crate) fn peer<'py>(py: Python<'py>, peer: &Peer) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    match peer {
        Peer::Local { pid, uid, gid } => {
            out.set_item("pid", pid)?;
            out.set_item("uid", uid)?;
            out.set_item("gid", gid)?;
        }
        Peer::Remote(address) => out.set_item("address", address.to_string())?,
    }
    Ok(out)
}
