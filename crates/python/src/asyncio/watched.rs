//! A connection as an event loop watches it.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use nearcall_core::client::{Connection as Core, WakesBy};
use pyo3::prelude::*;

use crate::asyncio::waiting::Waiting;

/// One of a client's connections: a current one, or an earlier one that calls are still under way on. It keeps the
/// descriptor open for as long as the loop may poll it.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct Watched {
    core: Arc<Core>,
    by: WakesBy,
    waiting: Arc<Waiting>,
}

impl Watched {
    pub(crate) fn new(core: Arc<Core>, by: WakesBy, waiting: Arc<Waiting>) -> Self {
        Self { core, by, waiting }
    }
}

#[pymethods]
impl Watched {
    /// The descriptor that the loop polls for reading.
    fn fileno(&self) -> i32 {
        self.core.poll_fd(self.by).as_raw_fd()
    }

    /// To be called when the descriptor is readable.
    fn on_readable(&self, py: Python<'_>) -> PyResult<()> {
        self.waiting.on_readable(py, &self.core, self.by)
    }

    /// Whether the loop must go on watching the connection. A lost connection stays readable for ever.
    #[getter]
    fn goes_on(&self) -> bool {
        self.waiting.goes_on(&self.core, self.by)
    }

    /// To be called when the loop polls the descriptor no more.
    fn unwatch(&self) {
        self.waiting.unwatch(&self.core, self.by);
    }
}
