//! Requests for handlers that are coroutines. The event loop takes them; nothing here waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use nearcall_core::lock::Mutex;
use nearcall_core::server::{ForLoop, ItemOutcome, NextItem, Request, Server as Core, ValuesCharge};
use nearcall_core::{Failure, Incoming, given_in};
use pyo3::exceptions::{PyOSError, PyStopAsyncIteration};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::calling::Calling;
use crate::context::{Call, OK, tell_all};
use crate::interpreter::detach;
use crate::objects::{Served, ServedObject};
use crate::plan::Method;
use crate::served::{
    arguments, decode_item, describe_for, encode_reply, end_stream, late, reply, served, too_long, tracked,
};
use crate::topic::{Owner, Subscription};

/// What is served, as an event loop sees it.
pub(crate) struct InLoop {
    pub(crate) core: Arc<Core>,
    pub(crate) methods: Arc<Vec<Served>>,
    /// How objects of clients are called.
    pub(crate) calling: Calling,
}

impl InLoop {
    /// The next request for the event loop. If there is none, `Err` says whether the loop is to watch the connections.
    /// `may_spin`: the loop has nothing else under way.
    pub(crate) fn next(&self, py: Python<'_>, may_spin: bool) -> Result<Box<Request>, bool> {
        let mut next = self.core.next_for_loop(may_spin);
        loop {
            next = match next {
                ForLoop::Request(request) => return Ok(request),
                ForLoop::Listen => return Err(true),
                ForLoop::Elsewhere => return Err(false),
                ForLoop::Spin => detach(py, || self.core.spin_for_loop()),
            }
        }
    }
}

/// One request for a coroutine handler.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct LoopRequest {
    of: Arc<InLoop>,
    pub(crate) request: Box<Request>,
    /// The arguments, until they are asked for.
    event: Mutex<Option<Incoming>>,
    /// Python callables that are told how the call ends.
    observers: Mutex<Vec<Py<PyAny>>>,
    /// A topic has taken over the call.
    kept: AtomicBool,
    /// What the last item of the client's stream takes.
    item_values: ValuesCharge,
}

impl LoopRequest {
    pub(crate) fn new(of: Arc<InLoop>, mut request: Box<Request>) -> Self {
        let event = Mutex::new(Some(request.take_event()));
        let (observers, kept, item_values) = (Mutex::default(), AtomicBool::new(false), ValuesCharge::default());
        Self { of, request, event, observers, kept, item_values }
    }

    pub(crate) fn served(&self) -> &Method {
        served(&self.of.methods, &self.request).0.method.get()
    }

    /// Calls the handler of a method without streams. Returns what is to be awaited.
    pub(crate) fn call_handler<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let arguments = self.arguments(py)?;
        let (served, given) = served(&self.of.methods, &self.request);
        served.call(py, given, arguments)
    }

    /// Ends the call with the failure that an exception stands for.
    #[cold]
    pub(crate) fn fail_with(&self, py: Python<'_>, error: &PyErr) {
        let failure = describe_for(py, self.served(), self.call(), error);
        self.request.fail(&failure);
        self.tell_end(py, Some(failure.code));
    }

    fn is_observed(&self) -> bool {
        !self.observers.lock().is_empty()
    }

    /// Tells the observers that the call has ended with `code`. Returns whether it has ended.
    fn tell_end(&self, py: Python<'_>, code: Option<u8>) -> bool {
        if let Some(code) = code
            && self.is_observed()
        {
            let observers = std::mem::take(&mut *self.observers.lock());
            tell_all(py, observers, code);
        }
        code.is_some()
    }
}

impl Drop for LoopRequest {
    fn drop(&mut self) {
        let unread = self.event.get_mut().take();
        if let Some(unread) = unread.filter(|_| self.served().arguments.references) {
            self.request.connection().release_given(&given_in(&unread.head, &unread.payload));
        }
    }
}

impl Owner for Py<LoopRequest> {
    fn request(&self) -> &Request {
        &self.get().request
    }
}

#[pymethods]
impl LoopRequest {
    /// The method's number.
    #[getter]
    fn index(&self) -> usize {
        usize::from(self.request.head.method)
    }

    /// The called object, and the object that runs its calls; `None` if a service is called.
    #[getter]
    fn target(&self, py: Python<'_>) -> Option<(Py<PyAny>, Py<ServedObject>)> {
        let (_, given) = served(&self.of.methods, &self.request);
        given.map(|given| (given.object.clone_ref(py), given.served.clone_ref(py)))
    }

    /// The key that `Server.changed` uses for this request.
    #[getter]
    fn key(&self) -> usize {
        self.request.call.as_ref().map_or(0, |call| Arc::as_ptr(call).addr())
    }

