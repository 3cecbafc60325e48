//! What the messages of one node have in common: who handles them, and how they are replied to.

use std::collections::HashMap;
use std::sync::Arc;

use nearcall_core::lock::Mutex;
use pyo3::prelude::*;

use crate::serving::route_codec::RouteCodec;

/// A function that takes messages.
pub(crate) struct Handler {
    pub(crate) function: Py<PyAny>,
    /// Decodes payloads, if the handler is given values.
    pub(crate) codec: Option<Py<RouteCodec>>,
    pub(crate) name: String,
}

/// The node whose messages they are.
pub(crate) struct Owner {
    /// Called with a message, a payload, a type and a timeout.
    pub(crate) reply: Py<PyAny>,
    /// By the type of messages. Held for a look only, never while Python runs.
    handlers: Mutex<HashMap<i32, Arc<Handler>>>,
}

impl Owner {
    pub(crate) fn new(reply: Py<PyAny>) -> Arc<Self> {
        Arc::new(Self { reply, handlers: Mutex::default() })
    }

    /// The handler of messages of this type.
    #[inline]
    pub(crate) fn handler(&self, kind: i32) -> Option<Arc<Handler>> {
        self.handlers.lock().get(&kind).cloned()
    }

    /// What decodes payloads of messages of this type, if a handler says so.
    pub(crate) fn codec(&self, py: Python<'_>, kind: i32) -> Option<Py<RouteCodec>> {
        self.handler(kind)?.codec.as_ref().map(|codec| codec.clone_ref(py))
    }

    /// Gives messages of this type to a handler.
    pub(crate) fn set_handler(&self, kind: i32, handler: Handler) {
        let before = self.handlers.lock().insert(kind, Arc::new(handler));
        drop(before);
    }
}
