//! A client's session: a value that belongs to the client, and hooks for its begin and end, which are work for a worker
//! like a call.
//!
//! Where there is a hook for the begin, a client is not read from until that hook is through: its calls wait where they
//! are, and nothing else does. The end comes after the client's last call. Where there are no hooks, both cost nothing.

use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use nearcall_platform::descriptors;
use nearcall_platform::lock::Mutex;
use nearcall_transport::{ConnectionPermit, Link, Peer};

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

/// The begin or end of a session, until its hook is through.
#[derive(Debug)]
pub struct SessionEvent {
    session: Arc<Session>,
    change: SessionChange,
    begun: bool,
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
    hooks: SessionHooks,
    /// For whoever receives to hand out.
    waiting: Mutex<Vec<SessionEvent>>,
    /// Clients that may be read from now, by their tokens.
    admitted: Mutex<Vec<u64>>,
    /// Those that wait, and those that are dealt with just now.
    pending: AtomicUsize,
    /// Wakes whoever receives.
    wake: Arc<OwnedFd>,
}

impl SessionEvents {
    pub(in crate::server) fn new(hooks: SessionHooks, wake: Arc<OwnedFd>) -> Self {
        Self { hooks, waiting: Mutex::default(), admitted: Mutex::default(), pending: AtomicUsize::new(0), wake }
    }

    fn push(&self, session: Arc<Session>, change: SessionChange) {
        // Release: who stops the server and finds none pending finds the calls before it through.
        self.pending.fetch_add(1, Ordering::Release);
        self.keep(SessionEvent { session, change, begun: false });
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

    /// The tokens of clients that may be read from now.
    pub(in crate::server) fn take_admitted(&self) -> Vec<u64> {
        std::mem::take(&mut *self.admitted.lock())
    }

    /// Those that wait, and those that are dealt with just now.
    pub(in crate::server) fn pending(&self) -> usize {
        // Acquire: as in `push`.
        self.pending.load(Ordering::Acquire)
    }
}

impl SessionEvent {
    /// Whose it is.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// To be asked once, by whoever deals with it.
    pub fn begin(&mut self) -> SessionChange {
        self.begun = true;
        match &mut self.change {
            SessionChange::Begin => SessionChange::Begin,
            SessionChange::End(value) => SessionChange::End(value.take()),
        }
    }

    /// The server ends: a session that has begun is ended by whoever stops it, and none begins any more.
    pub(in crate::server) fn give_up(self) {
        if matches!(self.change, SessionChange::End(_)) {
            let events = Arc::clone(&self.session.events);
            events.keep(self);
        }
    }
}

/// Its hook is through.
impl Drop for SessionEvent {
    fn drop(&mut self) {
        let events = &self.session.events;
        if matches!(self.change, SessionChange::Begin) {
            if !self.begun {
                // A session that never began does not end.
                drop(self.session.end());
            }
            events.admitted.lock().push(self.session.token);
            descriptors::signal(&events.wake);
            self.session.one_finished();
        }
        // Release: as in `push`.
        events.pending.fetch_sub(1, Ordering::Release);
    }
}

/// One client's session.
#[derive(Debug)]
pub struct Session {
    /// The poller's word for the client's connection.
    token: u64,
    link: Arc<dyn Link>,
    /// Counts the client for as long as a handler or a hook may be at work for it.
    _permit: Option<Arc<ConnectionPermit>>,
    events: Arc<SessionEvents>,
    /// Calls that have arrived, and the hook of the begin: a call's ordinal is what this was when it did.
    arrived: AtomicU64,
    /// Those of them that are through.
    finished: AtomicU64,
    /// The client is gone.
    gone: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
enum State {
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
    pub(in crate::server) fn new(
        token: u64,
        link: Arc<dyn Link>,
        permit: Option<Arc<ConnectionPermit>>,
        events: Arc<SessionEvents>,
    ) -> Arc<Self> {
        Arc::new(Self {
            token,
            link,
            _permit: permit,
            events,
            arrived: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            gone: AtomicBool::new(false),
            state: Mutex::default(),
        })
    }

