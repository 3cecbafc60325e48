//! Handlers in Rust: the thread that has received a call answers it, without the interpreter.
//!
//! Such a call needs no thread of Python and no place among those that [`super::WorkLimits::max_concurrency`] allows. So it
//! is answered while every handler in Python is stuck.

use nearcall_platform::lock::around_sleep;
use nearcall_wire::Failure;

use crate::server::Server;
use crate::server::call::Request;
use nearcall_transport::Body;

/// The handler of a method without streams.
pub trait NativeHandler: Send + Sync {
    /// Answers a call: the encoded result. It must not wait for anything: no thread is started in the place of this one.
    ///
    /// # Errors
    /// How the call fails.
    fn handle(&self, server: &Server, request: &Request) -> Result<Vec<u8>, Failure>;
}

impl Server {
    /// Answers a call for the worker that has received it.
    #[cold]
    pub(super) fn handle_natively(&self, handler: u8, request: Box<Request>) {
        self.begin_handler();
        // A worker may hold the interpreter just now. A client that calls without a pause must not keep it from the others.
        around_sleep(&mut || self.answer(handler, &request));
        drop(request);
        self.leadership.back();
    }

    fn answer(&self, handler: u8, request: &Request) {
        let answered = self.native_handlers[usize::from(handler)].handle(self, request).and_then(|result| {
            match request.reply(self, Body::Whole(&result)) {
                Err(error) if error.spares_connection() => {
                    Err(Failure::new(Failure::RESOURCE_EXHAUSTED, format!("the reply cannot be sent: {error}")))
                }
                // If the client is gone there is nobody to tell.
                _ => Ok(()),
            }
        });
        if let Err(failure) = answered {
            request.fail(self, &failure);
        }
    }
}
