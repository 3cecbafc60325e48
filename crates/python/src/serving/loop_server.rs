//! Requests for handlers that are coroutines. The event loop takes them; nothing here waits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use nearcall_core::lock::Mutex;
use nearcall_core::server::{ForLoop, ItemOutcome, NextItem, Request};
use nearcall_core::{Failure, Incoming, given_in, seconds_left};
use pyo3::exceptions::{PyOSError, PyStopAsyncIteration};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::gil::interpreter::detach;
use crate::references::objects::{Given, Served, ServedObject};
use crate::serving::context::{Call, OK, tell_all};
use crate::serving::served::{Serving, call_over, describe_for, end_stream, fail, late, too_long, tracked};
use crate::serving::topic::{Owner, Subscription};
use crate::values::plan::Method;

/// What is served, as an event loop sees it. Each call in the loop refers to this one.
pub(crate) struct InLoop(pub(crate) Arc<Serving>);

impl std::ops::Deref for InLoop {
    type Target = Serving;

    fn deref(&self) -> &Serving {
        &self.0
    }
}

/// Where the event loop hears of the next request.
#[pyclass(frozen, eq, eq_int, from_py_object, rename_all = "UPPERCASE", module = "nearcall._core")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watch {
    /// At the descriptor of `poll_fileno`: the loop receives.
    Connections,
    /// At the descriptor of `loop_fileno`: a worker receives, and tells the loop.
    Queue,
}

impl InLoop {
    /// The next request for the event loop, or else what the loop is to watch. `may_spin`: the loop has nothing else under way.
    pub(crate) fn next(&self, py: Python<'_>, may_spin: bool) -> Result<Box<Request>, Watch> {
        let mut next = self.core.next_for_loop(may_spin);
        loop {
            next = match next {
                ForLoop::Request(request) => return Ok(request),
                ForLoop::Listen => return Err(Watch::Connections),
                ForLoop::Elsewhere => return Err(Watch::Queue),
                ForLoop::Spin => detach(py, || self.core.spin_for_loop()),
            }
        }
    }
}

/// One call that a coroutine handler serves.
pub(crate) struct LoopCall {
    of: Arc<InLoop>,
    pub(crate) request: Box<Request>,
    /// The arguments, until they are asked for.
    event: Mutex<Option<Incoming>>,
    /// Python callables that are told how the call ends. Not there for most calls, which costs no lock to see.
    observers: OnceLock<Mutex<Vec<Py<PyAny>>>>,
    /// A topic has taken over the call.
    kept: AtomicBool,
}

impl LoopCall {
    pub(crate) fn new(of: Arc<InLoop>, mut request: Box<Request>) -> Arc<Self> {
        let event = Mutex::new(Some(request.take_event()));
        Arc::new(Self { of, request, event, observers: OnceLock::new(), kept: AtomicBool::new(false) })
    }

    /// What serves it, and the called object if no service is called.
    fn found(&self) -> (&Served, Option<&Given>) {
        self.of.find(self.request.target.as_ref(), self.request.head.method)
    }

    pub(crate) fn served(&self) -> &Method {
        self.found().0.method.get()
    }

