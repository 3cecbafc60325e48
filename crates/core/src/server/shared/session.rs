//! A client's session: a value that belongs to the client, and hooks for the begin and the end of the session. Workers
//! run the hooks, as they run calls.
//!
//! If there is a hook for the begin, the server reads nothing from a new client until that hook has returned: only this
//! client's calls wait. The hook for the end runs after the client's last call. Without hooks, sessions cost nothing.

use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use nearcall_platform::descriptors;
use nearcall_platform::lock::Mutex;
use nearcall_transport::{ConnectionPermit, Peer};

/// The value that belongs to one client. Only the code that has put it there knows its type.
pub type SessionValue = Box<dyn Any + Send>;

/// The changes of a session for which there are hooks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SessionHooks {
    /// The begin, before the client's first call.
    pub begin: bool,
    /// The end, after the client's last call, also for a client without a value.
    pub end: bool,
}

/// The begin or end of a session, until its hook has returned. Dropped then.
#[derive(Debug)]
pub struct SessionEvent {
    session: Arc<Session>,
    change: SessionChange,
    begun: bool,
}

/// The begin or the end of a session.
#[derive(Debug)]
pub enum SessionChange {
    /// Before the first call.
    Begin,
    /// After the last call, with the value that belonged to the client.
    End(Option<SessionValue>),
}

/// The begins and ends of sessions whose hooks have not returned.
#[derive(Debug)]
pub(in crate::server) struct SessionEvents {
    hooks: SessionHooks,
    /// Events that the receiving thread is to hand out.
    waiting: Mutex<Vec<SessionEvent>>,
    /// The tokens of clients that the server may read from now.
    admitted: Mutex<Vec<u64>>,
    /// How many events wait, or have a hook that runs.
    pending: AtomicUsize,
    /// Wakes the receiving thread.
    wake: Arc<OwnedFd>,
}

impl SessionEvents {
    pub(in crate::server) fn new(hooks: SessionHooks, wake: Arc<OwnedFd>) -> Self {
        Self { hooks, waiting: Mutex::default(), admitted: Mutex::default(), pending: AtomicUsize::new(0), wake }
    }

    fn push(&self, session: Arc<Session>, change: SessionChange) {
        // Release: a thread that stops the server and finds no event pending sees that the calls before it are over.
        self.pending.fetch_add(1, Ordering::Release);
        self.keep(SessionEvent { session, change, begun: false });
        descriptors::signal(&self.wake);
    }

    /// Keeps an event for the next `take` or `take_one`.
    fn keep(&self, event: SessionEvent) {
        self.waiting.lock().push(event);
    }

    /// Takes the events that no thread has taken yet.
    pub(in crate::server) fn take(&self) -> Vec<SessionEvent> {
        std::mem::take(&mut *self.waiting.lock())
    }

    /// Takes the first of these events.
    pub(in crate::server) fn take_one(&self) -> Option<SessionEvent> {
        let mut waiting = self.waiting.lock();
        if waiting.is_empty() { None } else { Some(waiting.remove(0)) }
    }

    /// Takes the tokens of clients that the server may read from now.
    pub(in crate::server) fn take_admitted(&self) -> Vec<u64> {
        std::mem::take(&mut *self.admitted.lock())
    }

    /// How many events wait, or have a hook that runs.
    pub(in crate::server) fn pending(&self) -> usize {
        // Acquire: as in `push`.
        self.pending.load(Ordering::Acquire)
    }
}

impl SessionEvent {
    /// The session that begins or ends.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Takes the change out, with the session's value. Call this once, before the hook runs.
    pub fn begin(&mut self) -> SessionChange {
        self.begun = true;
        match &mut self.change {
            SessionChange::Begin => SessionChange::Begin,
            SessionChange::End(value) => SessionChange::End(value.take()),
        }
    }

    /// The server ends. The end of a session is kept for the thread that stops the server; no session begins any more.
    pub(in crate::server) fn give_up(self) {
        if matches!(self.change, SessionChange::End(_)) {
            let events = Arc::clone(&self.session.events);
            events.keep(self);
        }
    }
}

/// The hook has returned, or never runs.
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
    /// The poller's token for the client's connection.
    token: u64,
    /// Who the client is.
    peer: Arc<Peer>,
    /// Counts the client as connected for as long as a handler or a hook may run for it.
    _permit: Option<Arc<ConnectionPermit>>,
    events: Arc<SessionEvents>,
    /// How many calls have arrived; the hook of the begin counts as one. A call's ordinal is this number when the call
    /// arrived.
    arrived: AtomicU64,
    /// How many of them are over.
    finished: AtomicU64,
    /// The client is gone.
    gone: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
