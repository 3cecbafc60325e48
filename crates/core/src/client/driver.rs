//! What to do next with a call, through all its attempts. Nothing here sends, waits or sleeps: whoever drives a call, a
//! thread, a task of an event loop, or nobody who would wait for a reply, says what has happened and does what is said here.

use std::time::{Duration, Instant};

use nearcall_transport::Incoming;
use nearcall_wire::{Failure, Kind, Metadata};

use crate::client::Connection;
use crate::client::retries::{Cause, Pushback, Retries, Tally};

/// Metadata key: how often a call has failed before, when it is sent once more.
const PREVIOUS_ATTEMPTS: &str = "grpc-previous-rpc-attempts";

/// What holds for all calls of a method over a channel.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    /// The user's policy, if there is one.
    pub retries: Option<&'a Retries>,
    /// The method may run twice for one call.
    pub idempotent: bool,
    /// A call may go over another connection than the one it was made on.
    pub may_move: bool,
}

/// How far one call has come.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallDriver {
    until: Option<Instant>,
    tally: Tally,
}

/// What to do with a call for which something has come.
#[derive(Debug)]
pub enum NextStep {
    /// Take what has come: it is the reply.
    Take,
    /// Wait for what comes behind it.
    Wait,
    /// Send the call once more.
    Again(Box<Again>),
    /// End the call with what has come.
    Fail,
}

/// How to send a call once more: pause, find a connection, send.
#[derive(Debug, PartialEq)]
pub struct Again {
    /// What the last attempt has failed with.
    pub failure: Failure,
    /// The metadata that came with the failure.
    pub trailing: Option<Metadata>,
    /// How long to wait first. The deadline is later.
    pub pause: Duration,
    /// Whether another server is to be waited for. A server that died without sending GOAWAY is no reason to hope for a
    /// successor, except for an idempotent method.
    pub hopeful: bool,
    /// If no server comes, `failure` says more than that.
    pub says_more: bool,
}

impl CallDriver {
    /// A call that was not sent yet, with its deadline.
    #[inline]
    #[must_use]
    pub fn new(until: Option<Instant>) -> Self {
        Self { until, tally: Tally::default() }
    }

    /// The call's deadline.
    #[inline]
    #[must_use]
    pub fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Whether no attempt at the call has failed.
    #[inline]
    #[must_use]
    pub fn is_as_new(&self) -> bool {
        self.tally.failed == 0
    }

    /// The call's metadata, with the number of its failed attempts if there are any.
    #[must_use]
    pub fn metadata(&self, own: Option<Metadata>) -> Option<Metadata> {
        if self.is_as_new() {
            return own;
        }
        let mut metadata = own.unwrap_or_default();
        metadata.push(PREVIOUS_ATTEMPTS, self.tally.failed.to_string().as_bytes());
        Some(metadata)
    }

    /// The call could not be sent over that connection.
    ///
    /// # Errors
    /// The failure that the call ends with: the connection can be used, or the call is not sent again.
    #[cold]
    pub fn unsent(&mut self, rules: &Rules<'_>, over: &Connection, failure: Failure) -> Result<Box<Again>, Failure> {
        if !rules.may_move || !is_gone(over, &failure) {
            return Err(failure);
        }
        match self.pause(rules, Cause::NeverSent, None) {
            Some(pause) => Ok(Box::new(Again::after(pause, rules, over, Cause::NeverSent, failure, None))),
            None => Err(failure),
        }
    }

    /// Something has come for the call from that connection.
    #[inline]
    pub fn came(&mut self, rules: &Rules<'_>, over: &Connection, event: &Incoming) -> NextStep {
        if event.head.kind == Kind::Reply {
            if let Some(retries) = rules.retries {
                retries.succeeded();
            }
            return NextStep::Take;
        }
        self.came_else(rules, over, event)
    }

