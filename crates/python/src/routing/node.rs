//! A node of the router.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nearcall_core::lock::Mutex;
use nearcall_core::{Failure, is_past};
use nearcall_route::rmr::frame::{SOURCE, Sender};
use nearcall_route::table::{Own, Table};
use nearcall_route::{
    Counts, Dialler, Endpoint, Envelope, Inbox, Node, Outcome, Pending, RmrOptions, SendError, Starter, Taking,
    Transaction, Waiter, WhenFull, Work,
};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyInt, PyMemoryView};

use crate::connection::Connection;
use crate::gil::callback::Callback;
use crate::gil::errors::{describe, invalid, raise};
use crate::gil::interpreter::{SIGNAL_CHECK, attach, detach};
use crate::serving::route_codec::RouteCodec;
use crate::serving::route_handlers::{RouteDispatch, RouteInbox};
use crate::serving::route_message::RouteMessage;
use crate::serving::route_owner::{Calling, Handler, Owner};
use crate::values::encoded::LentBuffer;

/// How long a reply may wait at most.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// What a thread of its own has to do for a node.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct RouteWork(Work);

#[pymethods]
impl RouteWork {
    /// A name for the thread.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// Does it, until the node is closed.
    fn run(&self, py: Python<'_>) {
        detach(py, || self.0.run());
    }
}

/// An endpoint of a node.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct RouteEndpoint(Arc<Endpoint>);

#[pymethods]
impl RouteEndpoint {
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// Whether there is a connection.
    fn is_connected(&self) -> bool {
        self.0.is_connected()
    }

    /// Messages sent, failed for good, refused for want of room, dropped, handed on to other members of the group, and in the
    /// queue; the bytes of these; whether it is connected; and why not.
    fn counts(&self) -> (u64, u64, u64, u64, u64, usize, usize, bool, Option<String>) {
        let counts = self.0.counts();
        let why = self.0.failure().map(|failure| failure.message);
        let (queued, bytes) = (counts.queued, counts.queued_bytes);
        let (hard, soft) = (counts.failed_hard, counts.failed_soft);
        (counts.sent, hard, soft, counts.dropped, counts.handed_on, queued, bytes, counts.connected, why)
    }
}

/// How many endpoints have left, and the first seven of their [counts](RouteEndpoint::counts).
type LeftCounts = (u64, u64, u64, u64, u64, u64, usize, usize);

/// Sends and takes messages.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct RouteNode {
    node: Arc<Node>,
    owner: Arc<Owner>,
    /// Makes a type and a buffer of what is sent, if that is something else.
    prepare: Py<PyAny>,
    /// Where it takes messages that were kept for it.
    taking: Mutex<Vec<Taking>>,
}

#[pymethods]
impl RouteNode {
    /// `when_full` is what becomes of a message when `queue` bytes wait for its endpoint. `rmr` says, of programs of RMR,
    /// how many bytes their longest message has, whether they may be on other machines, whether the node takes other
    /// messages than replies from them, whether one of them may push tables, and whether `host:port` alone is one. `dial`
    /// makes a connection to an endpoint of some name; `start` starts a thread that does some work; `prepare` makes a type
    /// and a buffer of a type and a payload that are something else; `reply` is called with a message, a payload, a type
    /// and a timeout; `codec_of` returns what decodes payloads of a type, or raises.
    #[new]
    #[expect(clippy::too_many_arguments, reason = "a node is made once")]
    fn new(
        py: Python<'_>,
        name: &str,
        when_full: &str,
        queue: usize,
        rmr: (usize, bool, bool, bool, bool),
        dial: Py<PyAny>,
        start: Py<PyAny>,
        prepare: Py<PyAny>,
        reply: Py<PyAny>,
        codec_of: Py<PyAny>,
    ) -> PyResult<Self> {
        let (longest, anywhere, listens, managed, plain) = rmr;
        let rmr = RmrOptions { longest, queue, anywhere, listens, managed, plain };
        let when_full = match when_full {
            "block" => WhenFull::Block,
            "error" => WhenFull::Error,
            "drop_oldest" => WhenFull::DropOldest,
            "drop_newest" => WhenFull::DropNewest,
            _ => {
                let text = format!(
                    "when_full must be \"block\", \"error\", \"drop_oldest\" or \"drop_newest\", not {when_full:?}"
                );
                return Err(invalid(py, text));
            }
        };
        let dial: Dialler = Box::new(move |name| {
            attach(|py| {
                let made = dial.bind(py).run([name.into_pyobject(py).expect("a text").as_any()]);
                let made = made.and_then(|made| Ok(made.cast::<Connection>()?.get().channel()));
                made.map_err(|error| describe(py, &error))
            })
        });
        let start: Starter = Arc::new(move |work| {
            attach(|py| {
                let work = Bound::new(py, RouteWork(work));
                let started = work.and_then(|work| start.bind(py).run([work.as_any()]));
                started.map(drop).map_err(|error| describe(py, &error))
            })
        });
        let node = Node::new(name, when_full, queue, rmr, dial, start);
        let node = node.map_err(|error| invalid(py, error.to_string()))?;
        Ok(Self { node, owner: Owner::new(reply, codec_of), prepare, taking: Mutex::default() })
    }

