//! A client's connection to one server, replaced by a new one when it is lost.
//!
//! Any number of threads may wait for one dial. One of them dials, a slice at a time; the others sleep, each until its
//! own deadline. When the dialling thread gives up, any other one continues the dial. No lock is held while dialling,
//! nor while a callback runs.

use crate::sync::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwapOption, Guard};
use nearcall_platform::lock::{Condvar, Mutex, MutexGuard};
use nearcall_platform::per_process::PerProcess;
use nearcall_transport::{ConnectError, Connected, Dial, Options, Reconnect, Url};
use nearcall_wire::Failure;

use crate::client::channel::patience::{Patience, REPLACEMENT_WAIT, SLICE};
use crate::client::connection::closed;
use crate::client::retries::JITTER;
use crate::client::{Adopter, Connection};
use crate::vary::vary;

/// First pause between two attempts to connect; each next one is longer by [`GROWTH`], up to [`LONGEST`].
const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(3);
/// The longest pause where an attempt costs nothing, so that a server that is back is found at once.
const LONGEST_NEAR: Duration = Duration::from_millis(100);
const GROWTH: f64 = 1.6;

/// A connection that was lost sooner than this counts as a failed attempt: its server may go on like that.
const SETTLED: Duration = Duration::from_secs(1);

/// A dial that no thread has continued for this time is given up: the server may have given it up, too.
const ABANDONED: Duration = Duration::from_secs(1);

/// Called with the description of the server before, if any, and that of a new connection's server; an error refuses
/// it.
pub(in crate::client) type Agree = Box<dyn Fn(Option<&str>, &str) -> Result<(), Failure> + Send + Sync>;

/// Makes connections to one server, one at a time.
pub(in crate::client) struct Subchannel {
    url: Url,
    options: Options,
    current: ArcSwapOption<Connection>,
    closed: AtomicBool,
    renewal: PerProcess<Renewal>,
    agree: Agree,
    /// The server of this process that receives in place of waiting callers, if the server may call this client.
    adopter: OnceLock<Arc<dyn Adopter>>,
}

/// The state of this process's attempts to connect.
struct Renewal {
    /// Notified of every change; callers that wait for a connection sleep on it.
    changed: Condvar,
    state: Mutex<DialState>,
}

#[derive(Default)]
struct DialState {
    dialling: Dialling,
    /// How many dials have failed.
    failed: u64,
    /// Why the last dial failed, and when; `None` if there was a connection since.
    failure: Option<(Failure, Instant)>,
    /// When a connection was last made.
    connected: Option<Instant>,
    /// When the next dial may begin, and the pause before it.
    not_before: Option<Instant>,
    pause: Duration,
}

#[derive(Default)]
enum Dialling {
    #[default]
    Not,
    /// No thread has continued the dial since then.
    Left(Box<Dial>, Instant),
    /// A thread is dialling.
    Taken,
}

/// Puts an unfinished dial back when it is dropped, so that another thread finds it, however this thread leaves.
struct DialGuard<'a> {
    renewal: &'a Renewal,
    dial: Option<Box<Dial>>,
}

impl Subchannel {
    /// A subchannel that has not connected yet.
    pub(in crate::client) fn new(url: Url, options: Options, agree: Agree) -> Self {
        Self {
            url,
            options,
            current: ArcSwapOption::empty(),
            closed: AtomicBool::new(false),
            renewal: PerProcess::new(Renewal::new),
            agree,
            adopter: OnceLock::new(),
        }
    }

    /// Whether a server can come back after the connection is lost.
    pub(in crate::client) fn can_come_back(&self) -> bool {
        self.url.reconnect() != Reconnect::Never
    }

    /// The last connection, usable or not; `None` if there was none yet.
    #[inline]
    pub(in crate::client) fn current(&self) -> Option<Arc<Connection>> {
        self.current.load_full()
    }

    /// The current connection, if it is usable.
    #[inline]
    pub(in crate::client) fn ready(&self) -> Option<Arc<Connection>> {
        self.current().filter(|connection| connection.is_usable())
    }

