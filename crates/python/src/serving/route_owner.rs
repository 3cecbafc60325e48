//! What the messages of one node have in common: who handles them, and how they are replied to.

use std::cell::Cell;
use std::collections::HashMap;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use nearcall_core::lock::Mutex;
use pyo3::prelude::*;

use crate::serving::route_codec::RouteCodec;

/// A function that takes messages.
pub(crate) struct Handler {
    pub(crate) function: Py<PyAny>,
    /// Decodes payloads, if the handler is given values.
    pub(crate) codec: Option<Py<RouteCodec>>,
}

thread_local! {
    /// The node whose handler this thread runs.
    static RUNS_FOR: Cell<*const Owner> = const { Cell::new(ptr::null()) };
}

/// This thread runs a handler, until this is dropped.
pub(crate) struct Running(*const Owner);

impl Drop for Running {
    fn drop(&mut self) {
        RUNS_FOR.set(self.0);
    }
}

/// A handler waits for a reply, until this is dropped.
pub(crate) struct Calling(Arc<Owner>);

impl Drop for Calling {
    fn drop(&mut self) {
        // Relaxed: a count, here and below.
        self.0.calling.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The node whose messages they are.
pub(crate) struct Owner {
    /// Called with a message, a payload, a type and a timeout.
    pub(crate) reply: Py<PyAny>,
    /// Called with a type of messages that no handler says more of. Returns a codec, or raises.
    pub(crate) codec_of: Py<PyAny>,
    /// By the type of messages. Held for a look only, never while Python runs.
    handlers: Mutex<HashMap<i32, (Handler, String), RandomState>>,
    /// How many threads run handlers.
    pub(crate) threads: AtomicUsize,
    /// How many of them wait for replies.
    calling: AtomicUsize,
}

impl Owner {
    pub(crate) fn new(reply: Py<PyAny>, codec_of: Py<PyAny>) -> Arc<Self> {
        Arc::new(Self {
            reply,
            codec_of,
            handlers: Mutex::default(),
            threads: AtomicUsize::new(0),
            calling: AtomicUsize::new(0),
        })
    }

    /// This thread begins to run a handler.
    pub(crate) fn run(&self) -> Running {
        Running(RUNS_FOR.replace(self))
    }

    /// This thread begins to wait for a reply; `Some` if it is one that runs handlers. A reply needs a thread as well.
    ///
    /// # Errors
    /// None would be left. The number of threads.
    pub(crate) fn call(self: &Arc<Self>) -> Result<Option<Calling>, usize> {
        if !ptr::eq(RUNS_FOR.get(), Arc::as_ptr(self)) {
            return Ok(None);
        }
        let calling = self.calling.fetch_add(1, Ordering::Relaxed) + 1;
        let (calls, threads) = (Calling(Arc::clone(self)), self.threads.load(Ordering::Relaxed));
        if calling < threads { Ok(Some(calls)) } else { Err(threads) }
    }

    /// The handler of messages of this type.
    #[inline]
    pub(crate) fn handler(&self, py: Python<'_>, kind: i32) -> Option<Handler> {
        let handlers = self.handlers.lock();
        let (Handler { function, codec }, _) = handlers.get(&kind)?;
        Some(Handler { function: function.clone_ref(py), codec: codec.as_ref().map(|codec| codec.clone_ref(py)) })
    }

    /// Its name.
    pub(crate) fn name(&self, kind: i32) -> String {
        self.handlers.lock().get(&kind).map(|(_, name)| name.clone()).unwrap_or_default()
    }

    /// Has none any more.
    pub(crate) fn forget_handlers(&self) {
        // Dropped without the lock.
        drop(std::mem::take(&mut *self.handlers.lock()));
    }

    /// Gives messages of this type to a handler.
    pub(crate) fn set_handler(&self, kind: i32, handler: Handler, name: String) {
        let before = self.handlers.lock().insert(kind, (handler, name));
        drop(before);
    }
}
