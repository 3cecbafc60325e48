//! A call with streams, as a client sees it: one object for both directions, for threads and for event loops.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_core::client::{CallId, Connection as Core, NoEvent, StreamAccount};
use nearcall_core::lock::Mutex;
use nearcall_core::{Failure, Incoming, Kind, Outgoing};
use pyo3::exceptions::{PyStopIteration, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::calling::Calling;
use crate::deadline::Surroundings;
use crate::errors::raise;
use crate::interpreter::detach;
use crate::outcome::{late, name_failure, outcome, wait_on};
use crate::plan::Method;
use crate::references::{decoding, encoding};

/// A call under way whose arguments, result or both are streams.
#[pyclass(frozen, weakref, module = "nearcall._core")]
pub(crate) struct Stream {
    core: Arc<Core>,
    calling: Calling,
    method: Py<Method>,
    id: CallId,
    until: Option<Instant>,
    surroundings: Surroundings,
    /// How long it may take until the next item, or until there is room for one.
    patience: Option<Duration>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    account: StreamAccount,
    /// The server took nothing for too long.
    late: bool,
    /// The server has said how the call ended, and the user has heard it.
    over: bool,
    /// When `send` last looked whether anything had come.
    looked: Option<Instant>,
}

/// How long a sender goes on before it looks whether its call has ended.
const LOOK: Duration = Duration::from_millis(1);

impl Stream {
    pub(crate) fn new(
        core: Arc<Core>,
        calling: Calling,
        method: Py<Method>,
        id: CallId,
        surroundings: Surroundings,
    ) -> Self {
        let until = surroundings.until();
        let patience = calling.limits.of_item();
        Self { core, calling, method, id, until, surroundings, patience, state: Mutex::default() }
    }

    fn name(&self) -> &str {
        &self.method.get().name
    }

    /// An item of the server's stream, `None` at its end.
    fn item(&self, py: Python<'_>, event: Incoming) -> PyResult<Option<Py<PyAny>>> {
        match event.head.kind {
            Kind::Item => {
                let len = event.payload.len();
                let item = self.decode(py, event)?;
                // Nothing may be sent under the lock: to send may mean to wait, and others need it meanwhile.
                let credit = self.state.lock().account.count(len);
                if let Some(credit) = credit {
                    self.core.grant(self.id, credit, self.until);
                    self.calling.waiting.stirred(py)?;
                }
                Ok(Some(item))
            }
            Kind::End => {
                self.state.lock().over = true;
                Ok(None)
            }
            _ => {
                self.state.lock().over = true;
                Err(outcome(py, &event, self.method.get()))
            }
        }
    }

    /// When a wait that begins now is over.
    fn soon(&self) -> Option<Instant> {
        let Some(patience) = self.patience else { return self.until };
        let now = Instant::now();
        let soon = if self.state.lock().late { Some(now) } else { now.checked_add(patience) };
        self.until.into_iter().chain(soon).min()
    }

    fn wait(&self, py: Python<'_>) -> PyResult<Incoming> {
        let until = self.soon();
        loop {
            if let Some(event) = self.here(py)? {
                return Ok(event);
            }
            let event = match detach(py, || self.core.next_event(self.id, until)) {
                Ok(event) => event,
                Err(no_event) => wait_on(py, &self.core, self.id, until, no_event, self.name())?,
            };
            if !self.is_metadata(py, &event)? {
                return Ok(event);
            }
        }
    }

    /// The next event, if it is here.
    fn here(&self, py: Python<'_>) -> PyResult<Option<Incoming>> {
        while let Some(event) = self.core.try_event(self.id) {
            if !self.is_metadata(py, &event)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// The same for an event loop: what is received along with it may be for others.
    fn here_in_loop(&self, py: Python<'_>) -> PyResult<Option<Incoming>> {
        self.calling.waiting.stirred(py)?;
        self.here(py)
    }

    /// Tells the block that surrounded the call of metadata that came. Whether the event is nothing else.
    #[inline]
    fn is_metadata(&self, py: Python<'_>, event: &Incoming) -> PyResult<bool> {
        if event.head.extras().is_none() {
            return Ok(false);
        }
        let initial = event.head.kind == Kind::Head;
        self.surroundings.received(py, initial, event.head.metadata())?;
        Ok(initial)
    }

    /// A result or an item of the server's.
    fn decode(&self, py: Python<'_>, mut event: Incoming) -> PyResult<Py<PyAny>> {
        let reply = &self.method.get().reply;
        decoding(reply.references, &self.core, &self.calling, &mut event, |event| reply.decode(py, event))
    }

    fn send_with(
        &self,
        item: Bound<'_, PyAny>,
        send: impl FnOnce(&Outgoing<'_>) -> Result<Option<bool>, Failure>,
    ) -> PyResult<Result<Option<bool>, Failure>> {
        let value = self.method.get().request_item.as_ref();
        let value = value.ok_or_else(|| PyTypeError::new_err(format!("{} takes no stream", self.name())))?;
        let kept = value.references.then(|| item.clone());
        let mut encoded = encoding(value.references, &self.core, &self.calling, || value.encode(item))?;
        encoded.kept = kept;
        let sent = encoded.with(|body| send(&Outgoing::new(Kind::Item, body)));
        if matches!(sent, Ok(Some(true))) {
            encoded.sent();
        }
        Ok(sent)
    }
}

impl Stream {
    /// Looks now and then whether the call has ended or its deadline passed: a sender that never waits for room would not
    /// learn of it.
    fn may_send(&self) -> bool {
        let now = Instant::now();
        {
            let mut state = self.state.lock();
            if state.looked.is_some_and(|looked| now < looked + LOOK) {
                return true;
            }
            state.looked = Some(now);
        }
        self.core.look();
        self.until.is_none_or(|until| now < until)
    }
}

#[pymethods]
impl Stream {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// The next item of the server's stream.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        if self.state.lock().over {
            return Ok(None);
        }
        // `sum` and its like run no line of Python between two items, and nothing else looks while items are here.
        py.check_signals()?;
        match self.wait(py) {
            Ok(event) => self.item(py, event),
            // Closed by another thread meanwhile: that is the end, and no error.
            Err(_) if self.state.lock().over => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The next item of the server's stream if it is here, `default` if it is not yet; raises `StopIteration` at the end.
    fn try_next(&self, py: Python<'_>, default: Py<PyAny>) -> PyResult<Py<PyAny>> {
        if self.state.lock().over {
            return Err(PyStopIteration::new_err(()));
        }
        let Some(event) = self.here_in_loop(py)? else {
            return if self.core.is_live(self.id) { Ok(default) } else { Err(PyStopIteration::new_err(())) };
        };
        self.item(py, event)?.ok_or_else(|| PyStopIteration::new_err(()))
    }

    /// Sends an item of the client's stream, waiting for the server to take earlier ones. `False` if the call has ended.
    fn send(&self, py: Python<'_>, item: Bound<'_, PyAny>) -> PyResult<bool> {
        let value = self.method.get().request_item.as_ref();
        let value = value.ok_or_else(|| PyTypeError::new_err(format!("{} takes no stream", self.name())))?;
        let kept = value.references.then(|| item.clone());
        let mut encoded = encoding(value.references, &self.core, &self.calling, || value.encode(item))?;
        encoded.kept = kept;
        if !self.may_send() {
            return Ok(false);
        }
        let at_once =
            encoded.with(|body| self.core.try_send_item(self.id, &Outgoing::new(Kind::Item, body), self.until));
        if let Some(sent) = at_once.map_err(|failure| name_failure(py, &failure, self.name()))? {
            if sent {
                encoded.sent();
            }
            return Ok(sent);
        }
        let until = self.soon();
        loop {
            let sent = encoded.with(|body| {
                let item = Outgoing::new(Kind::Item, body);
                detach(py, || self.core.send_item(self.id, &item, until))
            });
            match sent {
                Ok(sent) => {
                    if sent {
                        encoded.sent();
                    }
                    return Ok(sent);
                }
                Err(Err(failure)) => return Err(name_failure(py, &failure, self.name())),
                Err(Ok(NoEvent::Interrupted)) => py.check_signals()?,
                // The result that `wait` finds is the deadline, or the end.
                Err(Ok(_)) => {
                    self.state.lock().late = true;
                    return Ok(false);
                }
            }
        }
    }

    /// Sends an item if the server has room for it: `True`; `False` if the call has ended, `None` if there is no room.
    fn try_send(&self, py: Python<'_>, item: Bound<'_, PyAny>) -> PyResult<Option<bool>> {
        let sent = self.send_with(item, |item| self.core.try_send_item(self.id, item, self.until))?;
        self.calling.waiting.stirred(py)?;
        sent.map_err(|failure| name_failure(py, &failure, self.name()))
    }

    /// Says that the client's stream is complete.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        if self.core.is_live(self.id) {
            self.core.end_stream(self.id, self.until).map_err(|failure| name_failure(py, &failure, self.name()))?;
            self.calling.waiting.stirred(py)?;
        }
        Ok(())
    }

    /// Waits for the result of a call whose arguments alone are a stream.
    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let event = self.wait(py)?;
        self.finish(py, event)
    }

    /// That result if it is here, else `default`.
    fn try_result(&self, py: Python<'_>, default: Py<PyAny>) -> PyResult<Py<PyAny>> {
        match self.here_in_loop(py)? {
            Some(event) => self.finish(py, event),
            None if self.core.is_live(self.id) => Ok(default),
            None => Err(PyStopIteration::new_err(())),
        }
    }

    /// Whether the call has ended, as far as this side has received.
    #[getter]
    fn ended(&self) -> bool {
        !self.core.is_live(self.id)
    }

    /// For an event loop: sets `future`'s result when something has come for this call. A sender is not interested in
    /// items that wait to be read.
    #[pyo3(signature = (future, *, sender))]
    fn notify(&self, py: Python<'_>, future: Py<PyAny>, sender: bool) -> PyResult<()> {
        if sender {
            return self.calling.waiting.register_sender(py, &self.core, self.id, future);
        }
        self.calling.waiting.register(py, &self.core, self.id, future)
    }

    /// Seconds that a wait which begins now may take; `None` if there is no limit.
    fn time_left(&self) -> Option<f64> {
        self.soon().map(|until| until.saturating_duration_since(Instant::now()).as_secs_f64())
    }

    /// Gives the call up and raises if its deadline has passed, or a wait took as long as it may.
    fn check_deadline(&self, py: Python<'_>, waited: bool) -> PyResult<()> {
        let waited = waited && self.patience.is_some();
        if (waited || self.until.is_some_and(|until| Instant::now() >= until)) && self.core.is_live(self.id) {
            self.core.cancel(self.id);
            return Err(raise(py, &late(self.name(), self.core.name())));
        }
        Ok(())
    }

    /// The same as `cancel`, as iterators call it.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.cancel(py)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.cancel(py)
    }

    /// Gives the call up. Harmless when it has ended.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.state.lock().over = true;
        self.core.cancel(self.id);
        self.calling.waiting.give_up(py, &self.core, self.id)?;
        self.calling.waiting.stirred(py)
    }

    fn __repr__(&self) -> String {
        format!("<stream of {} at {}>", self.name(), self.core.name())
    }
}

impl Stream {
    fn finish(&self, py: Python<'_>, event: Incoming) -> PyResult<Py<PyAny>> {
        self.state.lock().over = true;
        match event.head.kind {
            Kind::Reply => self.decode(py, event),
            _ => Err(outcome(py, &event, self.method.get())),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.core.cancel(self.id);
    }
}
