//! What a server has for its workers.

use crate::exports::Release;
use crate::server::request::Request;
use crate::server::session::SessionEvent;

/// Something for a worker.
#[derive(Debug)]
pub enum Work {
    /// A call to be handled.
    Call(Box<Request>),
    /// A session begins or has ended.
    Session(SessionEvent),
    /// Nobody holds an object any more that was given.
    Release(Release),
}

impl Work {
    /// Whether it is a call with a stream, whose handler may run for as long as its client likes.
    pub(in crate::server) fn is_stream(&self) -> bool {
        matches!(self, Self::Call(request) if request.routing.streams)
    }

    /// Whose it is: the token of a client's connection, or 0.
    pub(in crate::server) fn client(&self) -> u64 {
        match self {
            Self::Call(request) => request.connection().token(),
            Self::Session(event) => event.session().token(),
            Self::Release(_) => 0,
        }
    }

    /// The server ends: no call begins any more, nor does a session; what has begun is ended.
    pub(in crate::server) fn give_up(self) {
        match self {
            Self::Session(event) => event.give_up(),
            Self::Release(release) => release.keep(),
            Self::Call(_) => {}
        }
    }
}
