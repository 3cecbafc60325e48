//! The futures of an event loop that wait for something to come on a connection.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use nearcall_core::client::{CallId, Connection as Core};
use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use smallvec::SmallVec;

/// `asyncio.get_running_loop`.
static RUNNING_LOOP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The futures of an event loop that wait for something to come for a call.
///
/// A task that suspends does not put the connection to sleep: others may be about to send. When the loop has run all
/// that was ready, it comes by [`Waiting::on_idle`], which receives, spins while that pays, and only then sleeps.
pub(crate) struct Waiting {
    /// Two may wait for one call: the reader of its replies, and the sender of its stream.
    futures: Mutex<HashMap<CallId, SmallVec<[Py<PyAny>; 1]>>>,
    /// `call_soon` of the loop and the callback for it, once a connection was given to a loop.
    schedule: PyOnceLock<Schedule>,
    scheduled: AtomicBool,
}

/// Callables of the event loop that owns a connection.
pub(crate) struct Schedule {
    running: Py<PyAny>,
    call_soon: Py<PyAny>,
    on_idle: Py<PyAny>,
    /// Takes a method's callable and its arguments; returns a coroutine that connects and calls it.
    pub(crate) call_again: Py<PyAny>,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { futures: Mutex::default(), schedule: PyOnceLock::new(), scheduled: AtomicBool::new(false) }
    }
}

impl Waiting {
    /// Names the loop, its `call_soon`, and what it is to call when it is idle.
    pub(crate) fn use_loop(
        &self,
        py: Python<'_>,
        running: Py<PyAny>,
        call_soon: Py<PyAny>,
        on_idle: Py<PyAny>,
        call_again: Py<PyAny>,
    ) {
        // A connection belongs to one loop for life.
        let _ = self.schedule.set(py, Schedule { running, call_soon, on_idle, call_again });
    }

    pub(crate) fn schedule(&self, py: Python<'_>) -> PyResult<&Schedule> {
        self.schedule.get(py).ok_or_else(|| PyRuntimeError::new_err("this connection was not opened by an event loop"))
    }

    /// The running loop, if it is the one that the connection belongs to.
    pub(crate) fn check_loop<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let get_loop = RUNNING_LOOP
            .get_or_try_init(py, || Ok::<_, PyErr>(py.import("asyncio")?.getattr("get_running_loop")?.unbind()))?;
        let Ok(running) = get_loop.bind(py).call0() else {
            return Err(PyRuntimeError::new_err(
                "a client of nearcall.aio is used from coroutines of asyncio, and no event loop of it runs in this thread",
            ));
        };
        if running.is(&self.schedule(py)?.running) {
            return Ok(running);
        }
        Err(PyRuntimeError::new_err(
            "this client belongs to another event loop, in which it was connected: make one for each loop with \
             nearcall.aio.connect, or share a client of nearcall.connect between threads",
        ))
    }

    /// Sets `future`'s result when something has come for the call.
    pub(crate) fn register(&self, py: Python<'_>, core: &Core, id: CallId, future: Py<PyAny>) -> PyResult<()> {
        if core.has_arrived(id) {
            return wake(future.bind(py));
        }
        self.sleep(py, id, future)
    }

    /// The same for a sender: it may send if there is room, not if items wait to be read.
    pub(crate) fn register_sender(&self, py: Python<'_>, core: &Core, id: CallId, future: Py<PyAny>) -> PyResult<()> {
        if core.has_room(id) {
            return wake(future.bind(py));
        }
        self.sleep(py, id, future)
    }

    fn sleep(&self, py: Python<'_>, id: CallId, future: Py<PyAny>) -> PyResult<()> {
        self.futures.lock().entry(id).or_default().push(future);
        self.call_when_idle(py)
    }

    /// To be called when the loop has sent something: if it had to wait for room, it has received meanwhile, and is no
    /// longer said to sleep, so that nobody would wake it.
    pub(crate) fn sent(&self, py: Python<'_>) -> PyResult<()> {
        if self.schedule.get(py).is_some() { self.call_when_idle(py) } else { Ok(()) }
    }

    fn call_when_idle(&self, py: Python<'_>) -> PyResult<()> {
        // Relaxed: only the loop's thread comes here.
        if self.scheduled.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let Schedule { call_soon, on_idle, .. } = self.schedule(py)?;
        call_soon.bind(py).call1((on_idle,))?;
        Ok(())
    }

    /// Forgets the future of a call that is given up.
    pub(crate) fn forget(&self, id: CallId) {
        let futures = self.futures.lock().remove(&id);
        drop(futures);
    }

    /// Wakes whoever waits for a call that is given up.
    pub(crate) fn give_up(&self, py: Python<'_>, id: CallId) -> PyResult<()> {
        let future = self.futures.lock().remove(&id);
        future.into_iter().flatten().try_for_each(|future| wake(future.bind(py)))
    }

    pub(crate) fn on_readable(&self, py: Python<'_>, core: &Core) -> PyResult<()> {
        core.link().disarm();
        if core.link().readable().is_err() {
            // What is in the ring comes first; the loss itself is found by receiving.
            self.deliver(py, core)?;
            core.notice_loss();
        }
        self.deliver(py, core)?;
        self.call_when_idle(py)
    }

    /// The loop has run all that was ready.
    pub(crate) fn on_idle(&self, py: Python<'_>, core: &Core) -> PyResult<()> {
        // Relaxed: as in `call_when_idle`.
        self.scheduled.store(false, Ordering::Relaxed);
        core.link().disarm();
        let mut delivered = self.deliver(py, core)?;
        if !delivered && !self.futures.lock().is_empty() && py.detach(|| core.spin()) {
            delivered = self.deliver(py, core)?;
        }
        while !delivered {
            if core.link().arm() {
                return Ok(());
            }
            // Something came just now; if it was not for us, the next look finds nothing.
            delivered = self.deliver(py, core)?;
        }
        // Who was woken may send again before we sleep.
        self.call_when_idle(py)
    }

    /// Receives what is here. Whether a future was woken.
    pub(crate) fn deliver(&self, py: Python<'_>, core: &Core) -> PyResult<bool> {
        let ready = core.pump();
        let mut any = false;
        for id in ready {
            let futures = self.futures.lock().remove(&id);
            for future in futures.into_iter().flatten() {
                wake(future.bind(py))?;
                any = true;
            }
        }
        Ok(any)
    }

    /// The connection has ended: everybody looks.
    pub(crate) fn wake_all(&self, py: Python<'_>, core: &Core) -> PyResult<()> {
        core.pump();
        let all = std::mem::take(&mut *self.futures.lock());
        all.into_values().flatten().try_for_each(|future| wake(future.bind(py)))
    }
}

pub(crate) fn wake(future: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = future.py();
    if !future.call_method0(intern!(py, "done"))?.is_truthy()? {
        future.call_method1(intern!(py, "set_result"), (py.None(),))?;
    }
    Ok(())
}