    /// The same, without a share in its ownership.
    #[inline]
    pub(in crate::client) fn peek(&self) -> Option<Guard<Option<Arc<Connection>>>> {
        Some(self.current.load()).filter(|current| current.as_ref().is_some_and(|connection| connection.is_usable()))
    }

    /// Whether there is a usable connection.
    #[inline]
    pub(in crate::client) fn is_ready(&self) -> bool {
        self.peek().is_some()
    }

    /// Why the last dial failed, when, and when the next one may begin. `None` if no dial has failed since the last
    /// connection.
    pub(in crate::client) fn failure(&self) -> Option<(Failure, Instant, Instant)> {
        let renewal = self.renewal.get();
        let state = renewal.state.lock();
        let (failure, at) = state.failure.as_ref()?;
        // A failure that will hardly pass must not cause a dial for every call.
        let next = state.not_before.filter(|_| may_pass(failure)).unwrap_or(*at + LONGEST);
        Some((failure.clone(), *at, next))
    }

    /// A usable connection, dialled now if there is none. Blocks as long as `patience` says, and until a dial that is
    /// under way has ended, but no longer than `until`: then the result is `None`, unless the last dial has failed.
    /// While it blocks, it asks `go_on` whether to go on, every 50 ms and after a signal.
    ///
    /// # Errors
    /// The failure that a call ends with.
    pub(in crate::client) fn usable(
        &self,
        patience: Patience,
        until: Option<Instant>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Arc<Connection>>, Failure> {
        let patience = self.suited(patience);
        let renewal = self.renewal.get();
        let mut state = renewal.state.lock();
        let mut seen = state.failed;
        let mut next = state.not_before.map(|at| patience.shorten(at));
        loop {
            if self.is_closed() {
                let left = state.leave();
                drop(state);
                drop(left);
                return Err(closed(&self.url));
            }
            if let Some(connection) = self.ready() {
                return Ok(Some(connection));
            }
            if state.failed != seen {
                next = state.not_before.map(|at| patience.shorten(at));
            }
            let now = Instant::now();
            let pauses = state.not_before.is_some_and(|at| now < at);
            // A failure is the answer to a caller that waited for that dial, and to a caller that comes in the pause
            // after it.
            let failure = state.failure.as_ref().filter(|_| pauses || state.failed != seen);
            let failure = failure.map(|(failure, at)| (failure, *at, state.not_before));
            let over = until.is_some_and(|until| now >= until);
            match failure {
                Some((failure, at, next)) if over || patience.has_ended() || !may_pass(failure) => {
                    return Err(if state.failed == seen && self.can_come_back() {
                        remembered(failure, at, next)
                    } else {
                        failure.clone()
                    });
                }
                None if over => return Ok(None),
                _ => seen = state.failed,
            }
            let end = until.map_or(now + SLICE, |until| until.min(now + SLICE));
            let pause = next.filter(|&next| pauses && now < next).map(|next| next.min(end));
            if pause.is_some() || matches!(state.dialling, Dialling::Taken) {
                renewal.changed.wait_for(&mut state, pause.unwrap_or(end).saturating_duration_since(now));
                drop(state);
            } else {
                let guard = renewal.take(&mut state, || Dial::new(&self.url, crate::VERSION, &self.options));
                drop(state);
                self.advance(guard, end);
            }
            if self.ready().is_none() && !go_on() {
                return Err(Failure::new(Failure::CANCELLED, "interrupted while connecting"));
            }
            state = renewal.state.lock();
        }
    }

    /// The failure with which a call of such patience ends at once, because the pause after a failed dial is not over.
    /// Never waits for anything but the lock.
    pub(in crate::client) fn pausing(&self, patience: Patience) -> Option<Failure> {
        if self.is_closed() || self.is_ready() || !self.suited(patience).has_ended() {
            return None;
        }
        let renewal = self.renewal.get();
        let state = renewal.state.lock();
        let next = state.not_before.filter(|&at| Instant::now() < at)?;
        let (failure, at) = state.failure.as_ref()?;
        Some(if self.can_come_back() { remembered(failure, *at, Some(next)) } else { failure.clone() })
    }

    /// Adjusts the patience: none where no server can come back, and at least a moment after a server's GOAWAY, as its
    /// successor may not be there yet.
    fn suited(&self, patience: Patience) -> Patience {
        let Some(last) = self.current() else { return patience };
        match (patience, last.parted()) {
            _ if !self.can_come_back() => Patience::FailFast,
            (Patience::FailFast, Some(parted)) => Patience::Until(Some(parted + REPLACEMENT_WAIT)),
            _ => patience,
        }
    }

    /// Continues a dial until `end`.
    fn advance(&self, mut guard: DialGuard<'_>, end: Instant) {
        let Some(mut dial) = guard.dial.take() else { return };
        let ended = match dial.advance(end) {
            Ok(None) => {
                guard.dial = Some(dial);
                return;
            }
            Ok(Some(connected)) => self.welcome(connected),
            Err(error) => Err(connect_failure(&error, self.options.handshake)),
        };
        let mut state = guard.renewal.state.lock();
        match ended {
            // Closed meanwhile: nobody else would end this connection.
            Ok(connection) if self.is_closed() => {
                drop(state);
                connection.close(None);
            }
            Ok(connection) => {
                state.failure = None;
                state.note_connected(self.url.reconnect());
                let old = self.current.swap(Some(Arc::clone(&connection)));
                drop(state);
                // Again, now that the connection can be found: `serve_with` looks for it after it has set the adopter.
                self.adopt(&connection);
                if let Some(old) = old.filter(|old| old.inner().is_none()) {
                    // Its locks may have been held by a thread of the parent when we were forked: never touch it again.
                    std::mem::forget(old);
                }
            }
            Err(failure) => {
                if may_pass(&failure) {
                    state.not_before = Some(Instant::now() + vary(state.pause, JITTER));
                    state.pause = longer(state.pause, self.url.reconnect());
                }
                state.failed += 1;
                state.failure = Some((failure, Instant::now()));
            }
        }
    }

    /// Makes the connection, if the server's description is accepted.
    fn welcome(&self, connected: Connected) -> Result<Arc<Connection>, Failure> {
        let connection = Connection::new(&self.url, connected);
        let description = connection.description();
        (self.agree)(self.current().as_ref().map(|old| old.description()), description)?;
        // Before anybody can use the connection, so that an event loop finds out how it is woken.
        self.adopt(&connection);
        Ok(connection)
    }

    /// From now on the server may call objects that were given to it: `adopter` receives for this connection and for all later
    /// ones. Never waits.
    pub(in crate::client) fn serve_with(&self, adopter: Arc<dyn Adopter>) {
        // The first adopter stays: a channel has one.
        if self.adopter.set(adopter).is_ok()
            && let Some(connection) = self.current()
        {
            self.adopt(&connection);
        }
    }

    fn adopt(&self, connection: &Arc<Connection>) {
        if let Some(adopter) = self.adopter.get() {
            Arc::clone(adopter).adopt(connection);
        }
    }

    /// Ends the connection and a dial for good; calls under way fail with `CANCELLED`, or with `failure`. Returns whether
    /// everything accepted was sent.
    pub(in crate::client) fn close(&self, failure: Option<&Failure>) -> bool {
        let renewal = self.renewal.get();
        let abandoned = {
            let mut state = renewal.state.lock();
            // Release: a thread that sees the flag finds no newer connection than `close` does. Set under the lock, so
            // that nobody stores a connection later.
            self.closed.store(true, Ordering::Release);
            state.leave()
        };
        drop(abandoned);
        renewal.changed.notify_all();
        self.current().is_none_or(|connection| connection.close(failure))
    }

    /// Whether [`Subchannel::close`] was called. Never waits.
    pub(in crate::client) fn is_closed(&self) -> bool {
        // Acquire: after the Release of `close`.
        self.closed.load(Ordering::Acquire)
    }
}

impl Renewal {
    fn new() -> Self {
        let state = DialState { pause: SHORTEST, ..DialState::default() };
        Self { changed: Condvar::new(), state: Mutex::new(state) }
    }