    /// Whether the client waits for no reply.
    #[getter]
    fn oneway(&self) -> bool {
        self.request.is_oneway()
    }

    /// Whether the client gave the call up, or is gone.
    #[getter]
    pub(crate) fn cancelled(&self) -> bool {
        self.request.call.as_ref().is_some_and(|call| call.is_cancelled())
    }

    /// The call, for `nearcall.context()`.
    fn call(&self) -> Call {
        Call::new(&self.request, self.served())
    }

    /// Seconds until the caller stops waiting; `None` if it waits for ever.
    #[getter]
    fn time_left(&self) -> Option<f64> {
        self.request.deadline.map(|until| until.saturating_duration_since(Instant::now()).as_secs_f64())
    }

    /// Ends the call because its deadline has passed.
    fn fail_late(&self, py: Python<'_>) {
        self.request.fail(&late(&self.served().name));
        self.tell_end(py, Some(Failure::DEADLINE_EXCEEDED));
    }

    /// Calls `observer` with the status code of this call, once that has ended.
    fn on_end(&self, observer: Py<PyAny>) {
        self.observers.lock().push(observer);
    }

    /// The arguments, every parameter in order but the stream. To be asked once.
    fn arguments<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        // The lock is free again before Python runs, which may let others have the interpreter.
        let event = self.event.lock().take();
        let event = event.ok_or_else(|| PyOSError::new_err("the arguments were asked for before"))?;
        arguments(py, &self.of.core, &self.of.calling, self.served(), &self.request, event)
    }

    /// The next item of the client's stream, or `default` if it has not arrived yet; raises `StopAsyncIteration` at the
    /// end.
    fn try_next(&self, py: Python<'_>, default: Py<PyAny>) -> PyResult<Py<PyAny>> {
        let call = tracked(&self.request)?;
        match call.try_next_item() {
            NextItem::Pending => Ok(default),
            next => {
                let connection = self.request.connection();
                decode_item(py, &self.of.core, &self.of.calling, self.served(), connection, &self.item_values, next)?
                    .ok_or_else(|| PyStopAsyncIteration::new_err(()))
            }
        }
    }

    /// Sends an item of the server's stream. Returns `True` if it was sent, `False` if the client gave the call up, and
    /// `None` if the client must take earlier items first: then `changed` tells when to try again.
    fn try_send(&self, py: Python<'_>, item: Bound<'_, PyAny>) -> PyResult<Option<bool>> {
        let call = tracked(&self.request)?;
        let mut encoded =
            encode_reply(&self.of.core, &self.of.calling, self.served(), self.request.connection(), item)?;
        let sent = encoded.send(py, |body| call.try_send_item(&self.request.item(body)));
        Ok(match sent.map_err(|error| too_long(py, &self.served().name, &error))? {
            ItemOutcome::Sent => {
                encoded.sent();
                Some(true)
            }
            ItemOutcome::Cancelled | ItemOutcome::Late => Some(false),
            ItemOutcome::NoCredit => None,
        })
    }

    /// Ends the call with a result. Returns `False` if the client must read earlier messages first: then `changed`
    /// tells when to try again.
    pub(crate) fn reply(&self, py: Python<'_>, result: Bound<'_, PyAny>) -> PyResult<bool> {
        let observed = self.is_observed();
        let code = reply(py, &self.of.core, &self.of.calling, self.served(), &self.request, result, observed)?;
        Ok(self.tell_end(py, code))
    }

    /// Ends the call well after its items.
    fn end(&self, py: Python<'_>) {
        let observed = self.is_observed();
        let code = end_stream(&self.request, observed);
        self.tell_end(py, Some(code));
    }

    /// For a handler that has returned a subscription: a topic takes over the call, and `forget` does nothing.
    fn subscribe(slf: &Bound<'_, Self>, subscription: &Bound<'_, Subscription>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let method = &served(&this.of.methods, &this.request).0.method;
        Subscription::check(method.get())?;
        // Relaxed: the loop's thread alone reads it.
        this.kept.store(true, Ordering::Relaxed);
        subscription.get().take(py, method, Box::new(slf.clone().unbind()));
        this.tell_end(py, Some(OK));
        Ok(())
    }

    /// Ends the call with an exception.
    fn fail(&self, py: Python<'_>, exception: Bound<'_, PyAny>) {
        self.fail_with(py, &PyErr::from_value(exception));
    }

    /// The handler has returned: nothing more is received for the call, and the call counts no more. A call that was
    /// not ended by then ends without a message.
    pub(crate) fn forget(&self, py: Python<'_>) {
        // Relaxed: see `subscribe`.
        if self.kept.load(Ordering::Relaxed) {
            return;
        }
        self.request.forget();
        self.request.finish();
        self.tell_end(py, Some(Failure::CANCELLED));
    }
}