    /// Calls the handler of a method without streams. Returns what is to be awaited.
    pub(crate) fn call_handler<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let arguments = self.arguments(py)?;
        let (served, given) = self.found();
        served.call(py, given, arguments)
    }

    fn arguments<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        // The lock is free again before Python runs, which may let others have the interpreter.
        let event = self.event.lock().take();
        let event = event.ok_or_else(|| PyOSError::new_err("the arguments were asked for before"))?;
        self.of.arguments(py, self.served(), &self.request, event)
    }

    /// Whether the client gave the call up, or is gone.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.request.call.as_ref().is_some_and(|call| call.is_cancelled())
    }

    /// The call, for `nearcall.context()`.
    fn described(&self) -> Call {
        Call::new(&self.request, self.served())
    }

    /// Ends the call with a result. Returns `false` if the client must read earlier messages first.
    pub(crate) fn reply(&self, py: Python<'_>, result: Bound<'_, PyAny>) -> PyResult<bool> {
        let observed = self.is_observed();
        let code = self.of.reply(py, self.served(), &self.request, result, observed)?;
        Ok(self.tell_end(py, code))
    }

    /// Ends the call with the failure that an exception stands for.
    #[cold]
    pub(crate) fn fail_with(&self, py: Python<'_>, error: &PyErr) {
        let failure = describe_for(py, self.served(), self.described(), error);
        let code = fail(self.served(), &self.request, &failure);
        self.tell_end(py, Some(code));
    }

    /// Ends the call because its deadline has passed.
    fn fail_late(&self, py: Python<'_>) {
        let code = fail(self.served(), &self.request, &late(&self.served().name));
        self.tell_end(py, Some(code));
    }

    /// The handler has returned: nothing more is received for the call, and the call counts no more. A call that was
    /// not ended by then ends without a message.
    pub(crate) fn forget(&self, py: Python<'_>) {
        // Relaxed: see `LoopRequest::subscribe`.
        if self.kept.load(Ordering::Relaxed) {
            return;
        }
        self.request.forget();
        self.request.finish();
        self.tell_end(py, Some(Failure::CANCELLED));
    }

    fn is_observed(&self) -> bool {
        self.observers.get().is_some_and(|observers| !observers.lock().is_empty())
    }

    /// Tells the observers that the call has ended with `code`. Returns whether it has ended.
    fn tell_end(&self, py: Python<'_>, code: Option<u8>) -> bool {
        if let (Some(code), Some(observers)) = (code, self.observers.get()) {
            let observers = std::mem::take(&mut *observers.lock());
            tell_all(py, observers, code);
        }
        code.is_some()
    }
}

impl Drop for LoopCall {
    fn drop(&mut self) {
        let unread = self.event.get_mut().take();
        if let Some(unread) = unread.filter(|_| self.served().arguments.references()) {
            self.request.connection().release_given(&given_in(&unread.head, &unread.payload));
        }
    }
}

impl Owner for Arc<LoopCall> {
    fn request(&self) -> &Request {
        &self.request
    }
}

/// A call that a coroutine handler serves, as the event loop and the handler's context know it.
///
/// Copies of the context, and tracebacks, may refer to this long after the call: those of a timer that was cancelled, of
/// a task that the handler has left. So when the call is over this keeps its description only, and nothing of the
/// client (docs/adr/0081).
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct LoopRequest {
    state: Mutex<State>,
    /// The key that `Server.changed` uses for this request; 0 if nothing can change for it.
    #[pyo3(get)]
    key: usize,
}

enum State {
    UnderWay(Arc<LoopCall>),
    Over(Call),
}

impl LoopRequest {
    pub(crate) fn new(call: Arc<LoopCall>) -> Self {
        let key = call.request.call.as_ref().map_or(0, |call| Arc::as_ptr(call).addr());
        Self { state: Mutex::new(State::UnderWay(call)), key }
    }

    /// The call, to be looked at outside the lock; its description if it is over.
    fn look(&self) -> Result<Arc<LoopCall>, Call> {
        match &*self.state.lock() {
            State::UnderWay(call) => Ok(Arc::clone(call)),
            State::Over(call) => Err(call.clone()),
        }
    }

    fn under_way(&self, py: Python<'_>) -> PyResult<Arc<LoopCall>> {
        self.look().map_err(|call| call_over(py, &call.method))
    }

    /// The call is over: keeps its description in its place.
    pub(crate) fn let_go(&self) {
        let Ok(call) = self.look() else { return };
        let over = State::Over(call.described());
        let before = std::mem::replace(&mut *self.state.lock(), over);
        // Outside the lock: the client's session may end with it.
        drop(before);
    }
}

#[pymethods]
impl LoopRequest {
    /// The method's number.
    #[getter]
    fn index(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(usize::from(self.under_way(py)?.request.head.method))
    }

    /// The called object, and the object that runs its calls; `None` if a service is called.
    #[getter]
    fn target(&self, py: Python<'_>) -> PyResult<Option<(Py<PyAny>, Py<ServedObject>)>> {
        let call = self.under_way(py)?;
        let (_, given) = call.found();
        Ok(given.map(|given| (given.object.clone_ref(py), given.served.clone_ref(py))))
    }

    /// Whether the client gave the call up, or is gone.
    #[getter]
    fn cancelled(&self) -> bool {
        match self.look() {
            Ok(call) => call.is_cancelled(),
            Err(call) => call.cancelled(),
        }
    }

