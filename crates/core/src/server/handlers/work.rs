//! The work that a server has for its workers.

use crate::server::inbound::request::Request;
use crate::server::shared::mailbox::Running;
use crate::server::shared::session::{Hook, HookRun};

/// Something for a worker to do. All in boxes, so that it is returned in registers: calls pass through many functions.
#[derive(Debug)]
pub enum Work {
    /// A call to be handled.
    Call(Box<Request>),
    /// A session begins or has ended, or the clients hold an object of this side no longer.
    Hook(Box<HookRun>),
}

impl Work {
    /// A call that a handler is to have: from now on its arguments do not wait for the client.
    pub(in crate::server) fn of_call(mut request: Box<Request>) -> Self {
        if let Some(charge) = request.charge.as_mut().and_then(|charge| charge.get_mut().as_mut()) {
            charge.begin_work();
        }
        Self::Call(request)
    }

    /// A hook that is to run.
    pub(in crate::server) fn of_hook((hook, running): (Hook, Running<Hook>)) -> Self {
        Self::Hook(Box::new(HookRun::new(hook, running)))
    }

    /// Whether it is a call with a stream, whose handler may run for as long as its client likes.
    pub(in crate::server) fn is_stream(&self) -> bool {
        matches!(self, Self::Call(request) if request.routing.streams)
    }

    /// The request, if it is such a call.
    pub(in crate::server) fn stream_mut(&mut self) -> Option<&mut Request> {
        match self {
            Self::Call(request) if request.routing.streams => Some(request),
            _ => None,
        }
    }

    /// The token of the connection of the client that the work is for, or 0.
    pub(in crate::server) fn client(&self) -> u64 {
        match self {
            Self::Call(request) => request.connection().token(),
            Self::Hook(run) => run.client(),
        }
    }

    /// The server ends: no call and no session begins any more. Ends of sessions, and released objects, are kept for
    /// the thread that stops the server.
    pub(in crate::server) fn give_up(self) {
        if let Self::Hook(run) = self {
            run.give_up();
        }
    }
}
