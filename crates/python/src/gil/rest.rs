//! Threads that rest, and the thread that keeps the interpreter meanwhile.

use nearcall_core::rest::{Rest, Resting};
use pyo3::prelude::*;

use crate::gil::callback::Callback;
use crate::gil::interpreter::{detach, is_only_interpreter, newest_thread, threads};

/// After keeping the interpreter so often in a row, a thread releases it in any case. A resting thread that was woken by
/// others than nearcall, by a signal say, wants it before it ends to rest.
const MOST_KEPT: u32 = 256;

/// Releases the interpreter while the calling thread rests: it waits until another thread has something for it. What `wait`
/// needs the interpreter for, it does in [`Rest::interrupted`].
#[track_caller]
pub(crate) fn rest<R: Send>(py: Python<'_>, wait: impl FnOnce(&Rest) -> R + Send) -> R {
    // Its end comes before the wait for the interpreter.
    detach(py, || wait(&Rest::begin()))
}

/// Calls `wait(timeout)`, in which the calling thread rests.
#[pyfunction]
#[pyo3(name = "rest")]
pub(crate) fn rest_in<'py>(wait: &Bound<'py, PyAny>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
    let _rest = Rest::begin();
    wait.run_with((timeout,))
}

/// What a thread knows of the other threads of its interpreter.
#[derive(Debug, Default)]
pub(crate) struct Others {
    /// When they were counted: how many rested, and which was the newest. The newest is the first of the interpreter's list,
    /// and the numbers of threads are never used again.
    seen: Option<(Resting, i64)>,
    /// Whether all of them rested then.
    rest: bool,
    /// How often this was asked since the interpreter had to be released in any case.
    kept: u32,
}

impl Others {
    /// Whether the calling thread may keep the interpreter for some microseconds: all others rest, the process has no other
    /// interpreter, and it was not kept too often in a row.
    #[inline]
    pub(crate) fn let_keep(&mut self, py: Python<'_>) -> bool {
        self.kept += 1;
        if self.kept > MOST_KEPT || !is_only_interpreter(py) {
            self.kept = 0;
            return false;
        }
        let now = Some((Resting::now(), newest_thread(py)));
        if self.seen != now {
            self.seen = now;
            self.rest = now.is_some_and(|(resting, _)| threads(py, resting.threads() + 2) == resting.threads() + 1);
        }
        self.rest
    }
}