enum State {
    /// No value belongs to the client yet.
    #[default]
    Nothing,
    Kept(SessionValue),
    /// The client is gone, and its last call is over.
    Over,
}

/// What [`Session::value`] found.
#[derive(Debug)]
pub enum Found<R> {
    /// No value yet.
    Nothing,
    /// What `look` returned for the value.
    Kept(R),
    /// The value is gone: the client is gone, and its last call is over.
    Over,
}

impl Session {
    pub(in crate::server) fn new(
        token: u64,
        peer: Peer,
        permit: Option<Arc<ConnectionPermit>>,
        events: Arc<SessionEvents>,
    ) -> Arc<Self> {
        Arc::new(Self {
            token,
            peer: Arc::new(peer),
            _permit: permit,
            events,
            arrived: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            gone: AtomicBool::new(false),
            state: Mutex::default(),
        })
    }

    /// The poller's token for the client's connection.
    pub(in crate::server) fn token(&self) -> u64 {
        self.token
    }

    /// Who the client is.
    #[must_use]
    pub fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// Calls `look` with the value that belongs to the client, with a lock held.
    pub fn value<R>(&self, look: impl FnOnce(&(dyn Any + Send)) -> R) -> Found<R> {
        match &*self.state.lock() {
            State::Nothing => Found::Nothing,
            State::Kept(value) => Found::Kept(look(&**value)),
            State::Over => Found::Over,
        }
    }

    /// Keeps a value until the client is gone and its last call is over.
    ///
    /// # Errors
    /// The same value, if the session has one already or is over.
    pub fn keep(&self, value: SessionValue) -> Result<(), SessionValue> {
        let mut state = self.state.lock();
        if !matches!(*state, State::Nothing) {
            return Err(value);
        }
        *state = State::Kept(value);
        Ok(())
    }

    /// The client is connected. Whether the server may read from it at once: not if there is a hook for the begin.
    pub(in crate::server) fn begin(self: &Arc<Self>) -> bool {
        if self.events.hooks.begin {
            self.count_arrival();
            self.events.push(Arc::clone(self), SessionChange::Begin);
        }
        !self.events.hooks.begin
    }

    /// Counts a call that has arrived. Returns how many had arrived before it.
    pub(in crate::server) fn count_arrival(&self) -> u64 {
        // Relaxed: as in `arrived`.
        self.arrived.fetch_add(1, Ordering::Relaxed)
    }

    /// How many calls have arrived; the hook of the session's begin, if there is one, counts as one.
    pub(in crate::server) fn arrived(&self) -> u64 {
        // Relaxed: only the receiving thread counts arrivals. No call arrives once the client is gone, and the thread
        // that has finished a call knows that it arrived.
        self.arrived.load(Ordering::Relaxed)
    }

    /// How many calls have arrived, and how many of them are over, the hook of the begin aside.
    pub(in crate::server) fn counts(&self) -> (u64, u64) {
        // Relaxed, both: they are shown. Read first, `finished` is at most `arrived`.
        let finished = self.finished.load(Ordering::Relaxed);
        let hook = u64::from(self.events.hooks.begin);
        (self.arrived().saturating_sub(hook), finished.saturating_sub(hook))
    }

    /// How many calls have arrived and are not over.
    pub(in crate::server) fn under_way(&self) -> u64 {
        // Relaxed, both: a limit that need not be exact. Read first, `finished` is at most `arrived`.
        let finished = self.finished.load(Ordering::Relaxed);
        self.arrived().saturating_sub(finished)
    }

    /// A call is over, or the hook of the begin has returned.
    #[inline]
    pub(in crate::server) fn one_finished(self: &Arc<Self>) {
        // SeqCst, both: this thread counts the finished call, and then looks at `gone`. The thread that notes the
        // client's end sets `gone`, and then looks at the count. At least one of the two sees what the other has
        // written.
        let finished = self.finished.fetch_add(1, Ordering::SeqCst) + 1;
        if self.gone.load(Ordering::SeqCst) {
            self.look_whether_over(finished);
        }
    }

    /// The client is gone. The session ends with the client's last call: see [`Session::end_if_over`].
    pub(in crate::server) fn note_gone(&self) {
        // SeqCst: see `one_finished`.
        self.gone.store(true, Ordering::SeqCst);
    }

    /// Whether the client is gone.
    pub(in crate::server) fn is_gone(&self) -> bool {
        // SeqCst: a thread that sees the flag also sees what was done before. It costs nothing where this is asked.
        self.gone.load(Ordering::SeqCst)
    }

    /// The client is gone, and its calls are cancelled. If the last call is over, the session ends.
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

    /// Ends the session. Returns its state before.
    fn end(&self) -> State {
        std::mem::replace(&mut *self.state.lock(), State::Over)
    }
}
