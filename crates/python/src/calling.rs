//! What every callable needs of its connection: where to send, and how to get a new connection when it was lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_core::Failure;
use nearcall_core::client::{Channel, Connection as Core, Patience};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::callback::Callback;
use crate::errors::{describe, raise};
use crate::interpreter::{attach, detach};
use crate::plan::Method;
use crate::when_full::WhenFull;

/// How long a repeated call waits for the successor of a server that said goodbye, or a call that may be repeated for any.
const COMEBACK: Duration = Duration::from_secs(1);

/// Whether a call that failed on a connection that is no longer usable may be sent once more.
pub(crate) fn may_repeat(failed: &Core, method: &Method) -> bool {
    // A server that goes away refuses what it has not begun; a lost connection leaves that open.
    failed.is_going_away() && !failed.is_dead() || method.idempotent
}

/// Whether it is to wait for another server. One that died without a word is no reason to hope for a successor.
pub(crate) fn is_hopeful(failed: &Core, method: &Method) -> bool {
    failed.is_going_away() || method.idempotent
}

/// What every callable needs of its connection.
#[derive(Clone)]
pub(crate) struct Calling {
    pub(crate) channel: Arc<Channel>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) wait_for_ready: bool,
    pub(crate) when_full: Arc<WhenFull>,
    /// Called with the reason why there is no server, and returns what users are to read in its place.
    pub(crate) explain: Option<Arc<Py<PyAny>>>,
}

/// A call was refused by what the server has said of itself. If that server is gone the next one is asked: the failure to
/// try again with.
#[cold]
pub(crate) fn reconsider(py: Python<'_>, core: &Core, refusal: PyErr) -> PyResult<Failure> {
    if !matches!(describe(py, &refusal).code, Failure::FAILED_PRECONDITION | Failure::UNIMPLEMENTED) {
        return Err(refusal);
    }
    // Nothing was sent, so nobody has noticed yet whether it is gone.
    if detach(py, || core.stands()) {
        return Err(refusal);
    }
    Ok(Failure::new(Failure::UNAVAILABLE, format!("the server at {} has stopped", core.url())))
}

impl Calling {
    /// A usable connection for a call that ends by then; made now if need be.
    #[cold]
    pub(crate) fn usable(&self, py: Python<'_>, until: Option<Instant>) -> PyResult<Arc<Core>> {
        let patience = if self.wait_for_ready { Patience::Until(until) } else { Patience::FailFast };
        self.connect(py, patience, until)
    }

    /// The same for a call that met a server's end: if it [is hopeful](is_hopeful), a successor is waited for, a moment at
    /// most unless the client waits for servers.
    pub(crate) fn usable_again(&self, py: Python<'_>, hopeful: bool, until: Option<Instant>) -> PyResult<Arc<Core>> {
        if !hopeful {
            return self.usable(py, until);
        }
        let soon = Instant::now() + COMEBACK;
        let soon = if self.wait_for_ready { until } else { Some(until.map_or(soon, |until| until.min(soon))) };
        self.connect(py, Patience::Until(soon), until)
    }

    /// The exception for why there is no connection.
    pub(crate) fn failed(&self, py: Python<'_>, mut failure: Failure) -> PyErr {
        if failure.code == Failure::UNAVAILABLE
            && let Some(explain) = &self.explain
        {
            match explain.bind(py).run([PyString::new(py, &failure.message).as_any()]).and_then(|text| text.extract()) {
                Ok(text) => failure.message = text,
                Err(error) => return error,
            }
        }
        raise(py, &failure)
    }

    /// A usable connection; Ctrl-C is heard meanwhile.
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method has one lifetime, the closure is for any"
    )]
    pub(crate) fn connect(&self, py: Python<'_>, patience: Patience, until: Option<Instant>) -> PyResult<Arc<Core>> {
        let mut stopped = None;
        let mut go_on = || {
            stopped = attach(|py| py.check_signals()).err();
            stopped.is_none()
        };
        let connected = detach(py, || self.channel.usable(patience, until, &mut go_on));
        match (connected, stopped) {
            (_, Some(stopped)) => Err(stopped),
            (Ok(Some(core)), None) => Ok(core),
            (Ok(None), None) => {
                let url = self.channel.url();
                let what = format!("there was no connection to {url} before the deadline: the server does not answer");
                Err(raise(py, &Failure::new(Failure::DEADLINE_EXCEEDED, what)))
            }
            (Err(failure), None) => Err(self.failed(py, failure)),
        }
    }
}
