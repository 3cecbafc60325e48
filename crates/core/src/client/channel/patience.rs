//! How long a call looks for a server, and the callback that may refuse a server with another description.

use std::time::{Duration, Instant};

use nearcall_wire::Failure;

/// How long a call waits for the successor of a server that sent GOAWAY, and a call that may be repeated for any
/// server.
pub const REPLACEMENT_WAIT: Duration = Duration::from_secs(1);
/// Less time than this is not worth one more attempt.
const MIN_ATTEMPT: Duration = Duration::from_millis(5);
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
    /// That of a call until its deadline, on a channel that `waits` for servers or not. If the call is `hopeful`, it waits
    /// for the successor of a server: for [`REPLACEMENT_WAIT`] at most.
    #[must_use]
    pub fn of_call(waits: bool, hopeful: bool, until: Option<Instant>) -> Self {
        let soon = (!waits).then(|| Instant::now() + REPLACEMENT_WAIT);
        if waits || hopeful { Self::Until(until.into_iter().chain(soon).min()) } else { Self::FailFast }
    }

    /// The time left; `None` if it has no end.
    fn left(self) -> Option<Duration> {
        match self {
            Self::FailFast => Some(Duration::ZERO),
            Self::Until(until) => until.map(|until| until.saturating_duration_since(Instant::now())),
        }
    }

    pub(in crate::client) fn has_ended(self) -> bool {
        self.left().is_some_and(|left| left <= MIN_ATTEMPT)
    }

    /// When to try again: at `at`, or sooner if little time is left.
    pub(in crate::client) fn shorten(self, at: Instant) -> Instant {
        self.left().map_or(at, |left| at.min(Instant::now() + left / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_waits_for_a_server_as_long_as_it_may_and_has_reason_to() {
        let until = Some(Instant::now() + Duration::from_secs(60));
        assert_eq!(Patience::of_call(false, false, until), Patience::FailFast);
        assert!(matches!(Patience::of_call(false, true, until), Patience::Until(Some(soon)) if Some(soon) < until));
        assert!(matches!(Patience::of_call(false, true, None), Patience::Until(Some(_))));
        for hopeful in [false, true] {
            assert_eq!(Patience::of_call(true, hopeful, until), Patience::Until(until));
            assert_eq!(Patience::of_call(true, hopeful, None), Patience::Until(None));
        }
    }
}
