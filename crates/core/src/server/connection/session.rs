//! A client's session: a value that belongs to the client, and hooks for its begin and end, which are work for a worker
//! like a call.
//!
//! Where there is a hook for the begin, a client is not read from until that hook is through: its calls wait where they
//! are, and nothing else does. The end comes after the client's last call. Where there are no hooks, both cost nothing.

use crate::sync::{AtomicU64, AtomicUsize, Ordering};
use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use nearcall_platform::descriptors;
use nearcall_platform::lock::Mutex;

use crate::exports::Release;
use crate::server::call::Request;
use crate::server::connection::ServerConnection;

/// The value that belongs to one client; only whoever put it there knows what it is.
pub type SessionValue = Box<dyn Any + Send>;

/// For which changes of a session there are hooks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SessionHooks {
    /// Its begin, before the client's first call.
    pub begin: bool,
    /// Its end, after the client's last call, also for a client without a value.
    pub end: bool,
}

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

/// The begin or end of a session, until its hook is through.
#[derive(Debug)]
pub struct SessionEvent {
    connection: Arc<ServerConnection>,
    change: SessionChange,
    begun: bool,
    events: Arc<SessionEvents>,
}

/// Which one.
#[derive(Debug)]
pub enum SessionChange {
    /// Before the first call.
    Begin,
    /// After the last, with the value that belonged to the client.
    End(Option<SessionValue>),
}

/// The begins and ends of sessions whose hooks are not through.
#[derive(Debug)]
pub(in crate::server) struct SessionEvents {
    pub(in crate::server) hooks: SessionHooks,
    /// For whoever receives to hand out.
    waiting: Mutex<Vec<SessionEvent>>,
    /// Clients that may be read from now.
    admitted: Mutex<Vec<Arc<ServerConnection>>>,
    /// Those that wait, and those that are dealt with just now.
    pending: AtomicUsize,
    /// Wakes whoever receives.
    wake: Arc<OwnedFd>,
}

impl SessionEvents {
    pub(in crate::server) fn new(hooks: SessionHooks, wake: Arc<OwnedFd>) -> Self {
        Self { hooks, waiting: Mutex::default(), admitted: Mutex::default(), pending: AtomicUsize::new(0), wake }
    }

    fn push(self: &Arc<Self>, connection: Arc<ServerConnection>, change: SessionChange) {
        // Release: who stops the server and finds none pending finds the calls before it through.
        self.pending.fetch_add(1, Ordering::Release);
        self.keep(SessionEvent { connection, change, begun: false, events: Arc::clone(self) });
        descriptors::signal(&self.wake);
    }

    /// Keeps one for whoever asks next.
    fn keep(&self, event: SessionEvent) {
        self.waiting.lock().push(event);
    }

    /// Those that nobody deals with yet.
    pub(in crate::server) fn take(&self) -> Vec<SessionEvent> {
        std::mem::take(&mut *self.waiting.lock())
    }

    /// The next of them.
    pub(in crate::server) fn take_one(&self) -> Option<SessionEvent> {
        let mut waiting = self.waiting.lock();
        if waiting.is_empty() { None } else { Some(waiting.remove(0)) }
    }

    pub(in crate::server) fn take_admitted(&self) -> Vec<Arc<ServerConnection>> {
        std::mem::take(&mut *self.admitted.lock())
    }

    /// Those that wait, and those that are dealt with just now.
    pub(in crate::server) fn pending(&self) -> usize {
        // Acquire: as in `push`.
        self.pending.load(Ordering::Acquire)
    }
}

impl Work {
    /// Whether it is a call with a stream, whose handler may run for as long as its client likes.
    pub(in crate::server) fn is_stream(&self) -> bool {
        matches!(self, Self::Call(request) if request.routing.streams)
    }

    /// Whose it is: the token of a client's connection, or 0.
    pub(in crate::server) fn client(&self) -> u64 {
        match self {
            Self::Call(request) => request.connection.token,
            Self::Session(event) => event.connection.token,
            Self::Release(_) => 0,
        }
    }

    /// The server ends: no call begins any more, nor does a session; what has begun is ended.
    pub(in crate::server) fn give_up(self) {
        match self {
            Self::Session(event) if matches!(event.change, SessionChange::End(_)) => {
                let events = Arc::clone(&event.events);
                events.keep(event);
            }
            Self::Release(release) => release.keep(),
            Self::Call(_) | Self::Session(_) => {}
        }
    }
}

