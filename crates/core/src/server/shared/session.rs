//! A client's session: a value that belongs to the client, and hooks for the begin and the end of the session. Workers
//! run the hooks, as they run calls.
//!
//! If there is a hook for the begin, the server reads nothing from a new client until that hook has returned: only this
//! client's calls wait. The hook for the end runs after the client's last call. Without hooks, sessions cost nothing.

use std::any::Any;
use std::sync::Arc;

use nearcall_platform::lock::Mutex;
use nearcall_transport::{ConnectionPermit, Peer};

use crate::exports::{Object, OnRelease};
use crate::server::shared::mailbox::{Mailbox, News, Running};
use crate::sync::{AtomicU64, Ordering};

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

/// What a worker is to run a hook for.
#[derive(Debug)]
pub enum Hook {
    /// A session begins or has ended.
    Session(Arc<Session>, SessionChange),
    /// The clients hold this object no longer: its owner is to be told.
    Release(Object),
}

/// The begin or the end of a session.
#[derive(Debug)]
pub enum SessionChange {
    /// Before the first call.
    Begin,
    /// After the last call, with the value that belonged to the client.
    End(Option<SessionValue>),
}

/// A hook that a worker runs. Dropped when the hook has returned, or never runs.
#[derive(Debug)]
pub struct HookRun {
    hook: Option<Hook>,
    /// The session that begins.
    begins: Option<Arc<Session>>,
    running: Running<Hook>,
}

impl OnRelease for Mailbox<Hook> {
    fn released(&self, object: Object) {
        self.leave_hook(Hook::Release(object));
    }
}

impl HookRun {
    pub(in crate::server) fn new(hook: Hook, running: Running<Hook>) -> Self {
        let begins = if let Hook::Session(it, SessionChange::Begin) = &hook { Some(Arc::clone(it)) } else { None };
        Self { hook: Some(hook), begins, running }
    }

    /// Takes the hook out. Call this once, before it runs.
    pub fn begin(&mut self) -> Option<Hook> {
        self.hook.take()
    }

    /// The token of the connection of the client whose session begins or ends, or 0.
    pub(in crate::server) fn client(&self) -> u64 {
        if let Some(Hook::Session(session, _)) = &self.hook { session.token } else { 0 }
    }

    /// The server ends. Ends of sessions and released objects are kept for the thread that stops the server; no session
    /// begins any more.
    pub(in crate::server) fn give_up(mut self) {
        if self.begins.is_none()
            && let Some(hook) = self.hook.take()
        {
            self.running.0.leave_hook(hook);
        }
    }
}

impl Drop for HookRun {
    fn drop(&mut self) {
        let Some(session) = &self.begins else { return };
        if self.hook.is_some() {
            // A session that never began does not end.
            drop(session.end());
        }
        self.running.0.tell(session.token, News::Admitted);
        session.one_finished();
    }
}

/// A bit beside the number of finished calls: the client is gone.
const GONE: u64 = 1 << 63;

/// One client's session.
#[derive(Debug)]
pub struct Session {
    /// The poller's token for the client's connection.
    pub(in crate::server) token: u64,
    /// Who the client is.
    peer: Arc<Peer>,
    /// Counts the client as connected for as long as a handler or a hook may run for it.
    _permit: Option<Arc<ConnectionPermit>>,
    hooks: SessionHooks,
    mailbox: Arc<Mailbox<Hook>>,
    /// How many calls have arrived; the hook of the begin counts as one. A call's ordinal is this number when the call
    /// arrived.
    arrived: AtomicU64,
    /// How many of them are over, and [`GONE`] once the client is gone.
    finished: AtomicU64,
    value: Mutex<Found<SessionValue>>,
}

/// The value that belongs to a client, or what a look at it has found.
#[derive(Debug, Default)]
pub enum Found<R> {
    /// No value belongs to the client yet.
    #[default]
    Nothing,
    /// There is one.
    Value(R),
    /// The client is gone, and its last call is over.
    Over,
}

