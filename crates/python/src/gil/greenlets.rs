//! Waiting in a program of gevent. All greenlets of a thread share its stack and its interpreter state: what waits there keeps
//! all of them waiting. So such a wait runs in another thread, and gevent's hub runs other greenlets here until it is over.
//!
//! A greenlet's stack is moved aside while others run. So what waits elsewhere owns all that it uses, and takes nothing that
//! anybody would miss if the greenlet gives up meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use nearcall_core::lock::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::gil::callback::Callback;
use crate::gil::interpreter::{SIGNAL_CHECK, detach, waiting};
use crate::gil::noted::{GREENLETS, note, noted};

/// Python's function that finds what runs a wait in another thread.
static FIND: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

type Wait = Box<dyn FnOnce(&mut dyn FnMut() -> bool) + Send>;

/// A wait, for a thread of the hub's pool.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct Elsewhere {
    wait: Mutex<Option<Wait>>,
    /// The greenlet waits no longer.
    left: Arc<AtomicBool>,
}

#[pymethods]
impl Elsewhere {
    fn __call__(&self, py: Python<'_>) {
        let wait = self.wait.lock().take();
        if let Some(wait) = wait {
            // Relaxed: it says nothing of other memory.
            detach(py, || wait(&mut || !self.left.load(Ordering::Relaxed)));
        }
    }
}

/// From now on, waits leave this process's greenlets running. `find` returns a function that calls its argument in another
/// thread while the calling thread's other greenlets run; `None` where there can be none.
#[pyfunction]
pub(crate) fn use_greenlets(py: Python<'_>, find: Py<PyAny>) {
    // The first one stays; there is only one such function.
    let _ = FIND.set(py, find);
    note(GREENLETS);
}

/// What runs a wait of the calling greenlet in another thread; `None` where no other greenlet could run meanwhile.
#[inline]
pub(crate) fn runner(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    if noted() & GREENLETS == 0 { Ok(None) } else { find(py) }
}

#[cold]
fn find(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    let Some(find) = FIND.get(py) else { return Ok(None) };
    let found = find.bind(py).run([])?;
    Ok((!found.is_none()).then_some(found))
}

/// Waits in another thread, while other greenlets run in this one. The wait asks now and then whether to go on.
///
/// # Errors
/// What is raised in the greenlet meanwhile, such as `gevent.Timeout`. The wait ends soon after.
#[cold]
pub(crate) fn wait_elsewhere<R: Send + 'static>(
    runner: &Bound<'_, PyAny>,
    wait: impl FnOnce(&mut dyn FnMut() -> bool) -> R + Send + 'static,
) -> PyResult<R> {
    let py = runner.py();
    let (result, left) = (Arc::new(Mutex::new(None)), Arc::new(AtomicBool::new(false)));
    let place = Arc::clone(&result);
    let wait: Wait = Box::new(move |go_on| {
        let value = wait(go_on);
        *place.lock() = Some(value);
    });
    let work = Bound::new(py, Elsewhere { wait: Mutex::new(Some(wait)), left: Arc::clone(&left) })?;
    if let Err(raised) = runner.run([work.as_any()]) {
        // Relaxed: see `Elsewhere`.
        left.store(true, Ordering::Relaxed);
        return Err(raised);
    }
    let value = result.lock().take();
    value.ok_or_else(|| PyRuntimeError::new_err("gevent did not run what nearcall waits for"))
}

/// Like [`waiting`], and leaves other greenlets running if there may be any.
#[inline]
#[track_caller]
pub(crate) fn waiting_beside<R: Send + 'static>(
    py: Python<'_>,
    wait: impl FnOnce(&mut dyn FnMut() -> bool) -> R + Send + 'static,
) -> PyResult<R> {
    match runner(py)? {
        Some(runner) => wait_elsewhere(&runner, wait),
        None => waiting(py, wait),
    }
}

/// Sleeps until that time, and handles signals meanwhile.
#[cold]
pub(crate) fn sleep_until(py: Python<'_>, end: Instant) -> PyResult<()> {
    waiting_beside(py, move |go_on| {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(SIGNAL_CHECK));
            if left <= SIGNAL_CHECK || !go_on() {
                return;
            }
        }
    })
}