    /// The handler of the method that takes messages, for a node that receives them one by one.
    fn inbox(&self) -> RouteInbox {
        RouteInbox(Arc::clone(self.node.inbox()))
    }

    /// The same for a node that has handlers called. `unhandled` is called with messages of other types, `failed` with the
    /// name of a handler, a message, and what the handler has raised. So many `threads` run handlers.
    fn dispatch(&self, unhandled: Py<PyAny>, failed: Py<PyAny>, threads: usize) -> RouteDispatch {
        // Relaxed: no handler runs yet.
        self.owner.threads.store(threads, Ordering::Relaxed);
        RouteDispatch::new(Arc::clone(self.node.inbox()), Arc::clone(&self.owner), unhandled, failed)
    }

    /// Gives messages of a type to a function. `codec` decodes their payloads, if they have values.
    fn handle(&self, kind: i32, function: Py<PyAny>, codec: Option<Py<RouteCodec>>, name: String) {
        self.owner.set_handler(kind, Handler { function, codec }, name);
    }

    /// Sets its name, and where this node takes replies; `shared` is how addresses begin for which it has to be there itself.
    fn set_address(&self, py: Python<'_>, name: &str, address: &str, shared: Vec<String>) -> PyResult<()> {
        self.node.set_address(name, address, shared).map_err(|error| invalid(py, error.to_string()))
    }

    /// Takes messages of RMR's programs from now on at `host:port`. Returns that with the port that the system chose, if it
    /// was 0.
    fn listen_rmr(&self, py: Python<'_>, place: &str) -> PyResult<String> {
        detach(py, || self.node.rmr().listen(place)).map_err(|failure| raise(py, &failure))
    }

    /// Takes messages that a NATS server keeps from now on, as a member of a group.
    fn take_durable(&self, py: Python<'_>, url: &str, group: &str) -> PyResult<()> {
        let taking = detach(py, || self.node.take_durable(url, group)).map_err(|failure| raise(py, &failure))?;
        self.taking.lock().push(taking);
        Ok(())
    }

    /// Sets where this node takes messages of RMR's programs, as it tells them: by name and by address.
    fn set_rmr_sender(&self, py: Python<'_>, source: String, source_address: String) -> PyResult<()> {
        if source.len().max(source_address.len()) >= SOURCE {
            let text = format!("{source:?} is too long for RMR: the name of a node with its port has at most 63 bytes");
            return Err(invalid(py, text));
        }
        self.node.rmr().set_sender(Sender { source, source_address });
        Ok(())
    }

    /// Connections with RMR's programs, those that were closed because the other side broke a rule, and those that were
    /// refused because there were too many.
    fn rmr_counts(&self) -> (usize, u64, u64) {
        let counts = self.node.rmr().counts();
        (counts.connections, counts.broken, counts.refused)
    }