    #[cold]
    fn came_else(&mut self, rules: &Rules<'_>, over: &Connection, event: &Incoming) -> NextStep {
        match event.head.kind {
            Kind::Head => return NextStep::Wait,
            Kind::Error if rules.may_move => {}
            _ => return NextStep::Fail,
        }
        let failure = event.failure().unwrap_or_else(Failure::from);
        let gone = is_gone(over, &failure);
        let cause = if event.is_unbegun() {
            if gone { Cause::NeverSent } else { Cause::Refused }
        } else if event.is_lost() || (gone && over.is_dead()) {
            Cause::Lost
        } else {
            Cause::Answered(failure.code)
        };
        let trailing = event.head.metadata();
        match self.pause(rules, cause, trailing.and_then(Pushback::of)) {
            Some(pause) => {
                NextStep::Again(Box::new(Again::after(pause, rules, over, cause, failure, trailing.cloned())))
            }
            None => NextStep::Fail,
        }
    }

    /// The pause before the next attempt; `None` if there is none. What has happened to a call says more than that its
    /// deadline would pass during a pause.
    fn pause(&mut self, rules: &Rules<'_>, cause: Cause, pushback: Option<Pushback>) -> Option<Duration> {
        let pause = self.tally.again(rules.retries, cause, rules.idempotent, pushback)?;
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        (pause.is_zero() || left.is_none_or(|left| pause < left)).then_some(pause)
    }
}

impl Again {
    fn after(
        pause: Duration,
        rules: &Rules<'_>,
        over: &Connection,
        cause: Cause,
        failure: Failure,
        trailing: Option<Metadata>,
    ) -> Self {
        // A server that has answered is still there: there is no other one to wait for.
        let hopeful = !matches!(cause, Cause::Answered(_)) && (over.is_going_away() || rules.idempotent);
        Self { failure, trailing, pause, hopeful, says_more: rules.idempotent }
    }
}

