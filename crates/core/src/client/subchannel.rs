//! A client's way to one server: a connection, and a new one when it is lost.
//!
//! Any number of threads may wait for one dial. One of them dials, a slice at a time; the others sleep, each until its own
//! deadline, and any of them goes on when that one gives up. No lock is held while dialling, nor while a callback runs.

use crate::sync::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use nearcall_platform::lock::{Condvar, Mutex, MutexGuard};
use nearcall_platform::per_process::PerProcess;
use nearcall_transport::{Comeback, ConnectError, Connected, Dial, Options, Url};
use nearcall_wire::Failure;

use super::patience::{COMEBACK, Patience, SLICE};
use super::pauses::vary;
use super::{Adopter, Connection};

/// First pause between two attempts to connect; each next one is longer by [`GROWTH`], up to [`LONGEST`].
const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(3);
/// The same where an attempt costs nobody anything: a server that is back is found at once.
const LONGEST_NEAR: Duration = Duration::from_millis(100);
const GROWTH: f64 = 1.6;

/// A connection that was lost sooner counts as an attempt that failed: its server may go on like that.
const SETTLED: Duration = Duration::from_secs(1);

/// A dial that nobody has cared for so long is given up: the server may have done so, too.
const ABANDONED: Duration = Duration::from_secs(1);

/// Told of the description of each new connection's server, and of the one before it; refuses it with a failure.
pub(super) type Agree = Box<dyn Fn(Option<&str>, &str) -> Result<(), Failure> + Send + Sync>;

/// Makes connections to one server, one at a time.
pub(super) struct Subchannel {
    url: Url,
    options: Options,
    current: ArcSwapOption<Connection>,
    closed: AtomicBool,
    renewal: PerProcess<Renewal>,
    agree: Agree,
    /// Who receives in the place of those who wait, if the server may call.
    adopter: OnceLock<Arc<dyn Adopter>>,
}

/// How far this process is with a new connection.
struct Renewal {
    /// Those who wait are told of every change.
    changed: Condvar,
    state: Mutex<State>,
}

struct State {
    dialling: Dialling,
    /// Dials that have failed.
    failed: u64,
    /// Why the last one did, and when; `None` once there was a connection.
    failure: Option<(Failure, Instant)>,
    /// When there was a connection last.
    connected: Option<Instant>,
    /// When the next one may begin, and how long the pause before it is.
    not_before: Option<Instant>,
    pause: Duration,
}

enum Dialling {
    Not,
    /// Nobody cares for it since then.
    Left(Box<Dial>, Instant),
    /// A thread has taken it.
    Taken,
}

/// Takes a dial back to where others find it, whatever becomes of the thread that had it.
struct DialGuard<'a> {
    renewal: &'a Renewal,
    dial: Option<Box<Dial>>,
}

impl std::fmt::Debug for Subchannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subchannel").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Subchannel {
    /// A way to a server that has not been looked for yet.
    pub(super) fn new(url: Url, options: Options, agree: Agree) -> Self {
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

    /// Whether there may be a server again when the connection is lost.
    pub(super) fn can_come_back(&self) -> bool {
        self.url.comeback() != Comeback::Never
    }

    /// The last connection, usable or not; `None` if there was none yet.
    #[inline]
    pub(super) fn current(&self) -> Option<Arc<Connection>> {
        self.current.load_full()
    }

    /// The connection of the moment, if it is usable.
    #[inline]
    pub(super) fn ready(&self) -> Option<Arc<Connection>> {
        self.current().filter(|connection| connection.is_usable())
    }

    /// Whether there is a usable connection.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.current.load().as_ref().is_some_and(|connection| connection.is_usable())
    }

    /// Why the last dial failed, and when; `None` if none has since there was a connection. And when the next one may begin.
    pub(super) fn failure(&self) -> Option<(Failure, Instant, Instant)> {
        let renewal = self.renewal.get();
        let state = renewal.state.lock();
        let (failure, at) = state.failure.as_ref()?;
        // One that nothing is expected to change is no reason to try for every call.
        let next = state.not_before.filter(|_| may_pass(failure)).unwrap_or(*at + LONGEST);
        Some((failure.clone(), *at, next))
    }

    /// A usable connection, made now if need be. Blocks as long as `patience` says, and until a dial that is under way has
    /// ended, but no longer than `until`: then it is `None`, unless the last dial has failed. Meanwhile `go_on` is asked
    /// every 50 ms, and after a signal, whether to.
    ///
    /// # Errors
    /// The failure that a call ends with.
    pub(super) fn usable(
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
                return Err(Failure::new(Failure::CANCELLED, format!("the connection to {} was closed", self.url)));
            }
            if let Some(connection) = self.ready() {
                return Ok(Some(connection));
            }
            if state.failed != seen {
                next = state.not_before.map(|at| patience.shorten(at));
            }
            let now = Instant::now();
            let pauses = state.not_before.is_some_and(|at| now < at);
            // A failure is news to who waited for that dial, and the answer to who comes in the pause after it.
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

    /// As patient as makes sense: not at all where no server can come, and for a moment in any case where one has just said
    /// goodbye, as its successor may not be there yet.
    fn suited(&self, patience: Patience) -> Patience {
        let Some(last) = self.current() else { return patience };
        match (patience, last.parted()) {
            _ if !self.can_come_back() => Patience::FailFast,
            (Patience::FailFast, Some(parted)) => Patience::Until(Some(parted + COMEBACK)),
            _ => patience,
        }
    }

    /// Goes on with a dial.
    fn advance(&self, mut guard: DialGuard<'_>, end: Instant) {
        let Some(mut dial) = guard.dial.take() else { return };
        let ended = match dial.advance(end) {
            Ok(None) => {
                guard.dial = Some(dial);
                return;
            }
            Ok(Some(connected)) => self.welcome(connected),
            Err(error) => Err(connect_failure(&error)),
        };
        let mut state = guard.renewal.state.lock();
        match ended {
            // Nobody else would end it.
            Ok(connection) if self.is_closed() => {
                drop(state);
                connection.close();
            }
            Ok(connection) => {
                state.failure = None;
                state.note_connected(self.url.comeback());
                let old = self.current.swap(Some(Arc::clone(&connection)));
                drop(state);
                // Once more, now that the connection can be found: who sets the adopter looks for it after that.
                self.adopt(&connection);
                if let Some(old) = old.filter(|old| !old.is_ours()) {
                    // Its locks may have been held by a thread of the parent when we were forked: never touch it again.
                    std::mem::forget(old);
                }
            }
            Err(failure) => {
                if may_pass(&failure) {
                    state.not_before = Some(Instant::now() + vary(state.pause));
                    state.pause = longer(state.pause, self.url.comeback());
                }
                state.failed += 1;
                state.failure = Some((failure, Instant::now()));
            }
        }
    }

    /// Whether a new connection's server still fits.
    fn welcome(&self, connected: Connected) -> Result<Arc<Connection>, Failure> {
        let connection = Connection::new(&self.url, connected);
        let description = connection.description();
        (self.agree)(self.current().as_ref().map(|old| old.description()), description)?;
        // Before anybody can use it, so that a loop finds out how it is woken.
        self.adopt(&connection);
        Ok(connection)
    }

    /// From now on the server may call objects that were given to it: `adopter` receives for this connection and for all later
    /// ones. Never waits.
    pub(super) fn serve_with(&self, adopter: Arc<dyn Adopter>) {
        // Of two who do it one is first, and a channel has one adopter.
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

    /// Ends the connection for good, and a dial with it. Whether all that was accepted was sent.
    pub(super) fn close(&self) -> bool {
        let renewal = self.renewal.get();
        let abandoned = {
            let mut state = renewal.state.lock();
            // Release: who sees it finds no newer connection than we do. Set under the lock, so that nobody stores one later.
            self.closed.store(true, Ordering::Release);
            state.leave()
        };
        drop(abandoned);
        renewal.changed.notify_all();
        self.current().is_none_or(|connection| connection.close())
    }

    /// Whether [`Subchannel::close`] was called. Never waits.
    pub(super) fn is_closed(&self) -> bool {
        // Acquire: after the Release of `close`.
        self.closed.load(Ordering::Acquire)
    }
}

