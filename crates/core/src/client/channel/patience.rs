//! How long a call looks for a server, and the callback that may refuse a server with another description.

use std::time::{Duration, Instant};

use nearcall_wire::Failure;

/// How long a call waits for the successor of a server that sent GOAWAY, and a call that may be repeated for any
/// server.
pub const COMEBACK: Duration = Duration::from_secs(1);
/// Less time than this is not worth one more attempt.
const LEAST: Duration = Duration::from_millis(5);
/// How often a waiting caller is asked whether to go on.
pub(in crate::client) const SLICE: Duration = Duration::from_millis(50);

/// Called when a new connection's server has another description than the one before; an error refuses the server.
pub type OnChange = Box<dyn Fn(&str) -> Result<(), Failure> + Send + Sync>;

/// What to do while there is no server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Fail at once; try to connect at most as often as the pauses allow.
    FailFast,
    /// Keep trying until then, or for ever.
    Until(Option<Instant>),
}

impl Patience {
    /// The time left; `None` if it has no end.
    fn left(self) -> Option<Duration> {
        match self {
            Self::FailFast => Some(Duration::ZERO),
            Self::Until(until) => until.map(|until| until.saturating_duration_since(Instant::now())),
        }
    }

    pub(in crate::client) fn has_ended(self) -> bool {
        self.left().is_some_and(|left| left <= LEAST)
    }

    /// When to try again: at `at`, or sooner if little time is left.
    pub(in crate::client) fn shorten(self, at: Instant) -> Instant {
        self.left().map_or(at, |left| at.min(Instant::now() + left / 2))
    }
}
