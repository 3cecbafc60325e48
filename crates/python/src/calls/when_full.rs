//! What happens to one-way calls when there is no room: the client's policy, and how many calls it has dropped.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use nearcall_core::lock::Mutex;
use pyo3::prelude::*;

use crate::gil::callback::Callback;

/// How often dropped calls are reported, at most.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// What the user wants when there is no room for a one-way call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    Block,
    Error,
    Drop,
}

impl Policy {
    /// The policy of that name, which Python has checked.
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "error" => Self::Error,
            "drop" => Self::Drop,
            _ => Self::Block,
        }
    }
}

/// The policy of a client, and the calls that it has dropped.
pub(crate) struct WhenFull {
    pub(crate) policy: Policy,
    /// Called with the number of dropped calls of each method.
    on_drop: Py<PyAny>,
    drops: Mutex<Drops>,
}

#[derive(Default)]
struct Drops {
    by_method: HashMap<String, u64>,
    /// Some dropped calls have not been reported yet.
    unreported: bool,
    reported: Option<Instant>,
    /// The method whose message was last sent in part.
    begun: Option<String>,
}

impl WhenFull {
    pub(crate) fn new(policy: Policy, on_drop: Py<PyAny>) -> Self {
        Self { policy, on_drop, drops: Mutex::default() }
    }

    pub(crate) fn dropped(&self) -> HashMap<String, u64> {
        self.drops.lock().by_method.clone()
    }

    /// Counts a call that is dropped, and reports it if the last report was long ago.
    #[cold]
    pub(crate) fn count(&self, py: Python<'_>, method: &str) -> PyResult<()> {
        {
            let mut drops = self.drops.lock();
            *drops.by_method.entry(method.to_owned()).or_default() += 1;
            drops.unreported = true;
            if drops.reported.is_some_and(|at| at.elapsed() < REPORT_EVERY) {
                return Ok(());
            }
        }
        self.report(py)
    }

    /// Notes that a message of this method was sent in part.
    pub(crate) fn begin(&self, method: &str) {
        self.drops.lock().begun = Some(method.to_owned());
    }

    fn report(&self, py: Python<'_>) -> PyResult<()> {
        let by_method = {
            let mut drops = self.drops.lock();
            drops.unreported = false;
            drops.reported = Some(Instant::now());
            drops.by_method.clone()
        };
        self.on_drop.bind(py).run_with((by_method,)).map(|_| ())
    }

    /// To be called when the client is closed. `complete`: everything that was accepted was sent.
    pub(crate) fn close(&self, py: Python<'_>, complete: bool) -> PyResult<()> {
        let begun = self.drops.lock().begun.take();
        if !complete && let Some(method) = begun {
            self.count(py, &method)?;
        }
        let unreported = self.drops.lock().unreported;
        if unreported { self.report(py) } else { Ok(()) }
    }
}