impl Session {
    pub(in crate::server) fn new(
        token: u64,
        peer: Peer,
        permit: Option<Arc<ConnectionPermit>>,
        hooks: SessionHooks,
        mailbox: Arc<Mailbox<Hook>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            token,
            peer: Arc::new(peer),
            _permit: permit,
            hooks,
            mailbox,
            arrived: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            value: Mutex::default(),
        })
    }

    /// Who the client is.
    #[must_use]
    pub fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// Calls `look` with the value that belongs to the client, with a lock held.
    pub fn value<R>(&self, look: impl FnOnce(&(dyn Any + Send)) -> R) -> Found<R> {
        match &*self.value.lock() {
            Found::Nothing => Found::Nothing,
            Found::Value(value) => Found::Value(look(&**value)),
            Found::Over => Found::Over,
        }
    }

    /// Keeps a value until the client is gone and its last call is over.
    ///
    /// # Errors
    /// The same value, if the session has one already or is over.
    pub fn keep(&self, value: SessionValue) -> Result<(), SessionValue> {
        let mut kept = self.value.lock();
        if !matches!(*kept, Found::Nothing) {
            return Err(value);
        }
        *kept = Found::Value(value);
        Ok(())
    }

    /// The client is connected. Whether the server may read from it at once: not if there is a hook for the begin.
    pub(in crate::server) fn begin(self: &Arc<Self>) -> bool {
        if self.hooks.begin {
            self.count_arrival();
            self.leave_hook(SessionChange::Begin);
        }
        !self.hooks.begin
    }

    fn leave_hook(self: &Arc<Self>, change: SessionChange) {
        self.mailbox.leave_hook(Hook::Session(Arc::clone(self), change));
    }

    /// Counts a call that has arrived. Returns how many had arrived before it.
    pub(in crate::server) fn count_arrival(&self) -> u64 {
        // Relaxed, both: only the receiving thread counts, one thread at a time.
        let before = self.arrived.load(Ordering::Relaxed);
        self.arrived.store(before + 1, Ordering::Relaxed);
        before
    }

    /// How many calls have arrived; the hook of the session's begin, if there is one, counts as one.
    pub(in crate::server) fn arrived(&self) -> u64 {
        // Relaxed: only the receiving thread counts arrivals. No call arrives once the client is gone, and the thread
        // that has finished a call knows that it arrived.
        self.arrived.load(Ordering::Relaxed)
    }

    fn finished(&self) -> u64 {
        // Relaxed: for numbers that are shown, and for limits that need not be exact.
        self.finished.load(Ordering::Relaxed) & !GONE
    }

    /// How many calls have arrived, and how many of them are over, the hook of the begin aside.
    pub(in crate::server) fn counts(&self) -> (u64, u64) {
        // Read first, `finished` is at most `arrived`.
        let finished = self.finished();
        let hook = u64::from(self.hooks.begin);
        (self.arrived().saturating_sub(hook), finished.saturating_sub(hook))
    }

    /// How many calls have arrived and are not over.
    pub(in crate::server) fn under_way(&self) -> u64 {
        // Read first, `finished` is at most `arrived`.
        let finished = self.finished();
        self.arrived().saturating_sub(finished)
    }

    /// A call is over, or the hook of the begin has returned.
    #[inline]
    pub(in crate::server) fn one_finished(self: &Arc<Self>) {
        // AcqRel: whoever counts the last call of a client that is gone sees what the calls before it have done.
        let finished = self.finished.fetch_add(1, Ordering::AcqRel) + 1;
        if finished & GONE != 0 {
            self.look_whether_over(finished);
        }
    }

    /// The client is gone. The session ends with the client's last call: see [`Session::end_if_over`].
    pub(in crate::server) fn note_gone(&self) {
        // AcqRel: as in `one_finished`.
        self.finished.fetch_or(GONE, Ordering::AcqRel);
    }

    /// Whether the client is gone.
    pub(in crate::server) fn is_gone(&self) -> bool {
        // Acquire: a thread that sees the mark also sees what was done before.
        self.finished.load(Ordering::Acquire) & GONE != 0
    }

    /// The client is gone, and its calls are cancelled. If the last call is over, the session ends.
    pub(in crate::server) fn end_if_over(self: &Arc<Self>) {
        // Acquire: as in `one_finished`.
        self.look_whether_over(self.finished.load(Ordering::Acquire));
    }

    #[cold]
    fn look_whether_over(self: &Arc<Self>, finished: u64) {
        if finished & !GONE != self.arrived() {
            return;
        }
        let value = match self.end() {
            Found::Value(value) => Some(value),
            Found::Nothing if self.hooks.end => None,
            Found::Nothing | Found::Over => return,
        };
        self.leave_hook(SessionChange::End(value));
    }

    /// Ends the session. Returns the value that belonged to the client.
    fn end(&self) -> Found<SessionValue> {
        std::mem::replace(&mut *self.value.lock(), Found::Over)
    }
}