impl SessionEvent {
    /// Whose it is.
    #[must_use]
    pub fn connection(&self) -> &ServerConnection {
        &self.connection
    }

    /// To be asked once, by whoever deals with it.
    pub fn begin(&mut self) -> SessionChange {
        self.begun = true;
        match &mut self.change {
            SessionChange::Begin => SessionChange::Begin,
            SessionChange::End(value) => SessionChange::End(value.take()),
        }
    }
}

/// Its hook is through.
impl Drop for SessionEvent {
    fn drop(&mut self) {
        if matches!(self.change, SessionChange::Begin) {
            if !self.begun {
                // A session that never began does not end.
                drop(self.connection.session.end());
            }
            self.events.admitted.lock().push(Arc::clone(&self.connection));
            descriptors::signal(&self.events.wake);
            self.connection.one_finished();
        }
        // Release: as in `push`.
        self.events.pending.fetch_sub(1, Ordering::Release);
    }
}

/// One client's session.
#[derive(Debug, Default)]
pub(in crate::server) struct Session {
    /// Calls that are through, and the hook of the begin.
    finished: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(in crate::server) enum State {
    /// Nothing belongs to the client yet.
    #[default]
    Nothing,
    Kept(SessionValue),
    /// The client is gone, and its last call is through.
    Over,
}

/// The value of a client's session, as somebody finds it.
#[derive(Debug)]
pub enum Found<R> {
    /// Nothing yet.
    Nothing,
    /// This was made of it.
    Kept(R),
    /// It is gone, with the client and its last call.
    Over,
}

impl Session {
    /// Counts one more call that is through; how many that makes.
    pub(in crate::server) fn count(&self) -> u64 {
        // SeqCst: whoever finishes a call counts it and then looks whether the client is gone; the client's end is noted
        // before the count is looked at. One of the two sees the other.
        self.finished.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(in crate::server) fn finished(&self) -> u64 {
        // SeqCst: as above.
        self.finished.load(Ordering::SeqCst)
    }

    /// Ends it. How it was before.
    pub(in crate::server) fn end(&self) -> State {
        std::mem::replace(&mut *self.state.lock(), State::Over)
    }
}

impl ServerConnection {
    /// Looks at what belongs to the client. `look` is called with a lock held.
    pub fn session_value<R>(&self, look: impl FnOnce(&(dyn Any + Send)) -> R) -> Found<R> {
        match &*self.session.state.lock() {
            State::Nothing => Found::Nothing,
            State::Kept(value) => Found::Kept(look(&**value)),
            State::Over => Found::Over,
        }
    }

    /// Keeps something until the client is gone and its last call is through. Comes back if there is something already.
    ///
    /// # Errors
    /// What was to be kept.
    pub fn keep_session_value(&self, value: SessionValue) -> Result<(), SessionValue> {
        let mut state = self.session.state.lock();
        if !matches!(*state, State::Nothing) {
            return Err(value);
        }
        *state = State::Kept(value);
        Ok(())
    }

    /// The client is connected. Whether it is to be read from at once: not if there is a hook for the begin.
    pub(in crate::server) fn begin_session(self: &Arc<Self>) -> bool {
        if self.session_events.hooks.begin {
            self.count_arrival();
            self.session_events.push(Arc::clone(self), SessionChange::Begin);
        }
        !self.session_events.hooks.begin
    }

    /// A call is through, or the hook of the begin.
    #[inline]
    pub(in crate::server) fn one_finished(self: &Arc<Self>) {
        let finished = self.session.count();
        if self.is_gone() {
            self.look_whether_over(finished);
        }
    }

    /// The client is gone: if its last call is through, its session ends.
    #[cold]
    pub(in crate::server) fn look_whether_over(self: &Arc<Self>, finished: u64) {
        if finished != self.arrived() {
            return;
        }
        let value = match self.session.end() {
            State::Kept(value) => Some(value),
            State::Nothing if self.session_events.hooks.end => None,
            State::Nothing | State::Over => return,
        };
        self.session_events.push(Arc::clone(self), SessionChange::End(value));
    }
}
