//! A client's way to a server: a connection, and a new one when it is lost.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use nearcall_transport::lock::Mutex;
use nearcall_transport::{ConnectError, Options, Url};
use nearcall_wire::Failure;

use super::Connection;
use crate::AroundWait;

/// First pause between two attempts to connect; each next one is longer by [`GROWTH`], up to [`LONGEST`].
const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(3);
const GROWTH: f64 = 1.6;
/// Pauses vary by a fifth either way, so that the clients of a restarted server do not come all at once.
const JITTER: f64 = 0.2;

/// Less time than this is not worth one more attempt.
const LEAST: Duration = Duration::from_millis(5);

/// Told when a new connection's server describes itself differently; refuses it with a failure.
pub type OnChange = Box<dyn Fn(&str) -> Result<(), Failure> + Send + Sync>;

/// What to do while there is no server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Fail at once; try to connect at most as often as the pauses allow.
    FailFast,
    /// Keep trying until then, or for ever.
    Until(Option<Instant>),
}

/// Makes connections to one server, one at a time.
pub struct Channel {
    url: Url,
    options: Options,
    around_wait: AroundWait,
    current: ArcSwap<Connection>,
    renewal: Mutex<Renewal>,
    on_change: OnChange,
}

struct Renewal {
    closed: bool,
    description: String,
    pause: Duration,
    not_before: Option<Instant>,
    last_failure: Option<Failure>,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Channel {
    /// Connects for the first time. Between two attempts `pause` sleeps for as long as it is told, and says whether to go
    /// on.
    ///
    /// # Errors
    /// [`ConnectError`], with a sentence for the user.
    pub fn open(
        url: &Url,
        options: &Options,
        around_wait: AroundWait,
        patience: Patience,
        pause_for: &mut dyn FnMut(Duration) -> bool,
        on_change: OnChange,
    ) -> Result<Self, ConnectError> {
        let mut pause = SHORTEST;
        let connection = loop {
            match Connection::connect(url, options, Arc::clone(&around_wait)) {
                Ok(connection) => break connection,
                Err(error @ ConnectError::Unavailable(_)) => {
                    let Patience::Until(until) = patience else { return Err(error) };
                    let Some(next) = within(vary(pause), until) else { return Err(error) };
                    if !pause_for(next) {
                        return Err(error);
                    }
                    pause = longer(pause);
                }
                Err(error) => return Err(error),
            }
        };
        let description = connection.welcome().description.clone();
        let renewal = Renewal { closed: false, description, pause: SHORTEST, not_before: None, last_failure: None };
        Ok(Self {
            url: url.clone(),
            options: options.clone(),
            around_wait,
            current: ArcSwap::from_pointee(connection),
            renewal: Mutex::new(renewal),
            on_change,
        })
    }

    /// Where the server is.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The connection of the moment, usable or not.
    #[inline]
    #[must_use]
    pub fn current(&self) -> Arc<Connection> {
        self.current.load_full()
    }

    /// A usable connection, made now if need be. Blocks while connecting, and as long as `patience` says.
    ///
    /// # Errors
    /// The failure that a call ends with.
    pub fn usable(&self, patience: Patience) -> Result<Arc<Connection>, Failure> {
        loop {
            let mut renewal = self.renewal.lock();
            let current = self.current.load_full();
            if renewal.closed {
                return Err(Failure::new(Failure::CANCELLED, format!("this client of {} was closed", self.url)));
            }
            if current.is_usable() {
                return Ok(current);
            }
            let now = Instant::now();
            let wait = renewal.not_before.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
            if wait.is_zero() {
                match self.renew(&mut renewal, current) {
                    Ok(connection) => return Ok(connection),
                    Err(failure) if failure.code != Failure::UNAVAILABLE => return Err(failure),
                    Err(failure) => {
                        renewal.not_before = Some(Instant::now() + vary(renewal.pause));
                        renewal.pause = longer(renewal.pause);
                        renewal.last_failure = Some(failure);
                    }
                }
            }
            let failure = renewal.last_failure.clone();
            let next = renewal.not_before.map_or(SHORTEST, |at| at.saturating_duration_since(Instant::now()));
            drop(renewal);
            let failure = failure.unwrap_or_else(|| Failure::new(Failure::UNAVAILABLE, "there is no server"));
            match patience {
                Patience::FailFast => return Err(failure),
                Patience::Until(until) => std::thread::sleep(within(next, until).ok_or(failure)?),
            }
        }
    }

    fn renew(&self, renewal: &mut Renewal, old: Arc<Connection>) -> Result<Arc<Connection>, Failure> {
        let connection = Connection::connect(&self.url, &self.options, Arc::clone(&self.around_wait))
            .map_err(|error| connect_failure(&error))?;
        let description = &connection.welcome().description;
        if *description != renewal.description {
            (self.on_change)(description)?;
            renewal.description.clone_from(description);
        }
        renewal.pause = SHORTEST;
        renewal.not_before = None;
        renewal.last_failure = None;
        let connection = Arc::new(connection);
        self.current.store(Arc::clone(&connection));
        if !old.is_ours() {
            // Its locks may have been held by a thread of the parent when we were forked: never touch it again.
            std::mem::forget(old);
        }
        Ok(connection)
    }

    /// Ends the connection for good. Whether all that was accepted was sent.
    pub fn close(&self) -> bool {
        self.renewal.lock().closed = true;
        self.current().close()
    }

    /// Whether [`Channel::close`] was called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.renewal.lock().closed
    }
}

/// The failure of a call for which no connection came about.
#[must_use]
pub fn connect_failure(error: &ConnectError) -> Failure {
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

fn longer(pause: Duration) -> Duration {
    pause.mul_f64(GROWTH).min(LONGEST)
}

/// The pause before the next attempt, shorter towards the end of the time there is; `None` when that is over.
fn within(pause: Duration, until: Option<Instant>) -> Option<Duration> {
    let Some(until) = until else { return Some(pause) };
    let left = until.saturating_duration_since(Instant::now());
    (left > LEAST).then(|| pause.min(left / 2))
}

fn vary(pause: Duration) -> Duration {
    // Every RandomState is seeded anew: a small random number without a dependency.
    let random = RandomState::new().hash_one(0) as f64 / u64::MAX as f64;
    pause.mul_f64(1.0 - JITTER + 2.0 * JITTER * random)
}
