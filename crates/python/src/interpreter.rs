//! Letting go of the interpreter, and taking it again: the only place that does.
//!
//! Other threads may have the interpreter for long. Whoever waits for it and holds a lock keeps all waiting that want the
//! lock, the threads among them that move bytes for everybody. So no lock of nearcall may be held here: debug builds make
//! sure (`make locks`), and `make lint` refuses `PyO3`'s own functions elsewhere (`tools/check_floors.py`).

use std::time::{Duration, Instant};

use nearcall_core::lock::held_here;
use pyo3::prelude::*;

/// How long a thread sleeps before it looks whether a signal wants its attention.
pub(crate) const SIGNAL_CHECK: Duration = Duration::from_millis(50);

/// The interpreter may go to another thread here. `what` is said if a lock is held.
#[inline]
#[track_caller]
pub(crate) fn may_switch() {
    debug_assert!(held_here() == 0, "{} locks are held where the interpreter may be waited for", held_here());
}

/// Waits for the interpreter, and runs a closure with it.
#[track_caller]
pub(crate) fn attach<R>(run: impl for<'py> FnOnce(Python<'py>) -> R) -> R {
    may_switch();
    Python::attach(run)
}

/// Runs a closure without the interpreter, and waits for it afterwards.
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

/// How long a loop that runs no line of Python keeps the interpreter: in such a loop it is never asked for it, as it is
/// between two lines.
const TURN: Duration = Duration::from_millis(1);

/// A loop in which other Python threads have their turns.
pub(crate) struct Turns {
    since: Instant,
}

impl Turns {
    pub(crate) fn new() -> Self {
        Self { since: Instant::now() }
    }

    /// Lets those run that wait for the interpreter, if this thread has had it for a while. To be called in each round.
    #[inline]
    #[track_caller]
    pub(crate) fn give(&mut self, py: Python<'_>) {
        if self.since.elapsed() >= TURN {
            detach(py, || ());
            self.since = Instant::now();
        }
    }
}

/// Lets other Python threads run while this one waits in the core.
pub(crate) fn detached(wait: &mut (dyn FnMut() + Send)) {
    // SAFETY: asks only about this thread's state.
    let attached = unsafe { pyo3::ffi::PyGILState_Check() } == 1;
    if attached {
        Python::attach(|py| detach(py, wait));
    } else {
        wait();
    }
}
