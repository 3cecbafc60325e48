//! The object at the other end of a connection that calls are made of.

use std::num::NonZeroU64;
use std::sync::{Arc, Weak};

use nearcall_core::Failure;
use nearcall_core::client::Connection as Core;
use pyo3::prelude::*;

/// A connection as a reference knows it.
#[derive(Clone)]
pub(crate) enum Hold {
    /// A client's: it lives as long as anything needs it.
    Client(Arc<Core>),
    /// A server's: it ends when the client goes, whatever a handler keeps.
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

/// The object at the other end of a connection that calls are made of.
pub(crate) struct Target {
    pub(crate) hold: Hold,
    pub(crate) id: NonZeroU64,
    /// Who has the object.
    name: Arc<str>,
    /// Python's own, which lets go of the object when it goes: not while anything calls it.
    _keeps: Py<PyAny>,
}

impl Target {
    pub(crate) fn new(hold: Hold, id: NonZeroU64, name: Arc<str>, keeps: Py<PyAny>) -> Self {
        Self { hold, id, name, _keeps: keeps }
    }

    /// Who has the object, in messages.
    pub(crate) fn place(&self) -> &str {
        &self.name
    }

    /// The failure of a call when the connection is gone.
    pub(crate) fn gone(&self) -> Failure {
        gone(&self.name)
    }
}

/// The failure of whatever needs a connection that is gone.
pub(crate) fn gone(name: &str) -> Failure {
    let text = format!("the connection to {name} is gone, and the objects that came over it with it: ask for new ones");
    Failure::new(Failure::UNAVAILABLE, text)
}
