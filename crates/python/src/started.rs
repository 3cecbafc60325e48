//! Calls that a thread begins before it waits for the first of them, so that one thread may have many under way.

use std::sync::Arc;
use std::time::Instant;

use nearcall_core::Failure;
use nearcall_core::client::{CallId, Connection as Core, Tally};
use nearcall_core::lock::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::deadline::Surroundings;
use crate::interpreter::detach;
use crate::unary::{Attempt, Call, Sent, Unary};

/// A call that was sent. Its result is taken once; it is given up when nobody holds it any more.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct StartedCall {
    unary: Py<Unary>,
    /// Until somebody waits for it, or gives it up.
    under_way: Mutex<Option<UnderWay>>,
    /// What was sent first, for who gives the call up while another thread waits for it.
    first: Option<(Arc<Core>, CallId)>,
}

struct UnderWay {
    core: Arc<Core>,
    /// The failure is that of a call that was not even begun, and may be sent over another connection.
    sent: Result<Sent<()>, Failure>,
    // For a call that is repeated.
    args: Py<PyTuple>,
    kwargs: Option<Py<PyDict>>,
    surroundings: Surroundings,
    until: Option<Instant>,
}

impl StartedCall {
    /// Sends it, with the time that the surrounding block leaves now.
    pub(crate) fn send(
        unary: &Bound<'_, Unary>,
        args: Bound<'_, PyTuple>,
        kwargs: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let surroundings = unary.get().surroundings(unary.py())?;
        let (py, until, tally) = (unary.py(), surroundings.until(), Tally::default());
        let mut call = Call { py, args: &args, kwargs: kwargs.as_ref(), until, surroundings, tally };
        let core = unary.get().core(&mut call)?;
        let sent =
            unary.get().send(&call, &core, |request, expected| Ok((core.begin_ahead(request, expected)?, ())))?;
        let Call { surroundings, until, .. } = call;
        let (args, kwargs) = (args.unbind(), kwargs.map(Bound::unbind));
        let first = sent.as_ref().ok().map(|sent| (Arc::clone(&core), sent.id));
        let under_way = UnderWay { core, sent, args, kwargs, surroundings, until };
        Ok(Self { unary: unary.clone().unbind(), under_way: Mutex::new(Some(under_way)), first })
    }
}

#[pymethods]
impl StartedCall {
    /// Waits for the outcome: returns the result, or raises what the call raises.
    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let Some(under_way) = self.under_way.lock().take() else {
            return Err(PyRuntimeError::new_err("the result was taken already, or the call was given up"));
        };
        let UnderWay { core, sent, args, kwargs, surroundings, until } = under_way;
        let (args, kwargs) = (args.bind(py), kwargs.as_ref().map(|kwargs| kwargs.bind(py)));
        let mut call = Call { py, args, kwargs, surroundings, until, tally: Tally::default() };
        let unary = self.unary.get();
        let attempt = match sent {
            Ok(Sent { id, successor, first: () }) => {
                let first = detach(py, || core.next_event(id, until));
                unary.finish(&mut call, &core, Sent { id, successor, first })?
            }
            Err(failure) => Attempt::Repeat(unary.unsent(&mut call, &core, failure)?),
        };
        match attempt {
            Attempt::Ended(value) => Ok(value),
            Attempt::Repeat(again) => unary.repeat(&mut call, again),
        }
    }

    /// Gives the call up, also while another thread waits for it. Harmless when it has ended.
    fn cancel(&self, py: Python<'_>) {
        // Nobody waits for it from now on.
        drop(self.under_way.lock().take());
        if let Some((core, id)) = &self.first {
            detach(py, || core.cancel(*id));
        }
    }

    fn __repr__(&self) -> String {
        format!("<call of {}>", self.unary.get().shown())
    }
}

impl Drop for StartedCall {
    fn drop(&mut self) {
        if let (Some(_), Some((core, id))) = (self.under_way.get_mut(), &self.first) {
            core.cancel(*id);
        }
    }
}