    /// Takes the dial that a thread has left, or a new one.
    fn take(&self, state: &mut MutexGuard<'_, DialState>, new: impl FnOnce() -> Dial) -> DialGuard<'_> {
        let dial = match std::mem::replace(&mut state.dialling, Dialling::Taken) {
            Dialling::Left(dial, since) if since.elapsed() < ABANDONED => dial,
            _ => Box::new(new()),
        };
        DialGuard { renewal: self, dial: Some(dial) }
    }
}

impl DialState {
    /// Notes a new connection. If the one before was lost at once, as this one may be, the pauses between them grow.
    fn note_connected(&mut self, reconnect: Reconnect) {
        let now = Instant::now();
        let settled = self.connected.is_none_or(|before| now - before >= SETTLED);
        self.pause = if settled { SHORTEST } else { longer(self.pause, reconnect) };
        self.not_before = (!settled).then(|| now + vary(self.pause, JITTER));
        self.connected = Some(now);
    }

    /// Takes out a dial that no thread continues.
    fn leave(&mut self) -> Option<Dialling> {
        matches!(self.dialling, Dialling::Left(..)).then(|| std::mem::replace(&mut self.dialling, Dialling::Not))
    }
}

impl Drop for DialGuard<'_> {
    fn drop(&mut self) {
        let left = self.dial.take().map_or(Dialling::Not, |dial| Dialling::Left(dial, Instant::now()));
        let has_ended = matches!(left, Dialling::Not);
        self.renewal.state.lock().dialling = left;
        if has_ended {
            self.renewal.changed.notify_all();
        } else {
            // A waiting thread continues the dial, if this one does not.
            self.renewal.changed.notify_one();
        }
    }
}

/// Whether the failure to connect may pass: there is no server now, or it is busy.
#[must_use]
pub fn may_pass(failure: &Failure) -> bool {
    matches!(failure.code, Failure::UNAVAILABLE | Failure::DEADLINE_EXCEEDED)
}

/// The failure of a call for which no connection came about within `time`.
pub(in crate::client) fn connect_failure(error: &ConnectError, time: Duration) -> Failure {
    let code = match error {
        ConnectError::Unavailable(_) | ConnectError::Left(_) => Failure::UNAVAILABLE,
        ConnectError::Mismatch(_) => Failure::FAILED_PRECONDITION,
        ConnectError::Refused(_) => Failure::PERMISSION_DENIED,
        ConnectError::TimedOut(_) => Failure::DEADLINE_EXCEEDED,
        ConnectError::Untrusted(_) => Failure::UNAUTHENTICATED,
        ConnectError::Options(_) => Failure::INVALID_ARGUMENT,
    };
    let option = match error {
        ConnectError::TimedOut(_) => format!(" (handshake_timeout: {} s)", time.as_secs_f64()),
        _ => String::new(),
    };
    Failure::new(code, format!("{error}{option}"))
}

/// The failure of an earlier attempt, for a call that may not dial yet. Says how old it is: it may no longer be true.
pub(in crate::client) fn remembered(failure: &Failure, at: Instant, next: Option<Instant>) -> Failure {
    let now = Instant::now();
    let left = next.map_or(Duration::ZERO, |next| next.saturating_duration_since(now));
    let (ago, left) = ((now - at).as_secs_f64(), left.as_secs_f64());
    let message =
        format!("{} (last tried {ago:.1} s ago; the next attempt may be made in {left:.1} s)", failure.message);
    Failure { message, ..failure.clone() }
}

fn longer(pause: Duration, reconnect: Reconnect) -> Duration {
    pause.mul_f64(GROWTH).min(if reconnect == Reconnect::Costly { LONGEST } else { LONGEST_NEAR })
}
