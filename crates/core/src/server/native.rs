//! Handlers in Rust: the thread that has received a call answers it, without the interpreter.
//!
//! Such a call needs no thread of Python and no place among those that [`super::WorkLimits::max_concurrency`] allows. So it
//! is answered while every handler in Python is stuck.

use crate::server::call::CallObserver;
use crate::server::request::Request;

/// The handler of a method, and the first who is told of news of its calls with a stream, also of those that were not handed
/// over yet. None of this may wait for anything: no thread is started in the place of the one that calls it.
pub trait NativeHandler: CallObserver {
    /// Takes over a call, and ends it: at once ([`Request::answer`]), or, if it has a stream, whenever it likes. A request that
    /// is kept counts as under way until it is dropped.
    fn handle(&self, request: Box<Request>);

    /// The server begins to stop: what is kept is to end.
    fn stopping(&self) {}
}
