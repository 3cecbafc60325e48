//! `nearcall.context()`: what a handler can ask about the call it serves.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_core::lock::Mutex;
use nearcall_core::server::{CallContext, EarlyEnds as CoreEarlyEnds, Request, UnderWay};
use nearcall_core::{BufferPool, Compress, Failure, seconds_left};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::gil::callback::Callback;
use crate::gil::errors::raise;
use crate::gil::interpreter::detach;
use crate::gil::metadata::{metadata_from, metadata_to};
use crate::options::peer::peer;
use crate::serving::introspection::{IntrospectionMethod, Page};
use crate::serving::session::{of_client, session_over};
use crate::values::plan::Method;

/// The status code of a call that ended well.
pub(crate) const OK: u8 = 0;

thread_local! {
    /// The request whose handler this thread runs. The pointers are valid while it is set, see [`Current::enter`].
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
    /// Python callables that are told how the call of that request ends.
    static OBSERVERS: RefCell<Vec<Py<PyAny>>> = const { RefCell::new(Vec::new()) };
}

/// The request a thread serves.
#[derive(Clone, Copy)]
pub(crate) struct Current {
    request: *const Request,
    method: *const Method,
}

/// Restores what was current before. It borrows what is current until then.
pub(crate) struct Restore<'a> {
    before: Option<Current>,
    of: PhantomData<(&'a Request, &'a Method)>,
}

impl Current {
    /// Makes a request the current one until the returned guard is dropped.
    #[inline]
    pub(crate) fn enter<'a>(request: &'a Request, method: &'a Method) -> Restore<'a> {
        Restore { before: CURRENT.replace(Some(Self { request, method })), of: PhantomData }
    }
}

impl Drop for Restore<'_> {
    fn drop(&mut self) {
        CURRENT.set(self.before.take());
    }
}

/// The call that the calling thread serves, or `None`.
#[pyfunction]
pub(crate) fn current_call() -> Option<Call> {
    let current = CURRENT.with_borrow(|current| *current)?;
    // SAFETY: set by `Current::enter` on this very thread. Its guard, a local there, borrows both, and unsets them or
    // puts back those of the guard around it.
    let request = unsafe { &*current.request };
    // SAFETY: as above.
    let method = unsafe { &*current.method };
    Some(Call::new(request, method))
}

/// Calls `observer` with the status code of the call that this thread serves, once that has ended.
#[pyfunction]
pub(crate) fn on_end(observer: Py<PyAny>) -> PyResult<()> {
    if CURRENT.with_borrow(Option::is_none) {
        return Err(PyRuntimeError::new_err("no call is being served here"));
    }
    OBSERVERS.with_borrow_mut(|observers| observers.push(observer));
    Ok(())
}

/// The status code for a call whose handler has succeeded in time: its caller may have given it up. Only worked out if
/// the end is `observed`.
pub(crate) fn standing(request: &Request, observed: bool) -> u8 {
    if observed && request.context().is_cancelled() { Failure::CANCELLED } else { OK }
}

/// Whether observers wait for the end of the call that this thread serves.
pub(crate) fn is_observed() -> bool {
    OBSERVERS.with_borrow(|observers| !observers.is_empty())
}

/// Tells the observers that the call of this thread has ended.
#[inline]
pub(crate) fn tell_end(py: Python<'_>, code: u8) {
    if is_observed() {
        tell_all(py, OBSERVERS.take(), code);
    }
}

/// Tells observers how a call has ended. That end is already sent, so an exception of an observer goes to the
/// interpreter's own hook.
#[cold]
pub(crate) fn tell_all(py: Python<'_>, observers: Vec<Py<PyAny>>, code: u8) {
    for observer in observers {
        let observer = observer.bind(py);
        if let Err(error) = observer.run_with((code,)) {
            error.write_unraisable(py, Some(observer));
        }
    }
}

/// One call, as its handler sees it.
#[pyclass(frozen, module = "nearcall._core")]
#[derive(Clone)]
pub(crate) struct Call {
    context: Arc<CallContext>,
    /// `"Service.method"`.
    #[pyo3(get)]
    pub(crate) method: String,
}

impl Call {
    pub(crate) fn new(request: &Request, method: &Method) -> Self {
        Self { context: request.context(), method: method.name.clone() }
    }

    /// The memory pool for buffers that will be sent to the caller.
    pub(crate) fn pool(&self) -> Arc<BufferPool> {
        self.context.pool()
    }
}