/// Whether what a call has failed with is that its connection cannot be used any more.
fn is_gone(over: &Connection, failure: &Failure) -> bool {
    !over.is_usable() && failure.code == Failure::UNAVAILABLE
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, OnceLock};

    use nearcall_wire::{FrameHead, flags};

    use super::*;
    use crate::chosen_link::Chosen;
    use crate::client::RetryPolicy;
    use crate::exports::Exports;

    const RULES: Rules<'_> = Rules { retries: None, idempotent: false, may_move: true };
    const IDEMPOTENT: Rules<'_> = Rules { idempotent: true, ..RULES };

    /// What becomes of a connection.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Fate {
        Stands,
        GoesAway,
        Dies,
    }

    fn connection(fate: Fate) -> Arc<Connection> {
        let link = Chosen::new([Incoming::new(FrameHead::new(Kind::GoAway, 0), &[])].into());
        let connection = Connection::of(link as _, None, "here".to_owned(), 0, Exports::new(), OnceLock::new());
        match fate {
            Fate::Stands => {}
            Fate::GoesAway => connection.look(),
            Fate::Dies => _ = connection.close(Some(&unavailable())),
        }
        connection
    }

    fn unavailable() -> Failure {
        Failure::new(Failure::UNAVAILABLE, "gone")
    }

    fn end(code: u8, flags: u8) -> Incoming {
        let mut end = Incoming::local(1, &Failure::new(code, "so it ended"));
        end.head.flags = flags;
        end
    }

    fn again(rules: &Rules<'_>, fate: Fate, event: &Incoming) -> Option<Again> {
        match CallDriver::default().came(rules, &connection(fate), event) {
            NextStep::Again(again) => Some(*again),
            NextStep::Fail => None,
            other => panic!("{other:?} for the end of a call"),
        }
    }

    #[test]
    fn a_reply_is_taken_and_metadata_is_waited_behind() {
        let (mut driver, here) = (CallDriver::default(), connection(Fate::Stands));
        let mut came = |kind| driver.came(&RULES, &here, &Incoming::new(FrameHead::new(kind, 1), &[]));
        assert!(matches!(came(Kind::Head), NextStep::Wait));
        assert!(matches!(came(Kind::Reply), NextStep::Take));
        assert!(matches!(came(Kind::Item), NextStep::Fail), "no such thing can come");
    }

    /// Everything that can end an attempt, with whether the call is sent again, and whether a successor is waited for.
    #[test]
    fn what_was_not_begun_is_sent_again_and_what_may_have_run_only_if_it_may_run_twice() {
        let answered = end(Failure::UNAVAILABLE, 0);
        let refused = end(Failure::UNAVAILABLE, flags::UNBEGUN);
        let hopeful = |rules: &Rules<'_>, fate, event| again(rules, fate, event).map(|again| again.hopeful);
        for (fate, event, plain, idempotent) in [
            (Fate::Stands, &answered, None, None),
            (Fate::Stands, &refused, Some(false), Some(true)),
            (Fate::GoesAway, &answered, None, None),
            (Fate::GoesAway, &refused, Some(true), Some(true)),
            (Fate::Dies, &answered, None, Some(true)),
            (Fate::Dies, &refused, Some(false), Some(true)),
        ] {
            assert_eq!(hopeful(&RULES, fate, event), plain, "{fate:?} {event:?}");
            assert_eq!(hopeful(&IDEMPOTENT, fate, event), idempotent, "{fate:?} {event:?}");
            let stays = Rules { may_move: false, ..IDEMPOTENT };
            assert_eq!(hopeful(&stays, fate, event), None, "an object is nowhere else");
        }
    }

    #[test]
    fn what_cannot_be_sent_goes_elsewhere_only_if_its_connection_is_gone() {
        let unsent = |rules: &Rules<'_>, fate, code| {
            let failure = Failure::new(code, "not sent");
            CallDriver::default().unsent(rules, &connection(fate), failure).is_ok()
        };
        assert!(unsent(&RULES, Fate::Dies, Failure::UNAVAILABLE));
        assert!(unsent(&RULES, Fate::GoesAway, Failure::UNAVAILABLE));
        assert!(!unsent(&RULES, Fate::Stands, Failure::UNAVAILABLE));
        assert!(!unsent(&RULES, Fate::Dies, Failure::RESOURCE_EXHAUSTED));
        assert!(!unsent(&Rules { may_move: false, ..RULES }, Fate::Dies, Failure::UNAVAILABLE));
    }

    #[test]
    fn attempts_end_and_what_happened_last_is_told() {
        let (mut driver, gone) = (CallDriver::default(), connection(Fate::Dies));
        let mut sent = 1;
        while let Ok(again) = driver.unsent(&RULES, &gone, unavailable()) {
            assert_eq!((again.pause, again.says_more), (Duration::ZERO, false));
            sent += 1;
        }
        assert_eq!(sent, 3);
        let mut driver = CallDriver::default();
        assert_eq!(driver.metadata(None), None);
        let lost = end(Failure::UNAVAILABLE, 0);
        for failed in 1..3 {
            let NextStep::Again(again) = driver.came(&IDEMPOTENT, &gone, &lost) else { panic!("attempt {failed}") };
            assert!(again.says_more && again.failure.message == "so it ended");
            let said = driver.metadata(None).expect("it has failed");
            assert_eq!(said.pairs(), [(PREVIOUS_ATTEMPTS.to_owned(), failed.to_string().into_bytes())]);
        }
        assert!(matches!(driver.came(&IDEMPOTENT, &gone, &lost), NextStep::Fail));
    }

    #[test]
    fn a_pause_beyond_the_deadline_ends_the_call_at_once() {
        let policy = RetryPolicy {
            attempts: 3,
            initial_backoff: Duration::from_secs(3600),
            max_backoff: Duration::from_secs(3600),
            multiplier: 1.0,
            codes: vec![Failure::UNAVAILABLE],
        };
        let retries = Retries::new(policy, None);
        let rules = Rules { retries: Some(&retries), ..IDEMPOTENT };
        let (here, answered) = (connection(Fate::Stands), end(Failure::UNAVAILABLE, 0));
        let until = |seconds| Some(Instant::now() + Duration::from_secs(seconds));
        assert!(matches!(CallDriver::new(until(60)).came(&rules, &here, &answered), NextStep::Fail));
        assert!(matches!(CallDriver::new(until(86_400)).came(&rules, &here, &answered), NextStep::Again(_)));
        assert!(matches!(CallDriver::default().came(&rules, &here, &answered), NextStep::Again(_)));
    }
}