    /// Puts a table in force: RMR's text, or TOML. `names` are this node's. What is queued for endpoints that the table no
    /// longer names is still sent for at most `grace` seconds. Unless it `may_wait`, new endpoints are not given the time to
    /// connect first.
    #[pyo3(signature = (text, names, *, toml, grace, may_wait))]
    fn install(
        &self,
        py: Python<'_>,
        text: &str,
        names: Vec<String>,
        toml: bool,
        grace: f64,
        may_wait: bool,
    ) -> PyResult<()> {
        let own = Own { names };
        let read = || {
            if toml {
                return Table::parse_toml(text, &own);
            }
            let empty = Table::empty();
            self.node
                .with_table(|before| Table::parse_text(text, &own, before))
                .unwrap_or_else(|| Table::parse_text(text, &own, &empty))
        };
        let table = detach(py, read).map_err(|error| invalid(py, error.to_string()))?;
        let grace = Duration::try_from_secs_f64(grace).unwrap_or(Duration::ZERO);
        // The interpreter is needed for each new endpoint, so a lock of the node may not be waited for with it.
        detach(py, || self.node.install(table, grace, may_wait)).map_err(|failure| raise(py, &failure))
    }

    /// The table in force in RMR's text, with its id.
    fn table(&self) -> Option<(String, String)> {
        self.node.with_table(|table| (table.id().to_owned(), table.to_text()))
    }