#[pymethods]
impl Call {
    #[getter]
    fn peer<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        peer(py, self.context.peer())
    }

    /// The object that is kept with the caller's connection. The first time, `make` makes it from the caller's
    /// identity.
    fn belongings(&self, py: Python<'_>, make: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let connection = self.context.connection().ok_or_else(session_over)?;
        of_client(py, connection.session(), make)
    }

    /// Seconds until the caller stops waiting; `None` if it waits for ever.
    #[getter]
    pub(crate) fn time_left(&self) -> Option<f64> {
        self.context.deadline.map(seconds_left)
    }

    /// Whether sent messages are compressed; `None` if the server's options decide.
    #[getter]
    fn compress(&self) -> Option<bool> {
        match self.context.compress() {
            Compress::AsUsual => None,
            Compress::Yes => Some(true),
            Compress::No | Compress::NotThis => Some(false),
        }
    }

    #[setter]
    fn set_compress(&self, compress: Option<bool>) {
        self.context.set_compress(compress);
    }

    /// Whether the message that was taken last came compressed.
    #[getter]
    fn received_compressed(&self) -> bool {
        self.context.was_compressed()
    }

    /// Whether the caller gave the call up, or is gone.
    #[getter]
    pub(crate) fn cancelled(&self) -> bool {
        self.context.is_cancelled()
    }

    /// What the caller sent beside the arguments: pairs of key and value.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> Vec<(String, Bound<'py, PyBytes>)> {
        metadata_to(py, &self.context.metadata)
    }

    /// The encoded answer of a method of `nearcall.Introspection` to the caller.
    #[pyo3(signature = (method, after=0, limit=100))]
    fn introspect<'py>(
        &self,
        py: Python<'py>,
        method: &Bound<'py, IntrospectionMethod>,
        after: u64,
        limit: i64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let method = *method.get();
        let answer = detach(py, || method.answer(&self.context, &Page { after, limit }));
        Ok(PyBytes::new(py, &answer.map_err(|failure| raise(py, &failure))?))
    }

    /// Sends metadata ahead of the result or the first item.
    fn send_initial(&self, py: Python<'_>, pairs: &Bound<'_, PyAny>) -> PyResult<()> {
        let metadata = metadata_from(pairs)?;
        // A client that is gone needs no metadata.
        let _ = detach(py, || self.context.send_head(metadata));
        Ok(())
    }

    /// Adds to the metadata that goes back with the end of the call.
    fn add_trailing(&self, pairs: &Bound<'_, PyAny>) -> PyResult<()> {
        let more = metadata_from(pairs)?;
        let mut trailing = self.context.trailing.lock();
        for (key, value) in more.pairs() {
            trailing.push(key, value);
        }
        Ok(())
    }
}

/// A callback for a call that has ended early, and what keeps the call under way until the callback has run.
struct Errand {
    callback: Py<PyAny>,
    under_way: Arc<UnderWay>,
}

/// Keeps a call under way although its handler may have returned, until `done` is called.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct LeftToDo(Mutex<Option<Arc<UnderWay>>>);

#[pymethods]
impl LeftToDo {
    /// The callback has run. Harmless when repeated.
    fn done(&self) {
        let under_way = self.0.lock().take();
        // Dropped outside the lock: the client's session may end with it.
        drop(under_way);
    }
}

/// Watches for calls whose caller stops waiting while the handler still runs.
#[pyclass(frozen, module = "nearcall._core")]
#[derive(Default)]
pub(crate) struct EarlyEnds(Arc<CoreEarlyEnds>);

#[pymethods]
impl EarlyEnds {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Watches a call until its handler has returned. `next` returns `callback` if the call ends before that. Returns
    /// `False` if the handler has returned already.
    fn watch(&self, call: &Bound<'_, Call>, callback: Py<PyAny>) -> bool {
        call.get().context.when_early(&self.0, |under_way| Box::new(Errand { callback, under_way }))
    }

    /// Waits for the next watched call that ends early. Returns its callback, and what keeps the call under way until
    /// the callback has run. Returns `None` if no call was watched for `seconds`.
    fn next(&self, py: Python<'_>, seconds: f64) -> Option<(Py<PyAny>, LeftToDo)> {
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        let errand = detach(py, || self.0.next(until))?.downcast::<Errand>().ok()?;
        Some((errand.callback, LeftToDo(Mutex::new(Some(errand.under_way)))))
    }

    /// Whether no call is watched, and no errand is left.
    #[getter]
    fn idle(&self) -> bool {
        self.0.is_idle()
    }
}
