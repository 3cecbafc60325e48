//! Releases the interpreter, and takes it again. No other module does.
//!
//! Other threads may hold the interpreter for long. A thread that waits for it and holds a lock keeps all threads
//! waiting that want the lock, also those that move bytes for everybody. So no lock of nearcall may be held here: debug
//! builds check that (`make locks`), and `make lint` refuses `PyO3`'s own functions elsewhere
//! (`tools/check_floors.py`).

use std::time::{Duration, Instant};

use nearcall_core::lock::held_here;
use pyo3::prelude::*;

/// How long a thread sleeps before it looks whether a signal has arrived.
pub(crate) const SIGNAL_CHECK: Duration = Duration::from_millis(50);

/// To be called where the interpreter may go to another thread. Panics in debug builds if this thread holds a lock.
#[inline]
#[track_caller]
pub(crate) fn may_switch() {
    debug_assert!(held_here() == 0, "{} locks are held where the interpreter may be waited for", held_here());
}

/// Waits for the interpreter, and runs a closure while this thread holds it.
#[track_caller]
pub(crate) fn attach<R>(run: impl for<'py> FnOnce(Python<'py>) -> R) -> R {
    may_switch();
    Python::attach(run)
}

/// Releases the interpreter, runs a closure, and waits for the interpreter afterwards.
#[inline]
#[track_caller]
pub(crate) fn detach<R: Send>(py: Python<'_>, run: impl FnOnce() -> R + Send) -> R {
    may_switch();
    py.detach(|| {
        let result = run();
        may_switch();
        result
    })
}

/// How long a loop that runs no line of Python keeps the interpreter. Between two lines of Python other threads may
/// take the interpreter; in such a loop they cannot.
const TURN: Duration = Duration::from_millis(1);

/// Gives other Python threads their turns in a long loop.
pub(crate) struct Turns {
    since: Instant,
}

impl Turns {
    pub(crate) fn new() -> Self {
        Self { since: Instant::now() }
    }

    /// Lets other threads have the interpreter if this thread has had it for a while. To be called in each round.
    #[inline]
    #[track_caller]
    pub(crate) fn give(&mut self, py: Python<'_>) {
        if self.since.elapsed() >= TURN {
            detach(py, || ());
            self.since = Instant::now();
        }
    }
}

/// Releases the interpreter, if this thread holds it, while the thread waits in the core.
pub(crate) fn detached(wait: &mut (dyn FnMut() + Send)) {
    // SAFETY: asks only about this thread's state.
    let attached = unsafe { pyo3::ffi::PyGILState_Check() } == 1;
    if attached {
        Python::attach(|py| detach(py, wait));
    } else {
        wait();
    }
}
