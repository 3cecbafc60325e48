//! How long to look for a server, and who is asked whether one will do.

use std::time::{Duration, Instant};

use nearcall_wire::Failure;

/// How long the successor of a server that said goodbye is waited for, or any server by a call that may be repeated.
pub const COMEBACK: Duration = Duration::from_secs(1);
/// Less time than this is not worth one more attempt.
const LEAST: Duration = Duration::from_millis(5);
/// Who waits asks so often whether to go on.
pub(super) const SLICE: Duration = Duration::from_millis(50);

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

impl Patience {
    /// What is left of it; `None` if that is for ever.
    fn left(self) -> Option<Duration> {
        match self {
            Self::FailFast => Some(Duration::ZERO),
            Self::Until(until) => until.map(|until| until.saturating_duration_since(Instant::now())),
        }
    }

    pub(super) fn has_ended(self) -> bool {
        self.left().is_some_and(|left| left <= LEAST)
    }

    /// When to try again, sooner towards the end of the time there is.
    pub(super) fn shorten(self, at: Instant) -> Instant {
        self.left().map_or(at, |left| at.min(Instant::now() + left / 2))
    }
}
