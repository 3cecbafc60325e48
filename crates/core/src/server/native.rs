//! Handlers in Rust: the thread that has received a call answers it, without the interpreter.
//!
//! Such a call needs no thread of Python and no place among those that [`super::WorkLimits::max_concurrency`] allows. So it
//! is answered while every handler in Python is stuck.

use std::sync::Arc;

use nearcall_platform::lock::around_sleep;
use nearcall_transport::Body;
use nearcall_wire::Failure;

use crate::server::Server;
use crate::server::call::{Request, ServerCall};

/// The handler of a method. None of this may wait for anything: no thread is started in the place of the one that calls it.
pub trait NativeHandler: Send + Sync {
    /// Takes over a call, and ends it: at once ([`Request::answer`]), or, if it has a stream, whenever it likes. A request that
    /// is kept counts as under way until it is dropped.
    fn handle(&self, server: &Server, request: Box<Request>);

    /// Something has come for a call with a stream: the client has given it up, or there is room for more items. To be asked of
    /// the call. Also for calls that were not handed over yet.
    fn changed(&self, _server: &Server, _call: &Arc<ServerCall>) {}

    /// The server begins to stop: what is kept is to end.
    fn stopping(&self, _server: &Server) {}
}

/// Who keeps calls whose handler is through, and sends the items of their streams ([`Request::outlive_handler`]). None of this
/// may wait for anything.
pub trait Keeper: Send + Sync {
    /// Something has come for a call that is kept: the client has given it up, there is room for more items, or the server
    /// begins to stop. To be asked of the two.
    fn changed(&self, server: &Server, call: &Arc<ServerCall>);
}

impl Server {
    /// Answers a call for the worker that has received it.
    #[cold]
    pub(super) fn handle_natively(&self, handler: u8, request: Box<Request>) {
        self.begin_handler();
        let mut request = Some(request);
        // A worker may hold the interpreter just now. A client that calls without a pause must not keep it from the others.
        around_sleep(&mut || {
            if let Some(request) = request.take() {
                self.native_handlers[usize::from(handler)].handle(self, request);
            }
        });
        self.leadership.back();
    }

    /// Tells a native handler of news of a call.
    #[cold]
    pub(super) fn tell_native(&self, handler: u8, call: &Arc<ServerCall>) {
        self.native_handlers[usize::from(handler)].changed(self, call);
    }
}

impl Request {
    /// Ends a call without streams, with its encoded result or a failure.
    pub fn answer(&self, server: &Server, answer: Result<Vec<u8>, Failure>) {
        let answered = answer.and_then(|result| match self.reply(server, Body::Whole(&result)) {
            Err(error) if error.spares_connection() => {
                Err(Failure::new(Failure::RESOURCE_EXHAUSTED, format!("the reply cannot be sent: {error}")))
            }
            // If the client is gone there is nobody to tell.
            _ => Ok(()),
        });
        if let Err(failure) = answered {
            self.fail(server, &failure);
        }
    }
}
