//! The methods of a server, and what runs their handlers.

use std::io;
use std::sync::{Arc, OnceLock};

use nearcall_transport::Paths;

use crate::exports::{HandlerKind, MethodRouting};
use crate::server::call::Told;
use crate::server::event_loop::AsyncQueue;
use crate::server::native::NativeHandler;
use crate::server::statistics::MeasuredMethod;

/// The methods of a server.
#[derive(Default)]
pub struct ServedMethods {
    /// Sent to each client; only clients read it.
    pub description: String,
    /// In the order of the description. `None`: it is called on objects only.
    pub routings: Vec<Option<MethodRouting>>,
    /// See [`HandlerKind::Native`].
    pub native_handlers: Vec<Arc<dyn NativeHandler>>,
    /// For each method, in the same order: what it is called where it is measured. Those of one name are counted as one.
    pub measured: Vec<Option<MeasuredMethod>>,
    /// Those that clients name by their paths, over HTTP.
    pub paths: Paths,
}

/// Finds a method by its number, and whoever handles it beside the workers.
pub(in crate::server) struct Directory {
    /// `None`: it is called on objects only.
    methods: Vec<Option<MethodRouting>>,
    native_handlers: Vec<Arc<dyn NativeHandler>>,
    /// The event loop that takes requests, if there is one.
    event_loop: OnceLock<Arc<AsyncQueue>>,
}

impl Directory {
    pub(in crate::server) fn new(
        methods: Vec<Option<MethodRouting>>,
        native_handlers: Vec<Arc<dyn NativeHandler>>,
    ) -> Arc<Self> {
        Arc::new(Self { methods, native_handlers, event_loop: OnceLock::new() })
    }

    /// What is known of a method of the server's services.
    #[inline]
    pub(in crate::server) fn method(&self, number: u16) -> Option<MethodRouting> {
        match self.methods.get(usize::from(number)) {
            Some(Some(method)) => Some(*method),
            _ => None,
        }
    }

    /// How many numbers of methods there are.
    pub(in crate::server) fn len(&self) -> usize {
        self.methods.len()
    }

    /// The handler with that index: see [`HandlerKind::Native`].
    pub(in crate::server) fn native(&self, index: u8) -> &Arc<dyn NativeHandler> {
        &self.native_handlers[usize::from(index)]
    }

    pub(in crate::server) fn native_handlers(&self) -> &[Arc<dyn NativeHandler>] {
        &self.native_handlers
    }

    /// The queue of the event loop, if there is one.
    #[inline]
    pub(in crate::server) fn event_loop(&self) -> Option<&Arc<AsyncQueue>> {
        self.event_loop.get()
    }

    /// The same; made now if there is none yet.
    pub(in crate::server) fn use_event_loop(&self) -> io::Result<Arc<AsyncQueue>> {
        if let Some(queue) = self.event_loop.get() {
            return Ok(Arc::clone(queue));
        }
        let queue = Arc::new(AsyncQueue::new()?);
        Ok(Arc::clone(self.event_loop.get_or_init(|| queue)))
    }

    /// Who is told of news of a call.
    pub(in crate::server) fn told(&self, handler: HandlerKind) -> Told {
        match handler {
            HandlerKind::Thread => Told::Nobody,
            HandlerKind::EventLoop => match self.event_loop.get() {
                Some(queue) => Told::Loop(Arc::clone(queue) as _),
                None => Told::Nobody,
            },
            HandlerKind::Native(index) => Told::Native(Arc::clone(self.native(index)) as _),
        }
    }
}
