//! The deadline that `nearcall.timeout` sets for the calls inside it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// The context variable that holds the deadline, seconds on the clock of `time.monotonic`.
static VARIABLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
/// How many `nearcall.timeout` blocks are open in this process. While there is none, no call looks at the variable.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Names the context variable that holds the deadline.
#[pyfunction]
pub(crate) fn set_deadline_variable(py: Python<'_>, variable: Py<PyAny>) {
    let _ = VARIABLE.set(py, variable);
}

/// Counts a block with a deadline in (`True`) or out.
#[pyfunction]
pub(crate) fn count_deadlines(entered: bool) {
    // Relaxed: a thread always sees its own block; others do not depend on it.
    if entered {
        OPEN.fetch_add(1, Ordering::Relaxed);
    } else {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The time left for a call that begins now: the nearer of the surrounding block's and the client's own.
#[inline]
pub(crate) fn time_left(py: Python<'_>, default: Option<Duration>) -> PyResult<Option<Duration>> {
    // Relaxed: see above.
    if OPEN.load(Ordering::Relaxed) == 0 {
        return Ok(default);
    }
    let Some(variable) = VARIABLE.get(py) else { return Ok(default) };
    let Some(at) = variable.bind(py).call_method0("get")?.extract::<Option<f64>>()? else { return Ok(default) };
    let now = nearcall_core::monotonic_seconds();
    let left = Duration::try_from_secs_f64((at - now).max(0.0)).unwrap_or(Duration::MAX);
    Ok(Some(default.map_or(left, |default| default.min(left))))
}

/// When that time is over.
pub(crate) fn deadline(left: Option<Duration>) -> Option<Instant> {
    left.and_then(|left| Instant::now().checked_add(left))
}

/// As it travels in a frame.
pub(crate) fn micros(left: Option<Duration>) -> Option<u64> {
    left.map(|left| u64::try_from(left.as_micros()).unwrap_or(u64::MAX))
}
