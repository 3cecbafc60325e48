//! What belongs to one client of a server: an object of Python's, and who is told when the client comes and goes.

use nearcall_core::server::{Announced, Belongings, Found, Moment, ServerConnection, Visit};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::callback::Callback;
use crate::connection::peer;

/// Who deals with clients that come and go.
pub(crate) struct Stays {
    /// Makes what belongs to a client, of its identity.
    make: Py<PyAny>,
    on_arrival: Option<Py<PyAny>>,
    on_departure: Py<PyAny>,
    departures: bool,
}

impl Stays {
    pub(crate) fn new(
        make: Py<PyAny>,
        on_arrival: Option<Py<PyAny>>,
        on_departure: Py<PyAny>,
        departures: bool,
    ) -> Self {
        Self { make, on_arrival, on_departure, departures }
    }

    /// What the core is to tell of.
    pub(crate) fn announced(&self) -> Announced {
        Announced { arrivals: self.on_arrival.is_some(), departures: self.departures }
    }

    /// Deals with an arrival or a departure. What Python raises goes to the interpreter's own hook.
    pub(crate) fn visit(&self, py: Python<'_>, mut visit: Visit) {
        let make = self.make.bind(py);
        let told = match visit.begin() {
            Moment::Arrival => of_client(py, visit.connection(), make).and_then(|client| match &self.on_arrival {
                Some(on_arrival) => on_arrival.bind(py).run([client.bind(py)]).map(drop),
                None => Ok(()),
            }),
            Moment::Departure(belongings) => match belongings.and_then(python) {
                Some(client) => self.on_departure.bind(py).run([client.bind(py)]).map(drop),
                None => made(py, visit.connection(), make)
                    .and_then(|client| self.on_departure.bind(py).run([client.bind(py)]).map(drop)),
            },
        };
        if let Err(error) = told {
            error.write_unraisable(py, Some(make));
        }
    }
}

/// What belongs to a client; made now if nothing does yet.
pub(crate) fn of_client(py: Python<'_>, connection: &ServerConnection, make: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    loop {
        match connection.belongings(|kept| kept.downcast_ref::<Py<PyAny>>().map(|client| client.clone_ref(py))) {
            Found::Kept(Some(client)) => return Ok(client),
            Found::Over | Found::Kept(None) => {
                return Err(PyRuntimeError::new_err(
                    "the client's connection is gone, and its session with it: keep what is needed of it while the \
                     call runs",
                ));
            }
            Found::Nothing => {}
        }
        let client = made(py, connection, make)?;
        // Of two threads one is first, and the other finds that.
        if let Err(late) = connection.keep(Box::new(client)) {
            drop(late);
        }
    }
}

fn made<'py>(py: Python<'py>, connection: &ServerConnection, make: &Bound<'py, PyAny>) -> PyResult<Py<PyAny>> {
    let identity = peer(py, connection.peer())?;
    Ok(make.run([identity.as_any()])?.unbind())
}

fn python(belongings: Belongings) -> Option<Py<PyAny>> {
    let belongings: Box<dyn std::any::Any> = belongings;
    belongings.downcast::<Py<PyAny>>().ok().map(|client| *client)
}
