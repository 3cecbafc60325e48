//! The threads in which event loops of servers run coroutine handlers. What waits there keeps all of these handlers waiting,
//! perhaps for one of themselves: so no call waits there (docs/adr/0113).

use std::cell::RefCell;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::asyncio::waiting::running_loop;
use crate::gil::noted::{HANDLER_LOOPS, note, noted};

thread_local! {
    /// The addresses of the loops that run handlers in this thread, one for each server.
    static HERE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The loop that belongs to the calling thread runs coroutine handlers from now on.
#[pyfunction]
pub(crate) fn enter_handler_loop(running: &Bound<'_, PyAny>) {
    HERE.with_borrow_mut(|here| here.push(running.as_ptr().addr()));
    note(HANDLER_LOOPS);
}

/// It runs them no longer, for one server.
#[pyfunction]
pub(crate) fn leave_handler_loop(running: &Bound<'_, PyAny>) {
    HERE.with_borrow_mut(|here| {
        if let Some(place) = here.iter().position(|at| *at == running.as_ptr().addr()) {
            here.swap_remove(place);
        }
    });
}

/// Whether the calling thread runs the loop of coroutine handlers now.
#[inline]
pub(crate) fn is_here(py: Python<'_>) -> bool {
    noted() & HANDLER_LOOPS != 0 && looks_here(py)
}

#[cold]
fn looks_here(py: Python<'_>) -> bool {
    let marked = HERE.with_borrow(|here| !here.is_empty());
    marked && running_loop(py).is_some_and(|running| HERE.with_borrow(|here| here.contains(&running.as_ptr().addr())))
}

/// Refuses to wait in such a thread. `what` names what would wait.
#[inline]
pub(crate) fn check(py: Python<'_>, what: impl FnOnce() -> String) -> PyResult<()> {
    if is_here(py) { Err(refusal(&what())) } else { Ok(()) }
}

/// The same for Python.
#[pyfunction]
pub(crate) fn refuse_in_handler_loop(py: Python<'_>, what: String) -> PyResult<()> {
    check(py, || what)
}

/// The error for what would wait.
#[cold]
pub(crate) fn refusal(what: &str) -> PyErr {
    PyRuntimeError::new_err(format!(
        "{what} would hold up the event loop in which this server runs its coroutine handlers, all of them, while it \
         waits, and for ever if it waits for one of them: await a client of nearcall.aio, or run this in a thread, as \
         'await asyncio.to_thread(...)' does"
    ))
}