    /// The call, for `nearcall.context()`.
    fn call(&self) -> Call {
        self.look().map_or_else(|call| call, |call| call.described())
    }

    /// Seconds until the caller stops waiting; `None` if it waits for ever.
    #[getter]
    fn time_left(&self) -> Option<f64> {
        match self.look() {
            Ok(call) => call.request.deadline.map(seconds_left),
            Err(call) => call.time_left(),
        }
    }

    /// Ends the call because its deadline has passed.
    fn fail_late(&self, py: Python<'_>) -> PyResult<()> {
        self.under_way(py)?.fail_late(py);
        Ok(())
    }

    /// Calls `observer` with the status code of this call, once that has ended. Returns `False` if it is over.
    fn on_end(&self, observer: Py<PyAny>) -> bool {
        let Ok(call) = self.look() else { return false };
        call.observers.get_or_init(Mutex::default).lock().push(observer);
        true
    }

    /// The arguments, every parameter in order but the stream. To be asked once.
    fn arguments<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.under_way(py)?.arguments(py)
    }

    /// The next item of the client's stream, or `default` if it has not arrived yet; raises `StopAsyncIteration` at the
    /// end.
    fn try_next(&self, py: Python<'_>, default: Py<PyAny>) -> PyResult<Py<PyAny>> {
        let this = self.under_way(py)?;
        let call = tracked(&this.request)?;
        match call.try_next_item() {
            NextItem::Pending => Ok(default),
            next => {
                let item = this.of.decode_item(py, this.served(), &call, next)?;
                item.ok_or_else(|| PyStopAsyncIteration::new_err(()))
            }
        }
    }

    /// Sends an item of the server's stream. Returns `True` if it was sent, `False` if the client gave the call up or its deadline has
    /// passed, which ends it, and `None` if the client must take earlier items first: then `changed` tells when to try again.
    fn try_send(&self, py: Python<'_>, item: Bound<'_, PyAny>) -> PyResult<Option<bool>> {
        let this = self.under_way(py)?;
        let call = tracked(&this.request)?;
        let mut encoded = this.of.encode_reply(this.served(), this.request.connection(), item)?;
        let sent = encoded.send(py, |body| call.try_send_item(&this.request.item(body), this.request.deadline));
        Ok(match sent.map_err(|error| too_long(py, &this.served().name, &error))? {
            ItemOutcome::Sent => {
                encoded.sent();
                Some(true)
            }
            ItemOutcome::Cancelled => Some(false),
            ItemOutcome::Late => {
                this.fail_late(py);
                Some(false)
            }
            ItemOutcome::NoCredit => None,
        })
    }

    /// Ends the call with a result. Returns `False` if the client must read earlier messages first: then `changed`
    /// tells when to try again.
    fn reply(&self, py: Python<'_>, result: Bound<'_, PyAny>) -> PyResult<bool> {
        self.under_way(py)?.reply(py, result)
    }

    /// Ends the call well after its items.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        let call = self.under_way(py)?;
        let code = end_stream(call.served(), &call.request, call.is_observed());
        call.tell_end(py, Some(code));
        Ok(())
    }

    /// For a handler that has returned a subscription: a topic takes over the call, and `forget` does nothing.
    fn subscribe(&self, py: Python<'_>, subscription: &Bound<'_, Subscription>) -> PyResult<()> {
        let call = self.under_way(py)?;
        let method = &call.found().0.method;
        Subscription::check(method.get())?;
        // Relaxed: the loop's thread alone reads it.
        call.kept.store(true, Ordering::Relaxed);
        subscription.get().take(py, method, Box::new(Arc::clone(&call)));
        call.tell_end(py, Some(OK));
        Ok(())
    }

    /// Ends the call with an exception.
    fn fail(&self, py: Python<'_>, exception: Bound<'_, PyAny>) -> PyResult<()> {
        self.under_way(py)?.fail_with(py, &PyErr::from_value(exception));
        Ok(())
    }

    /// Nothing more is received for the call, and the call counts no more. A call that was not ended by then ends
    /// without a message.
    fn forget(&self, py: Python<'_>) -> PyResult<()> {
        self.under_way(py)?.forget(py);
        Ok(())
    }

    /// The handler has returned: as `forget`, and this keeps nothing of the call but its description.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.under_way(py)?.forget(py);
        self.let_go();
        Ok(())
    }
}