impl Renewal {
    fn new() -> Self {
        let state = State {
            dialling: Dialling::Not,
            failed: 0,
            failure: None,
            connected: None,
            not_before: None,
            pause: SHORTEST,
        };
        Self { changed: Condvar::new(), state: Mutex::new(state) }
    }

    /// Takes the dial that nobody cares for, or a new one.
    fn take(&self, state: &mut MutexGuard<'_, State>, new: impl FnOnce() -> Dial) -> DialGuard<'_> {
        let dial = match std::mem::replace(&mut state.dialling, Dialling::Taken) {
            Dialling::Left(dial, since) if since.elapsed() < ABANDONED => dial,
            _ => Box::new(new()),
        };
        DialGuard { renewal: self, dial: Some(dial) }
    }
}

impl State {
    /// There is a connection. If the one before was lost at once, as this one may be, the pauses between them grow.
    fn note_connected(&mut self, comeback: Comeback) {
        let now = Instant::now();
        let settled = self.connected.is_none_or(|before| now - before >= SETTLED);
        self.pause = if settled { SHORTEST } else { longer(self.pause, comeback) };
        self.not_before = (!settled).then(|| now + vary(self.pause));
        self.connected = Some(now);
    }

    /// Takes out a dial that nobody cares for.
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
            // One of those who wait goes on, if this thread does not.
            self.renewal.changed.notify_one();
        }
    }
}

/// Whether the failure to connect may pass: there is no server now, or it is busy.
#[must_use]
pub fn may_pass(failure: &Failure) -> bool {
    matches!(failure.code, Failure::UNAVAILABLE | Failure::DEADLINE_EXCEEDED)
}

/// The failure of a call for which no connection came about.
pub(super) fn connect_failure(error: &ConnectError) -> Failure {
    let code = match error {
        ConnectError::Unavailable(_) => Failure::UNAVAILABLE,
        ConnectError::Mismatch(_) => Failure::FAILED_PRECONDITION,
        ConnectError::Refused(_) => Failure::PERMISSION_DENIED,
        ConnectError::TimedOut(_) => Failure::DEADLINE_EXCEEDED,
        ConnectError::Untrusted(_) => Failure::UNAUTHENTICATED,
        ConnectError::Options(_) => Failure::INVALID_ARGUMENT,
    };
    Failure::new(code, error.to_string())
}

/// The failure of an earlier attempt, for a call that may not make one of its own yet: what it says may be true no longer.
pub(super) fn remembered(failure: &Failure, at: Instant, next: Option<Instant>) -> Failure {
    let now = Instant::now();
    let left = next.map_or(Duration::ZERO, |next| next.saturating_duration_since(now));
    let (ago, left) = ((now - at).as_secs_f64(), left.as_secs_f64());
    let message =
        format!("{} (last tried {ago:.1} s ago; the next attempt may be made in {left:.1} s)", failure.message);
    Failure { message, ..failure.clone() }
}

fn longer(pause: Duration, comeback: Comeback) -> Duration {
    pause.mul_f64(GROWTH).min(if comeback == Comeback::Far { LONGEST } else { LONGEST_NEAR })
}