    /// The poller's word for the client's connection.
    pub(in crate::server) fn token(&self) -> u64 {
        self.token
    }

    /// Who the client is.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        self.link.peer()
    }

    /// Looks at what belongs to the client. `look` is called with a lock held.
    pub fn value<R>(&self, look: impl FnOnce(&(dyn Any + Send)) -> R) -> Found<R> {
        match &*self.state.lock() {
            State::Nothing => Found::Nothing,
            State::Kept(value) => Found::Kept(look(&**value)),
            State::Over => Found::Over,
        }
    }

    /// Keeps something until the client is gone and its last call is through. Comes back if there is something already.
    ///
    /// # Errors
    /// What was to be kept.
    pub fn keep(&self, value: SessionValue) -> Result<(), SessionValue> {
        let mut state = self.state.lock();
        if !matches!(*state, State::Nothing) {
            return Err(value);
        }
        *state = State::Kept(value);
        Ok(())
    }

    /// The client is connected. Whether it is to be read from at once: not if there is a hook for the begin.
    pub(in crate::server) fn begin(self: &Arc<Self>) -> bool {
        if self.events.hooks.begin {
            self.count_arrival();
            self.events.push(Arc::clone(self), SessionChange::Begin);
        }
        !self.events.hooks.begin
    }

    /// Counts a call that has come. How many had come before it.
    pub(in crate::server) fn count_arrival(&self) -> u64 {
        // Relaxed: as in `arrived`.
        self.arrived.fetch_add(1, Ordering::Relaxed)
    }

    /// Calls that have arrived, and the hook of the session's begin, if there is one.
    pub(in crate::server) fn arrived(&self) -> u64 {
        // Relaxed: frames are taken in one after the other. Nothing arrives once the client is gone, and who has finished a
        // call knows of it.
        self.arrived.load(Ordering::Relaxed)
    }

    /// Calls that have arrived and are not through.
    pub(in crate::server) fn under_way(&self) -> u64 {
        // Relaxed, both: a limit that need not be exact. The finished first: none is through that has not arrived.
        let finished = self.finished.load(Ordering::Relaxed);
        self.arrived().saturating_sub(finished)
    }

    /// A call is through, or the hook of the begin.
    #[inline]
    pub(in crate::server) fn one_finished(self: &Arc<Self>) {
        // SeqCst, both: whoever finishes a call counts it and then looks whether the client is gone; the client's end is noted
        // before the count is looked at. One of the two sees the other.
        let finished = self.finished.fetch_add(1, Ordering::SeqCst) + 1;
        if self.gone.load(Ordering::SeqCst) {
            self.look_whether_over(finished);
        }
    }

    /// The client is gone. Its session ends with its last call: see [`Session::end_if_over`].
    pub(in crate::server) fn note_gone(&self) {
        // SeqCst: see `one_finished`.
        self.gone.store(true, Ordering::SeqCst);
    }

    /// Whether the client is gone.
    pub(in crate::server) fn is_gone(&self) -> bool {
        // SeqCst: whoever sees it finds what was done before. Asked in places where that costs nothing.
        self.gone.load(Ordering::SeqCst)
    }

    /// The client is gone, and its calls are cancelled: if the last one is through, the session ends.
    pub(in crate::server) fn end_if_over(self: &Arc<Self>) {
        // SeqCst: see `one_finished`.
        self.look_whether_over(self.finished.load(Ordering::SeqCst));
    }

    #[cold]
    fn look_whether_over(self: &Arc<Self>, finished: u64) {
        if finished != self.arrived() {
            return;
        }
        let value = match self.end() {
            State::Kept(value) => Some(value),
            State::Nothing if self.events.hooks.end => None,
            State::Nothing | State::Over => return,
        };
        self.events.push(Arc::clone(self), SessionChange::End(value));
    }

    /// Ends it. How it was before.
    fn end(&self) -> State {
        std::mem::replace(&mut *self.state.lock(), State::Over)
    }
}
