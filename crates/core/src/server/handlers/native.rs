//! Native handlers: written in Rust, and run by the thread that has received the call, without the Python interpreter.
//!
//! A call with a native handler takes no place among those that [`crate::server::WorkLimits::max_concurrency`] allows. So it is
//! answered even while every handler in Python is stuck.

use crate::server::call::CallObserver;
use crate::server::inbound::request::Request;

/// The native handler of a method. It also observes its calls with streams, even before [`handle`](Self::handle) gets
/// them. None of this may wait for anything: no other thread receives in place of the one that calls it.
pub trait NativeHandler: CallObserver {
    /// Takes over a call, and ends it: at once ([`Request::answer`]), or at any later time if the call has a stream. A
    /// call counts as under way until its request is dropped.
    fn handle(&self, request: Box<Request>);

    /// The server begins to stop: end the calls that are kept.
    fn stopping(&self) {}
}