    /// Sends a message to the node at `to`, or else where the table says. Waits for room for at most `timeout` seconds; for an
    /// event loop not at all, and returns what is left to be done if there is no room.
    #[pyo3(signature = (r#type, payload=None, *, subscription=-1, transaction=None, entity="", trace=None, to=None, timeout=None, for_loop=false))]
    #[expect(clippy::too_many_arguments, reason = "they are keyword arguments in Python")]
    fn send(
        &self,
        py: Python<'_>,
        r#type: &Bound<'_, PyAny>,
        payload: Option<Bound<'_, PyAny>>,
        subscription: i64,
        transaction: Option<&[u8]>,
        entity: &str,
        trace: Option<&[u8]>,
        to: Option<&str>,
        timeout: Option<f64>,
        for_loop: bool,
    ) -> PyResult<Option<RoutePending>> {
        let (kind, payload) = self.prepared(py, r#type, payload)?;
        let (transaction, trace) = (transaction.unwrap_or_default(), trace.unwrap_or_default());
        let subscription = number(py, subscription)?;
        let envelope = Envelope { kind, subscription, transaction, entity, trace, call: 0 };
        if for_loop {
            return pending(py, self.node.begin(to, &envelope, payload.as_slice()));
        }
        finish(py, |go_on| self.node.send(to, &envelope, payload.as_slice(), until(timeout), go_on))
    }

    /// Sends a reply to the sender of a message, in the same way.
    #[pyo3(signature = (message, r#type, payload, *, timeout=None, for_loop=false))]
    fn reply(
        &self,
        py: Python<'_>,
        message: &RouteMessage,
        r#type: &Bound<'_, PyAny>,
        payload: Bound<'_, PyAny>,
        timeout: Option<f64>,
        for_loop: bool,
    ) -> PyResult<Option<RoutePending>> {
        let (kind, payload) = self.prepared(py, r#type, Some(payload))?;
        let (address, envelope) = (message.address(), Envelope { kind, ..message.envelope() });
        if for_loop {
            return pending(py, self.node.begin_reply(address, &envelope, payload.as_slice()));
        }
        let until = until(timeout).unwrap_or_else(|| Instant::now() + LONGEST);
        finish(py, |go_on| self.node.reply(address, &envelope, payload.as_slice(), until, go_on))
    }

    /// Begins to wait for the reply to a message with this transaction number, or a new one.
    #[pyo3(signature = (transaction=None, *, for_loop=false))]
    fn expect(&self, py: Python<'_>, transaction: Option<&[u8]>, for_loop: bool) -> PyResult<RouteWaiter> {
        let calling = if for_loop { Ok(None) } else { self.owner.call() };
        let calling = calling.map_err(|threads| {
            let text = format!(
                "a handler that waits for a reply needs another thread that takes it, and of the {threads} of this node \
                 none would be left: give it more with Node(..., threads={})",
                threads + 1
            );
            raise(py, &Failure::new(Failure::FAILED_PRECONDITION, text))
        })?;
        let transaction = transaction.map_or_else(|| self.node.transaction(), Transaction::from_slice);
        let number = transaction.to_vec();
        let waiter = self.node.expect(transaction, for_loop).map_err(|error| failed(py, &error))?;
        let waiter = Mutex::new(Some((Arc::new(waiter), calling)));
        Ok(RouteWaiter { waiter, transaction: number, owner: Arc::clone(&self.owner) })
    }

    /// For an event loop: the descriptor that is readable when there may be room, and when replies have come.
    fn bell_fileno(&self) -> PyResult<i32> {
        Ok(self.node.bell().event()?.as_raw_fd())
    }

    /// For an event loop, when that is readable: the transaction numbers of the calls whose replies have come.
    fn rung<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        self.node.bell().take().iter().map(|number| PyBytes::new(py, number)).collect()
    }

    /// Whether nothing more will come.
    fn is_over(&self) -> bool {
        self.node.inbox().is_closed()
    }

    /// The next messages, at most `most`. Waits for the first for at most `timeout` seconds.
    #[pyo3(signature = (most, timeout))]
    fn receive(&self, py: Python<'_>, most: usize, timeout: Option<f64>) -> PyResult<Vec<RouteMessage>> {
        self.take(py, self.node.inbox(), most, timeout)
    }

    /// The next message with records of a table that a route manager of RMR has pushed; none if none comes within `timeout`
    /// seconds, or the node takes no more messages.
    #[pyo3(signature = (timeout))]
    fn receive_table(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<RouteMessage>> {
        self.take(py, self.node.rmr().tables(), 1, timeout).map(|mut taken| taken.pop())
    }

    /// The descriptor that an event loop polls for reading.
    fn fileno(&self) -> PyResult<i32> {
        Ok(self.node.inbox().event()?.as_raw_fd())
    }

    /// Messages taken, waiting and malformed, and those that no entry of the table took.
    fn counts(&self) -> (u64, usize, u64, u64) {
        let (taken, waiting, malformed) = self.node.inbox().counts();
        (taken, waiting, malformed, self.node.unrouted())
    }

    /// The endpoint of that name, which connects from now on, whether the table names it or not.
    fn open(&self, py: Python<'_>, name: &str) -> PyResult<RouteEndpoint> {
        // The interpreter is needed for a new endpoint, so a lock of the node may not be waited for with it.
        detach(py, || self.node.direct(name)).map(RouteEndpoint).map_err(|error| failed(py, &error))
    }

    /// All endpoints in use, and what those have done together that have left.
    fn endpoints(&self) -> (Vec<RouteEndpoint>, LeftCounts) {
        let (endpoints, number, left) = self.node.endpoints();
        let Counts { sent, failed_hard, failed_soft, dropped, handed_on, queued, queued_bytes, .. } = left;
        let left = (number, sent, failed_hard, failed_soft, dropped, handed_on, queued, queued_bytes);
        (endpoints.into_iter().map(RouteEndpoint).collect(), left)
    }

    /// Whether a table is in force, and all its endpoints are connected.
    fn is_ready(&self) -> bool {
        self.node.is_ready()
    }

    /// Takes no more messages. Those that wait can still be received.
    fn take_no_more(&self) {
        drop(std::mem::take(&mut *self.taking.lock()));
        self.node.inbox().close();
        self.node.rmr().tables().close();
    }

    /// Sends nothing more but what is queued, for at most `grace` seconds.
    fn close(&self, grace: f64) {
        self.node.close(Duration::try_from_secs_f64(grace).unwrap_or(LONGEST).min(LONGEST));
    }

    /// Closes the sockets that are left, once nothing more is to be sent, and forgets its handlers: what they refer to may
    /// refer to this.
    fn end(&self) {
        self.node.rmr().close();
        self.owner.forget_handlers();
    }
}

/// Reads a table. Returns its id, the number of its entries, its endpoints, and its text as RMR has it.
#[pyfunction]
#[pyo3(signature = (text, *, toml))]
pub(crate) fn read_route_table(
    py: Python<'_>,
    text: &str,
    toml: bool,
) -> PyResult<(String, usize, Vec<String>, String)> {
    let own = Own { names: Vec::new() };
    let read = || if toml { Table::parse_toml(text, &own) } else { Table::parse_text(text, &own, &Table::empty()) };
    let table = detach(py, read).map_err(|error| invalid(py, error.to_string()))?;
    Ok((table.id().to_owned(), table.entries().count(), table.endpoints().to_vec(), table.to_text()))
}

/// One who waits for a reply.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct RouteWaiter {
    /// Whoever asks it does so without this lock: it has one of its own.
    waiter: Mutex<Option<(Arc<Waiter>, Option<Calling>)>>,
    transaction: Vec<u8>,
    owner: Arc<Owner>,
}

#[pymethods]
impl RouteWaiter {
    #[getter]
    fn transaction(&self) -> &[u8] {
        &self.transaction
    }

