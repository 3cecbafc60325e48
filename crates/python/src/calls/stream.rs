//! A call with streams, as a client sees it: one object for both directions, for threads and for event loops.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_core::client::{CallId, Connection as Core, NoEvent, Replay, TakenItems};
use nearcall_core::lock::Mutex;
use nearcall_core::{Compress, Failure, Incoming, Kind, Outgoing, is_past, seconds_left};
use pyo3::exceptions::{PyStopIteration, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::asyncio::handler_loop;
use crate::calls::calling::Calling;
use crate::calls::crossing::{decoding, encoding};
use crate::calls::deadline::Surroundings;
use crate::calls::driving::Call;
use crate::calls::outcome::{await_credit, awaited, late, name_failure, next_event, outcome};
use crate::calls::route::{Keeping, Leg, Route};
use crate::gil::errors::raise;
use crate::values::encoded::Encoded;
use crate::values::plan::Method;

/// A call under way whose arguments, result or both are streams.
#[pyclass(frozen, weakref, module = "nearcall._core")]
pub(crate) struct Stream {
    pub(crate) route: Route,
    pub(crate) calling: Calling,
    pub(crate) method: Py<Method>,
    pub(crate) until: Option<Instant>,
    pub(crate) surroundings: Surroundings,
    /// How long the wait for the next item, or for room to send one, may take.
    patience: Option<Duration>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    taken: TakenItems,
    /// A sender has waited for room too long.
    late: bool,
    /// The user knows how the call ended, or has given the call up.
    over: bool,
    /// When `send` last looked whether anything had come.
    looked: Option<Instant>,
}

/// How long a sender goes on before it looks again whether its call has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// What a stream for threads says to an event loop's statements.
const FOR_THREADS: &str = "this stream is for threads: write 'with' and 'for', or take a client of nearcall.aio";

impl Stream {
    pub(crate) fn new(
        core: Arc<Core>,
        calling: Calling,
        method: Py<Method>,
        id: CallId,
        Call { surroundings, driver }: Call,
        kept: Option<Replay>,
    ) -> Self {
        let until = surroundings.until();
        let patience = calling.limits.of_item();
        let route = Route::new(core, id, kept, driver);
        Self { route, calling, method, until, surroundings, patience, state: Mutex::default() }
    }

    pub(crate) fn for_loop(&self) -> bool {
        !self.calling.waiting.is_threads()
    }

    fn leg(&self) -> &Leg {
        self.route.leg()
    }

    fn name(&self) -> &str {
        &self.method.get().name
    }

    /// Decodes an event of the server's stream: an item, or `None` at the end.
    fn item(&self, py: Python<'_>, event: Incoming) -> PyResult<Option<Py<PyAny>>> {
        match event.head.kind {
            Kind::Item => {
                let len = event.payload.len();
                let item = self.decode(py, event)?;
                // The credit is sent without the lock: sending may wait, and other threads need the lock meanwhile.
                let credit = self.state.lock().taken.count(len);
                // After the deadline no credit is given: what has come by then is the caller's, and a server that sends
                // without end has no room for more.
                if let Some(credit) = credit
                    && !is_past(self.until)
                {
                    let leg = self.leg();
                    leg.core.grant(leg.id, credit, self.until);
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

    /// When a wait that begins now must end.
    fn soon(&self) -> Option<Instant> {
        let Some(patience) = self.patience else { return self.until };
        let now = Instant::now();
        let soon = if self.state.lock().late { Some(now) } else { now.checked_add(patience) };
        self.until.into_iter().chain(soon).min()
    }

    fn wait(slf: &Bound<'_, Self>) -> PyResult<Incoming> {
        let (py, this) = (slf.py(), slf.get());
        handler_loop::check(py, || this.__repr__())?;
        let until = this.soon();
        loop {
            if let Some(event) = Self::here(slf)? {
                return Ok(event);
            }
            let (leg, mut place) = (this.leg(), None);
            let waited = next_event(py, &leg.core, leg.id, until, &mut place);
            if matches!(waited, Ok(Err(NoEvent::Ended))) {
                match this.await_other(py, leg)? {
                    Ok(true) => continue,
                    Ok(false) => {}
                    Err(end) => return Ok(end),
                }
            }
            awaited(py, &leg.core, leg.id, waited, this.name())?;
            let event = place.expect("there is an event");
            if let Some(event) = Self::arrived(slf, leg, event)? {
                return Ok(event);
            }
        }
    }

    /// The next event, if it has arrived.
    fn here(slf: &Bound<'_, Self>) -> PyResult<Option<Incoming>> {
        let this = slf.get();
        if this.route.keeps() {
            if let Some(failure) = this.route.take_failure() {
                return Err(failure);
            }
            let end = this.route.take_end();
            if end.is_some() || this.route.is_claimed() {
                return Ok(end);
            }
        }
        loop {
            let leg = this.leg();
            let Some(event) = leg.core.try_event(leg.id) else { return Ok(None) };
            let event = Self::arrived(slf, leg, event)?;
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    /// Takes an event that has come on `leg`. `None` if it was metadata, or if the call goes on although it was refused.
    fn arrived(slf: &Bound<'_, Self>, leg: &Leg, mut event: Incoming) -> PyResult<Option<Incoming>> {
        let this = slf.get();
        if event.is_unbegun() {
            match Self::goes_on(slf, leg, Some(event))? {
                Ok(_) => return Ok(None),
                Err(end) => event = end,
            }
        }
        this.route.settle();
        Ok(if this.is_metadata(slf.py(), &event)? { None } else { Some(event) })
    }

    /// Like `here`, for an event loop: receiving may also bring frames of other calls.
    fn here_in_loop(slf: &Bound<'_, Self>) -> PyResult<Option<Incoming>> {
        slf.get().calling.waiting.stirred(slf.py())?;
        Self::here(slf)
    }

    /// Whether the call is under way, as far as this side has received, or is being sent again.
    fn is_under_way(&self) -> bool {
        let leg = self.leg();
        leg.core.is_live(leg.id) || self.route.is_claimed()
    }

    /// Gives received metadata to the metadata block that surrounded the call. Returns whether the event holds nothing
    /// else.
    #[inline]
    fn is_metadata(&self, py: Python<'_>, event: &Incoming) -> PyResult<bool> {
        if event.head.extras().is_none() {
            return Ok(false);
        }
        let initial = event.head.kind == Kind::Head;
        self.surroundings.received(py, initial, event.head.metadata())?;
        Ok(initial)
    }

    /// Decodes a result or an item of the server's stream.
    fn decode(&self, py: Python<'_>, mut event: Incoming) -> PyResult<Py<PyAny>> {
        let reply = &self.method.get().reply;
        decoding(reply.references(), &self.leg().core, &self.calling, &mut event, |event| reply.decode(py, event, None))
    }

    fn encode<'py>(&self, item: Bound<'py, PyAny>) -> PyResult<Encoded<'py>> {
        let value = self.method.get().request_item.as_ref();
        let value = value.ok_or_else(|| PyTypeError::new_err(format!("{} takes no stream", self.name())))?;
        let kept = value.references().then(|| item.clone());
        let mut encoded = encoding(value.references(), &self.leg().core, &self.calling, || value.encode(item))?;
        encoded.kept = kept;
        Ok(encoded)
    }

    /// Sends an item if there is room at once: `Some(true)` if it was sent or kept, `Some(false)` if the call has
    /// ended, `None` if there is no room. The leg is that of the item; `None` while the call is being sent again.
    fn try_send_encoded(
        &self,
        encoded: &mut Encoded<'_>,
        compress: Compress,
    ) -> Result<(Option<bool>, Option<&Leg>), Failure> {
        let (sent, leg) = encoded.with(|body| {
            let item = Outgoing { compress, ..Outgoing::new(Kind::Item, body) };
            match self.route.keep(&item) {
                Keeping::Kept => (Ok(Some(true)), None),
                Keeping::Wait => (Ok(None), None),
                Keeping::Send(leg) => (leg.core.try_send_item(leg.id, &item, encoded.given(), self.until), Some(leg)),
            }
        });
        let sent = sent?;
        if sent == Some(true) {
            encoded.sent();
        }
        Ok((sent, leg))
    }
}

impl Stream {
    /// Whether the deadline is still ahead. Now and then this also receives: a sender that never waits for room would
    /// not learn otherwise that the call has ended.
    fn may_send(&self) -> bool {
        let now = Instant::now();
        {
            let mut state = self.state.lock();
            if state.looked.is_some_and(|looked| now < looked + LOOK_INTERVAL) {
                return true;
            }
            state.looked = Some(now);
        }
        self.leg().core.look();
        self.until.is_none_or(|until| now < until)
    }
}

#[pymethods]
impl Stream {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// The next item of the server's stream.
    fn __next__(slf: &Bound<'_, Self>) -> PyResult<Option<Py<PyAny>>> {
        let (py, this) = (slf.py(), slf.get());
        if this.state.lock().over {
            return Ok(None);
        }
        // Callers such as `sum` run no line of Python between two items, and nothing else looks for signals while items
        // are here.
        py.check_signals()?;
        match Self::wait(slf) {
            Ok(event) => this.item(py, event),
            // Closed by another thread meanwhile: that is the end, and no error.
            Err(_) if this.state.lock().over => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The next item of the server's stream if it has arrived, else `default`; raises `StopIteration` at the end.
    fn try_next(slf: &Bound<'_, Self>, default: Py<PyAny>) -> PyResult<Py<PyAny>> {
        let this = slf.get();
        if this.state.lock().over {
            return Err(PyStopIteration::new_err(()));
        }
        let Some(event) = Self::here_in_loop(slf)? else {
            return if this.is_under_way() { Ok(default) } else { Err(PyStopIteration::new_err(())) };
        };
        this.item(slf.py(), event)?.ok_or_else(|| PyStopIteration::new_err(()))
    }

    /// Sends an item of the client's stream. Waits for the server to take earlier ones. `False` if the call has ended.
    fn send(slf: &Bound<'_, Self>, item: Bound<'_, PyAny>) -> PyResult<bool> {
        let (py, this) = (slf.py(), slf.get());
        let compress = this.surroundings.compress(py)?;
        let mut encoded = this.encode(item)?;
        if !this.may_send() {
            return Ok(false);
        }
        let mut until = None;
        loop {
            let sent = this.try_send_encoded(&mut encoded, compress);
            match sent.map_err(|failure| name_failure(py, &failure, this.name()))? {
                (Some(false), Some(leg)) if this.route.keeps() => return Self::sends_on(slf, leg),
                (Some(sent), _) => return Ok(sent),
                (None, Some(leg)) => {
                    handler_loop::check(py, || this.__repr__())?;
                    let until = *until.get_or_insert_with(|| this.soon());
                    if await_credit(py, &leg.core, leg.id, until)?.is_err() {
                        // The deadline has passed: `wait` finds that.
                        this.state.lock().late = true;
                        return Ok(false);
                    }
                }
                // The call is being sent again, and no more items may be kept.
                (None, None) => {
                    this.route.sleep(py)?;
                    if is_past(this.until) {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// Sends an item if the server has room for it: `True`; `False` if the call has ended, `None` if there is no room.
    fn try_send(slf: &Bound<'_, Self>, item: Bound<'_, PyAny>) -> PyResult<Option<bool>> {
        let (py, this) = (slf.py(), slf.get());
        let compress = this.surroundings.compress(py)?;
        let mut encoded = this.encode(item)?;
        let sent = this.try_send_encoded(&mut encoded, compress);
        this.calling.waiting.stirred(py)?;
        match sent.map_err(|failure| name_failure(py, &failure, this.name()))? {
            (Some(false), Some(leg)) if this.route.keeps() => Self::sends_on(slf, leg).map(Some),
            (sent, _) => Ok(sent),
        }
    }

    /// Says that the client's stream is complete.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        // `None`: the thread or task that sends the call again sends its end, too.
        let Some(leg) = self.route.end() else { return Ok(()) };
        if leg.core.is_live(leg.id) {
            leg.core.end_stream(leg.id, self.until).map_err(|failure| name_failure(py, &failure, self.name()))?;
            self.calling.waiting.stirred(py)?;
        }
        Ok(())
    }

    /// Waits for the result of a call of which only the arguments are a stream.
    fn result(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let event = Self::wait(slf)?;
        slf.get().finish(slf.py(), event)
    }

    /// The same result if it has arrived, else `default`.
    fn try_result(slf: &Bound<'_, Self>, default: Py<PyAny>) -> PyResult<Py<PyAny>> {
        let this = slf.get();
        match Self::here_in_loop(slf)? {
            Some(event) => this.finish(slf.py(), event),
            None if this.is_under_way() => Ok(default),
            None => Err(PyStopIteration::new_err(())),
        }
    }

    /// For an event loop: sets `future`'s result when a frame of this call has arrived. A `sender` is not woken by
    /// items that wait to be read.
    #[pyo3(signature = (future, *, sender))]
    fn notify(&self, py: Python<'_>, future: Py<PyAny>, sender: bool) -> PyResult<()> {
        if self.route.is_claimed() {
            self.route.add_future(future);
            return Ok(());
        }
        let Leg { core, id, .. } = self.leg();
        self.calling.waiting.register(py, core, *id, future, sender)
    }

    /// Seconds that a wait which begins now may take; `None` if there is no limit.
    fn time_left(&self) -> Option<f64> {
        self.soon().map(seconds_left)
    }

    /// Gives the call up and raises if its deadline has passed, or a wait took as long as it may.
    fn check_deadline(&self, py: Python<'_>, waited: bool) -> PyResult<()> {
        let waited = waited && self.patience.is_some();
        if (waited || is_past(self.until)) && self.is_under_way() {
            self.cancel(py)?;
            return Err(raise(py, &late(self.name(), self.leg().core.name())));
        }
        Ok(())
    }

    /// The same as `cancel`, as iterators call it.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.cancel(py)
    }

    /// Says what to write instead: a stream's items come in order, each once.
    fn __getitem__(&self, _index: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let text = format!(
            "{} gives a stream, which has no index: take its items in order, with 'for item in stream' or next(stream), \
             or write list(stream)[...]",
            self.name()
        );
        Err(PyTypeError::new_err(text))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.cancel(py)
    }

    /// Says what to write in place of an `async with`.
    #[expect(clippy::unused_self, reason = "Python calls it on the stream")]
    fn __aenter__(&self) -> PyResult<Py<PyAny>> {
        Err(PyTypeError::new_err(FOR_THREADS))
    }

    /// Python looks for both before it calls the first.
    #[expect(clippy::unused_self, reason = "Python calls it on the stream")]
    #[pyo3(signature = (*_error))]
    fn __aexit__(&self, _error: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        Err(PyTypeError::new_err(FOR_THREADS))
    }

    /// Gives the call up. Harmless when it has ended.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.state.lock().over = true;
        self.route.give_up();
        let leg = self.leg();
        leg.core.cancel(leg.id);
        self.calling.waiting.give_up(py, &leg.core, leg.id)?;
        self.wake_futures(py)?;
        self.calling.waiting.stirred(py)
    }

    /// For an event loop that has connected anew: sends the call, which the server has refused, again from its start.
    /// Returns `False` if the connection was lost again before that.
    fn send_again(&self, py: Python<'_>) -> PyResult<bool> {
        let Some(core) = self.calling.ready_for_loop(py)? else { return Ok(false) };
        if self.begin_again(py, &core)?.is_err() {
            return Ok(false);
        }
        self.wake_futures(py)?;
        self.calling.waiting.stirred(py)?;
        Ok(true)
    }

    /// For an event loop that cannot send the call again: readers and senders of the stream get `failure`.
    fn fail(&self, py: Python<'_>, failure: Bound<'_, PyAny>) -> PyResult<()> {
        self.route.fail(PyErr::from_value(failure));
        self.wake_futures(py)
    }

    fn __repr__(&self) -> String {
        format!("<stream of {} at {}>", self.name(), self.leg().core.name())
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
        self.route.give_up();
        let leg = self.leg();
        leg.core.cancel(leg.id);
    }
}
