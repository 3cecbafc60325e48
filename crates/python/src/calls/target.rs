//! The called object at the other end of a connection.

use std::num::NonZeroU64;
use std::sync::{Arc, Weak};

use nearcall_core::Failure;
use nearcall_core::client::Connection as Core;
use pyo3::prelude::*;

/// How a reference keeps its connection.
#[derive(Clone)]
pub(crate) enum Hold {
    /// A client's connection lives as long as anything needs it.
    Client(Arc<Core>),
    /// A server's connection ends when the client goes, even if a handler keeps references.
    Server(Weak<Core>),
}

impl Hold {
    pub(crate) fn core(&self) -> Option<Arc<Core>> {
        match self {
            Self::Client(core) => Some(Arc::clone(core)),
            Self::Server(core) => core.upgrade(),
        }
    }
}

/// The called object at the other end of a connection.
pub(crate) struct Target {
    pub(crate) hold: Hold,
    pub(crate) id: NonZeroU64,
    /// The name of the peer that has the object.
    pub(crate) name: Arc<str>,
    /// The Python object that releases the called object when it is freed: never during a call.
    pub(crate) _keeps: Py<PyAny>,
}

/// The failure of anything that needs a connection that is gone.
pub(crate) fn gone(name: &str) -> Failure {
    let text = format!("the connection to {name} is gone, and the objects that came over it with it: ask for new ones");
    Failure::new(Failure::UNAVAILABLE, text)
}