    /// The reply; `None` if none has come. Raises if none will come.
    fn take(&self, py: Python<'_>) -> PyResult<Option<RouteMessage>> {
        let outcome = self.waiter().map_or(Outcome::Nothing, |waiter| waiter.take());
        self.reply(py, outcome)
    }

    /// Seconds until it is certain that no reply will come; `None` if that is not known.
    fn ends_in(&self) -> Option<f64> {
        let ends = self.waiter()?.ends()?;
        Some(ends.saturating_duration_since(Instant::now()).as_secs_f64())
    }

    /// Waits for the reply for at most `timeout` seconds; `None` if none has come. Raises if none will come. Call this once.
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<RouteMessage>> {
        let Some((waiter, _calling)) = self.waiter.lock().take() else { return Ok(None) };
        in_slices(py, timeout, |slice| self.reply(py, detach(py, || waiter.wait(Some(slice)))))
    }
}

impl RouteWaiter {
    fn waiter(&self) -> Option<Arc<Waiter>> {
        self.waiter.lock().as_ref().map(|(waiter, _)| Arc::clone(waiter))
    }

    fn reply(&self, py: Python<'_>, outcome: Outcome) -> PyResult<Option<RouteMessage>> {
        match outcome {
            Outcome::Replied(arrived) => Ok(Some(RouteMessage::waited(arrived, &self.owner))),
            Outcome::Nothing => Ok(None),
            Outcome::Lost => {
                let text = "no reply will come: all nodes that have got the message have stopped or died, or their \
                            connections were lost";
                Err(raise(py, &Failure::new(Failure::UNAVAILABLE, text)))
            }
        }
    }
}

/// A message that has no room yet, in an event loop. One task has it; it is taken out while it is tried, which takes other
/// locks.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct RoutePending(Mutex<Option<Pending>>);

#[pymethods]
impl RoutePending {
    /// Tries again. Whether everything is done. To be called once before anybody waits for the bell.
    fn attempt(&self, py: Python<'_>) -> PyResult<bool> {
        let tried = self.with(Pending::attempt).unwrap_or(Ok(true));
        tried.map_err(|error| failed(py, &error))
    }

    /// The exception for giving up, which is counted.
    fn late(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.with(|pending| pending.late())?.map(|error| failed(py, &error).into_value(py).into_any())
    }
}

impl RoutePending {
    fn with<T>(&self, run: impl FnOnce(&mut Pending) -> T) -> Option<T> {
        let mut pending = self.0.lock().take()?;
        let result = run(&mut pending);
        *self.0.lock() = Some(pending);
        Some(result)
    }
}

impl RouteNode {
    /// The next messages, at most `most`. Runs the handlers of signals while it waits.
    fn take(&self, py: Python<'_>, inbox: &Inbox, most: usize, timeout: Option<f64>) -> PyResult<Vec<RouteMessage>> {
        let arrived = in_slices(py, timeout, |slice| {
            let arrived = detach(py, || inbox.take(most, Some(slice)));
            Ok((!arrived.is_empty() || inbox.is_closed()).then_some(arrived))
        })?;
        let arrived = arrived.into_iter().flatten();
        Ok(arrived.map(|arrived| RouteMessage::waited(arrived, &self.owner)).collect())
    }

