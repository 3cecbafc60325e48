//! Where calls go, as Python holds it: to what a server serves, under one policy, or to one object. It makes the callables of
//! methods.

use nearcall_core::client::Replay;
use pyo3::prelude::*;

use crate::calls::aio::AsyncUnary;
use crate::calls::bound::BoundMethod;
use crate::calls::calling::Calling;
use crate::calls::deadline::Surroundings;
use crate::calls::driving::Call;
use crate::calls::oneway::Oneway;
use crate::calls::stream::Stream;
use crate::calls::unary::Unary;
use crate::gil::greenlets::runner;
use crate::values::plan::Method;

/// What can be called. A connection is one, too.
#[pyclass(frozen, subclass, module = "nearcall._core")]
pub(crate) struct Calls {
    pub(crate) calling: Calling,
}

#[pymethods]
impl Calls {
    /// A callable for a method without streams.
    fn unary(&self, py: Python<'_>, method: Py<Method>) -> PyResult<Py<Unary>> {
        BoundMethod::make(py, self.calling.clone(), method, false)
    }

    /// A callable for a method that sends no reply. With `for_loop` it never waits for a connection.
    #[pyo3(signature = (method, *, for_loop))]
    fn oneway(&self, py: Python<'_>, method: Py<Method>, for_loop: bool) -> PyResult<Py<Oneway>> {
        BoundMethod::make(py, self.calling.clone(), method, for_loop)
    }

    /// A callable for a method without streams that returns an awaitable.
    fn async_unary(&self, py: Python<'_>, method: Py<Method>) -> PyResult<Py<AsyncUnary>> {
        BoundMethod::make(py, self.calling.clone(), method, true)
    }

    /// Begins a call with streams. `arguments` is what the plan's `split` returned.
    #[pyo3(signature = (method, arguments, *, for_loop))]
    fn open(
        &self,
        py: Python<'_>,
        method: &Bound<'_, Method>,
        arguments: &Bound<'_, PyAny>,
        for_loop: bool,
    ) -> PyResult<Stream> {
        let calling = &self.calling;
        let limit = calling.limits.of_stream();
        let mut call = Call::new(if for_loop {
            Surroundings::look(py, limit)?
        } else {
            Surroundings::look_and_wait(py, limit, || format!("{} at {}", method.get().name, calling.place()))?
        });
        let beside = !for_loop && runner(py)?.is_some();
        let mut core = calling.connection(py, &mut call, for_loop)?;
        loop {
            let method = method.get().successor(py).unwrap_or_else(|| method.clone().unbind());
            let encode = || method.get().encode_bound(arguments);
            let sent = calling.send(py, &core, method.get(), &mut call, for_loop, encode, |request, expected| {
                let is_plain = request.flags == 0 && !method.get().arguments.references();
                // Whether the server says so if it has not begun the call, which may then go over another connection.
                let may_be_refused = calling.may_move() && core.tells_unbegun();
                let kept = if is_plain && may_be_refused { Replay::new(request.body) } else { None };
                // Where other greenlets run, nothing waits for room.
                let begun = if beside { core.begin_ahead(request, expected) } else { core.begin(request, expected) };
                begun.map(|id| (id, kept))
            });
            core = match sent? {
                Ok((id, kept)) => {
                    calling.waiting.stirred(py)?;
                    return Ok(Stream::new(core, calling.clone(), method, id, call, kept));
                }
                // An event loop connects by itself, and then begins the call again.
                Err(again) if for_loop => return Err(method.get().raise_again(py, &again)),
                Err(again) => calling.renewed(py, method.get(), &mut call, &again)?,
            };
        }
    }

    /// Whether no call can be made any more: the connection was closed, or that of the object is gone.
    #[getter]
    fn closed(&self) -> bool {
        self.calling.is_closed()
    }

    /// Whether there is a connection now. The next call renews a lost one. `true` for an object: a call of it fails by itself, and
    /// no new connection would have the object.
    #[getter]
    fn connected(&self, py: Python<'_>) -> bool {
        self.calling.is_connected(py)
    }

    /// Seconds that a call waits for a server that is not there, its deadline aside.
    #[getter]
    fn patience(&self) -> f64 {
        self.calling.patience(false)
    }

    /// Seconds that a call made now may take; `None` if there is no limit.
    fn time_left(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        Ok(Surroundings::look(py, self.calling.limits.of_call())?.left().map(|left| left.as_secs_f64()))
    }

    /// Raises unless the running event loop is the one that the connection was given to.
    fn check_loop(&self, py: Python<'_>) -> PyResult<()> {
        self.calling.waiting.check_loop(py)
    }

    /// To be called by the event loop when it has sent a one-way call.
    fn sent(&self, py: Python<'_>) -> PyResult<()> {
        self.calling.waiting.stirred(py)
    }
}
