//! A client's session on a server: a Python object that belongs to the client, and hooks for the session's begin and
//! end.

use nearcall_core::server::{Found, Session, SessionChange, SessionHooks, SessionValue};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::gil::callback::Callback;
use crate::options::peer::peer;

/// Makes the sessions of clients, and runs their hooks.
pub(crate) struct Sessions {
    /// Makes the object that belongs to a client, from the client's identity.
    pub(crate) make: Py<PyAny>,
    /// Called with this object before the client's first call.
    pub(crate) on_arrival: Option<Py<PyAny>>,
    /// Called with it after the client's last call.
    pub(crate) on_departure: Py<PyAny>,
    /// Also if the object was never made.
    pub(crate) departures: bool,
}

impl Sessions {
    /// Which hooks there are.
    pub(crate) fn hooks(&self) -> SessionHooks {
        SessionHooks { begin: self.on_arrival.is_some(), end: self.departures }
    }

    /// Runs the hook for the begin or the end of a session. An exception goes to the interpreter's own hook.
    pub(crate) fn run_hook(&self, py: Python<'_>, session: &Session, change: SessionChange) {
        let make = self.make.bind(py);
        let told = match change {
            SessionChange::Begin => of_client(py, session, make).and_then(|client| match &self.on_arrival {
                Some(on_arrival) => on_arrival.bind(py).run([client.bind(py)]).map(drop),
                None => Ok(()),
            }),
            SessionChange::End(value) => value
                .and_then(python)
                .map_or_else(|| made(py, session, make), Ok)
                .and_then(|client| self.on_departure.bind(py).run([client.bind(py)]).map(drop)),
        };
        if let Err(error) = told {
            error.write_unraisable(py, Some(make));
        }
    }
}

/// The object that belongs to a client, made now if there is none yet.
pub(crate) fn of_client(py: Python<'_>, session: &Session, make: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    loop {
        match session.value(|kept| kept.downcast_ref::<Py<PyAny>>().map(|client| client.clone_ref(py))) {
            Found::Value(Some(client)) => return Ok(client),
            Found::Over | Found::Value(None) => return Err(session_over()),
            Found::Nothing => {}
        }
        let client = made(py, session, make)?;
        // If two threads are here at once, the second finds the object of the first.
        if let Err(late) = session.keep(Box::new(client)) {
            drop(late);
        }
    }
}

/// The error for a session that is asked for after its end.
pub(crate) fn session_over() -> PyErr {
    PyRuntimeError::new_err(
        "the client's connection is gone, and its session with it: keep what is needed of it while the call runs",
    )
}

fn made<'py>(py: Python<'py>, session: &Session, make: &Bound<'py, PyAny>) -> PyResult<Py<PyAny>> {
    let identity = peer(py, session.peer())?;
    Ok(make.run([identity.as_any()])?.unbind())
}

fn python(value: SessionValue) -> Option<Py<PyAny>> {
    let value: Box<dyn std::any::Any> = value;
    value.downcast::<Py<PyAny>>().ok().map(|client| *client)
}
