//! The methods of a server, and what runs their handlers.

use std::io;
use std::sync::{Arc, OnceLock};

use nearcall_transport::Paths;

use crate::exports::{HandlerKind, MethodRouting};
use crate::server::call::CallObserver;
use crate::server::handlers::loop_queue::AsyncQueue;
use crate::server::handlers::pace::Paces;
use crate::server::inbound::request::Request;
use crate::server::shared::statistics::MeasuredMethod;

/// The native handler of a method: written in Rust, and run by the thread that has received the call, without the Python
/// interpreter. It takes no place among those that [`crate::server::WorkLimits::max_concurrency`] allows, so it answers even while
/// every handler in Python is stuck.
///
/// It also observes its calls with streams, even before [`handle`](Self::handle) gets
/// them. None of this may wait for anything: no other thread receives in place of the one that calls it.
pub trait NativeHandler: CallObserver {
    /// Takes over a call, and ends it: at once ([`Request::answer`]), or at any later time if the call has a stream. A
    /// call counts as under way until its request is dropped.
    fn handle(&self, request: Box<Request>);

    /// The server begins to stop: end the calls that are kept.
    fn stopping(&self) {}
}

/// The methods of a server.
#[derive(Default)]
pub struct ServedMethods {
    /// The description of the services, sent to each client. The server does not read it.
    pub description: String,
    /// One for each method, in the order of the description. `None`: the method is called on objects only.
    pub routings: Vec<Option<MethodRouting>>,
    /// The handlers that [`HandlerKind::Native`] names by index.
    pub native_handlers: Vec<Arc<dyn NativeHandler>>,
    /// One for each method, in the same order: its name in the statistics. Methods of one name are counted as one.
    pub measured: Vec<Option<MeasuredMethod>>,
    /// The methods that clients name by paths, over HTTP.
    pub paths: Paths,
}

/// Finds a method by its number, and the native handler or event loop that handles it, if no worker does.
pub(in crate::server) struct Directory {
    /// By number. `None`: the method is called on objects only.
    methods: Vec<Option<MethodRouting>>,
    pub(in crate::server) native_handlers: Vec<Arc<dyn NativeHandler>>,
    pub(in crate::server) paces: Paces,
    /// The event loop that takes requests, if there is one.
    pub(in crate::server) event_loop: OnceLock<Arc<AsyncQueue>>,
}

impl Directory {
    pub(in crate::server) fn new(
        methods: Vec<Option<MethodRouting>>,
        native_handlers: Vec<Arc<dyn NativeHandler>>,
    ) -> Arc<Self> {
        let paces = Paces::new(methods.len());
        Arc::new(Self { methods, native_handlers, paces, event_loop: OnceLock::new() })
    }

    /// A method of the server's services, by its number.
    #[inline]
    pub(in crate::server) fn method(&self, number: u16) -> Option<MethodRouting> {
        *self.methods.get(usize::from(number))?
    }

    /// The native handler with this index: see [`HandlerKind::Native`].
    pub(in crate::server) fn native(&self, index: u8) -> &Arc<dyn NativeHandler> {
        &self.native_handlers[usize::from(index)]
    }

    /// The queue of the event loop; made now if there is none yet.
    pub(in crate::server) fn use_event_loop(&self) -> io::Result<Arc<AsyncQueue>> {
        if let Some(queue) = self.event_loop.get() {
            return Ok(Arc::clone(queue));
        }
        let queue = Arc::new(AsyncQueue::new()?);
        Ok(Arc::clone(self.event_loop.get_or_init(|| queue)))
    }

    /// Who is told of news of a call with this kind of handler.
    pub(in crate::server) fn observer(&self, handler: HandlerKind) -> Option<Arc<dyn CallObserver>> {
        match handler {
            HandlerKind::Thread => None,
            HandlerKind::EventLoop => self.event_loop.get().map(|queue| Arc::clone(queue) as _),
            HandlerKind::Native(index) => Some(Arc::clone(self.native(index)) as _),
        }
    }
}