    /// The type of what is sent, and its payload as a buffer.
    #[inline]
    fn prepared<'py>(
        &self,
        py: Python<'py>,
        kind: &Bound<'py, PyAny>,
        payload: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(i32, LentBuffer<'py>)> {
        let payload = payload.unwrap_or_else(|| PyBytes::new(py, b"").into_any());
        let is_buffer = payload.is_exact_instance_of::<PyBytes>()
            || payload.is_exact_instance_of::<PyByteArray>()
            || payload.is_exact_instance_of::<PyMemoryView>();
        if is_buffer
            && kind.is_exact_instance_of::<PyInt>()
            && let Ok(kind) = kind.extract()
        {
            return Ok((kind, LentBuffer::take(payload)?));
        }
        let (kind, payload) = self.prepare.bind(py).run([kind, &payload])?.extract()?;
        Ok((kind, LentBuffer::take(payload)?))
    }
}

/// Looks until something is there or the time is over, and runs the handlers of signals meanwhile. Each look may wait until it is
/// given.
fn in_slices<T>(
    py: Python<'_>,
    timeout: Option<f64>,
    look: impl Fn(Instant) -> PyResult<Option<T>>,
) -> PyResult<Option<T>> {
    let until = until(timeout);
    loop {
        let slice = Instant::now() + SIGNAL_CHECK;
        let found = look(until.map_or(slice, |until| until.min(slice)))?;
        if found.is_some() || is_past(until) {
            return Ok(found);
        }
        py.check_signals()?;
    }
}

/// What is left to be done for a message.
fn pending(py: Python<'_>, begun: Result<Option<Pending>, SendError>) -> PyResult<Option<RoutePending>> {
    let pending = begun.map_err(|error| failed(py, &error))?;
    Ok(pending.map(|pending| RoutePending(Mutex::new(Some(pending)))))
}

/// Sends, and runs the handlers of signals while it waits.
fn finish(
    py: Python<'_>,
    send: impl FnOnce(&mut dyn FnMut() -> bool) -> Result<(), SendError>,
) -> PyResult<Option<RoutePending>> {
    let mut stopped = None;
    let sent = send(&mut || match py.check_signals() {
        Ok(()) => true,
        Err(error) => {
            stopped = Some(error);
            false
        }
    });
    match (stopped, sent) {
        (Some(error), _) => Err(error),
        (None, sent) => sent.map(|()| None).map_err(|error| failed(py, &error)),
    }
}

#[cold]
fn failed(py: Python<'_>, error: &SendError) -> PyErr {
    let code = match error {
        SendError::NoTable { .. }
        | SendError::NoEndpoint { .. }
        | SendError::Nowhere { .. }
        | SendError::NoOwner { .. } => Failure::NOT_FOUND,
        SendError::Full { .. } | SendError::Crowded => Failure::RESOURCE_EXHAUSTED,
        SendError::TooLong(_) | SendError::BadAddress(_) => Failure::INVALID_ARGUMENT,
        SendError::NoAddress | SendError::Closed => Failure::FAILED_PRECONDITION,
        SendError::Failed(failure) => failure.code,
    };
    raise(py, &Failure::new(code, error.to_string()))
}

/// A subscription as messages have it.
#[inline]
fn number(py: Python<'_>, subscription: i64) -> PyResult<i32> {
    subscription.try_into().map_err(|_| invalid(py, format!("a subscription has 32 bits: {subscription} does not fit")))
}

/// When so many seconds are over.
fn until(timeout: Option<f64>) -> Option<Instant> {
    let timeout = Duration::try_from_secs_f64(timeout?.max(0.0)).ok()?;
    Instant::now().checked_add(timeout)
}
