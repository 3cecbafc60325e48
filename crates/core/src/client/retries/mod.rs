//! Which calls are sent once more, when, and how often: the rules of gRPC's proposal A6, for every transport.
//!
//! A call that no server has begun may always be sent again. A call that a server may have begun is sent again only if
//! its method is idempotent. A policy is of a method. A budget, of a channel, bounds what is sent again for that reason,
//! so that servers that fail under load do not get more load.

pub(in crate::client) mod replay;

use std::sync::Arc;
use std::time::Duration;

use nearcall_wire::Metadata;

use crate::sync::{AtomicU32, Ordering};
use crate::vary::vary;

/// How often a call that no server has begun is sent at most, and a lost call without a retry policy.
const ATTEMPTS: u32 = 3;
/// The pause before a call is sent again to a server that has refused it; the next pause is four times as long. A
/// server counts a call a moment longer than its client.
const REFUSED_PAUSE: Duration = Duration::from_millis(5);
/// Pauses vary by a fifth either way.
pub(in crate::client) const JITTER: f64 = 0.2;
/// Tokens are counted in thousandths.
const TOKEN: u32 = 1000;

/// A user's rules for sending failed calls of idempotent methods again.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryPolicy {
    /// How often a call is sent at the most.
    pub attempts: u32,
    /// The pause before it is sent the second time.
    pub initial_backoff: Duration,
    /// The longest pause.
    pub max_backoff: Duration,
    /// By how much each pause is longer than the one before.
    pub multiplier: f64,
    /// The statuses after which it is sent again.
    pub codes: Vec<u8>,
}

/// What bounds the calls that a channel sends again while servers fail.
#[derive(Debug)]
pub struct Budget {
    max: u32,
    ratio: u32,
    tokens: AtomicU32,
}

/// A policy, and the budget that it draws on, if there is one.
#[derive(Debug, Clone)]
pub struct Retries {
    policy: RetryPolicy,
    budget: Option<Arc<Budget>>,
}

/// Why a call may have to be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) enum Cause {
    /// No server has begun with it; the server that was asked is gone, or will be.
    NeverSent,
    /// No server has begun with it; the server that was asked has refused it.
    Refused,
    /// Its connection was lost.
    Lost,
    /// A server has answered with this status.
    Answered(u8),
}

/// When a server wants a failed call to be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushback {
    /// After this time.
    After(Duration),
    /// Not at all.
    Never,
}

/// How often a call was sent, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::client) struct Tally {
    /// Times that no server had begun the call; they do not count as attempts of a policy.
    unbegun: u32,
    /// Times that a server may have begun with it and failed: it was lost or answered with a failure. What
    /// `grpc-previous-rpc-attempts` says.
    pub(in crate::client) failed: u32,
    /// Pauses since the last one that the server has chosen.
    pauses: u32,
}

impl Pushback {
    /// Metadata in which a server says after how many milliseconds to send a failed call again, or not to send it
    /// again.
    pub const KEY: &str = "grpc-retry-pushback-ms";

    /// What a server says in the metadata of a failure.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Option<Self> {
        metadata.pairs().iter().find(|(key, _)| key == Self::KEY).map(|(_, value)| Self::read(value))
    }

    /// Reads the value of the metadata: anything but a number of milliseconds means never, as gRPC wants it.
    #[must_use]
    pub fn read(value: &[u8]) -> Self {
        let millis = std::str::from_utf8(value).ok().and_then(|text| text.trim().parse::<u32>().ok());
        millis.map_or(Self::Never, |millis| Self::After(Duration::from_millis(millis.into())))
    }
}

impl Budget {
    /// A full budget of `max_tokens`. A failure takes one, and a success brings `token_ratio` back; with half of them or
    /// fewer, nothing is sent again.
    #[must_use]
    pub fn new(max_tokens: f64, token_ratio: f64) -> Self {
        let thousandths = |tokens: f64| (tokens * f64::from(TOKEN)) as u32;
        let max = thousandths(max_tokens);
        Self { max, ratio: thousandths(token_ratio), tokens: AtomicU32::new(max) }
    }

    /// A call has succeeded.
    #[inline]
    pub fn succeeded(&self) {
        // Relaxed, here and below: no other memory depends on the number.
        if self.tokens.load(Ordering::Relaxed) < self.max {
            let _ = self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |tokens| {
                Some(tokens.saturating_add(self.ratio).min(self.max))
            });
        }
    }

    /// A call has failed in a way that its policy covers: takes a token. Returns whether calls may be sent again.
    pub fn failed(&self) -> bool {
        let before =
            self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |tokens| Some(tokens.saturating_sub(TOKEN)));
        before.map_or(0, |before| before.saturating_sub(TOKEN)) > self.max / 2
    }

    /// Whether calls may be sent again.
    #[must_use]
    pub fn allows(&self) -> bool {
        self.tokens.load(Ordering::Relaxed) > self.max / 2
    }
}

impl Retries {
    /// A policy that draws on a budget, or on none.
    #[must_use]
    pub fn new(policy: RetryPolicy, budget: Option<Arc<Budget>>) -> Self {
        Self { policy, budget }
    }

    /// A call has succeeded.
    #[inline]
    pub fn succeeded(&self) {
        if let Some(budget) = &self.budget {
            budget.succeeded();
        }
    }

    fn is_for(&self, cause: Cause) -> bool {
        match cause {
            Cause::Answered(code) => self.policy.codes.contains(&code),
            Cause::Lost | Cause::NeverSent | Cause::Refused => true,
        }
    }

    fn pause(&self, pauses: u32) -> Duration {
        let longest = self.policy.max_backoff.as_secs_f64();
        let pause = self.policy.initial_backoff.as_secs_f64() * self.policy.multiplier.powi(pauses.min(1000) as i32);
        vary(Duration::from_secs_f64(pause.min(longest)), JITTER)
    }
}

impl Tally {
    /// How long to wait before the call is sent again; `None` if it must not be.
    pub(in crate::client) fn again(
        &mut self,
        retries: Option<&Retries>,
        cause: Cause,
        idempotent: bool,
        pushback: Option<Pushback>,
    ) -> Option<Duration> {
        if matches!(cause, Cause::NeverSent | Cause::Refused) {
            self.unbegun += 1;
            if self.unbegun < ATTEMPTS {
                let pause = REFUSED_PAUSE * 4u32.pow(self.unbegun - 1);
                return Some(if cause == Cause::Refused { pause } else { Duration::ZERO });
            }
        }
        let Some(retries) = retries else {
            self.failed += 1;
            return (cause == Cause::Lost && idempotent && self.failed < ATTEMPTS).then_some(Duration::ZERO);
        };
        let is_failure = retries.is_for(cause) || pushback == Some(Pushback::Never);
        let allowed = is_failure && retries.budget.as_ref().is_none_or(|budget| budget.failed());
        self.failed += 1;
        let safe = idempotent || !matches!(cause, Cause::Lost | Cause::Answered(_));
        if !allowed || !safe || !retries.is_for(cause) || self.failed >= retries.policy.attempts {
            return None;
        }
        match pushback {
            Some(Pushback::Never) => None,
            Some(Pushback::After(pause)) => {
                self.pauses = 0;
                Some(pause)
            }
            None => {
                let pause = retries.pause(self.pauses);
                self.pauses += 1;
                Some(pause)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nearcall_wire::Failure;

    use super::*;

    fn policy() -> RetryPolicy {
        RetryPolicy {
            attempts: 4,
            initial_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_millis(300),
            multiplier: 2.0,
            codes: vec![Failure::UNAVAILABLE],
        }
    }

    fn retries() -> Retries {
        Retries::new(policy(), Some(Arc::new(Budget::new(10.0, 0.1))))
    }

    fn tokens_of(retries: &Retries) -> u32 {
        retries.budget.as_ref().map_or(0, |budget| budget.tokens.load(Ordering::Relaxed))
    }

    const DOWN: Cause = Cause::Answered(Failure::UNAVAILABLE);

    fn about(pause: Option<Duration>, millis: u64) -> bool {
        pause.is_some_and(|pause| {
            let (pause, millis) = (pause.as_secs_f64() * 1000.0, millis as f64);
            (millis * 0.799..=millis * 1.201).contains(&pause)
        })
    }

    #[test]
    fn pauses_grow_up_to_the_longest_and_attempts_end() {
        let retries = retries();
        let mut tally = Tally::default();
        for millis in [100, 200, 300] {
            let pause = tally.again(Some(&retries), DOWN, true, None);
            assert!(about(pause, millis), "{pause:?} for {millis}");
        }
        assert_eq!(tally.again(Some(&retries), DOWN, true, None), None);
        assert_eq!(tally.failed, 4);
    }

    #[test]
    fn what_may_have_begun_is_repeated_only_if_it_is_idempotent() {
        let retries = retries();
        for cause in [DOWN, Cause::Lost] {
            assert_eq!(Tally::default().again(Some(&retries), cause, false, None), None);
            assert!(Tally::default().again(Some(&retries), cause, true, None).is_some());
            assert_eq!(Tally::default().again(None, cause, false, None), None);
        }
        // Without a policy only what was lost is.
        assert_eq!(Tally::default().again(None, DOWN, true, None), None);
        let mut tally = Tally::default();
        let lost: Vec<_> = (0..3).map(|_| tally.again(None, Cause::Lost, true, None)).collect();
        assert_eq!(lost, [Some(Duration::ZERO), Some(Duration::ZERO), None]);
    }

    #[test]
    fn what_no_server_has_begun_costs_no_attempt_and_no_token() {
        for cause in [Cause::NeverSent, Cause::Refused] {
            let retries = retries();
            let mut tally = Tally::default();
            for _ in 1..ATTEMPTS {
                assert!(tally.again(None, cause, false, None).is_some());
            }
            assert_eq!(tally.again(None, cause, false, None), None);
            let mut tally = Tally::default();
            for _ in 1..ATTEMPTS {
                assert!(tally.again(Some(&retries), cause, false, None).is_some());
            }
            assert_eq!((tally.failed, tokens_of(&retries)), (0, 10 * TOKEN));
            // From then on the policy counts, and its pauses.
            assert!(about(tally.again(Some(&retries), cause, false, None), 100));
        }
    }

    #[test]
    fn other_statuses_and_a_server_that_says_so_end_the_call() {
        let retries = retries();
        let other = Cause::Answered(Failure::INTERNAL);
        assert_eq!(Tally::default().again(Some(&retries), other, true, None), None);
        assert_eq!(tokens_of(&retries), 10 * TOKEN, "it is no failure of the policy's");
        for said in ["-1", "soon", ""] {
            let never = Pushback::read(said.as_bytes());
            assert_eq!(Tally::default().again(Some(&retries), DOWN, true, Some(never)), None, "{said}");
        }
        // What a server says is no reason to repeat what its status says nothing of.
        assert_eq!(Tally::default().again(Some(&retries), other, true, Some(Pushback::read(b"5"))), None);
    }

    #[test]
    fn a_server_chooses_the_pause_and_the_next_is_the_first_again() {
        let retries = retries();
        let mut tally = Tally::default();
        assert!(about(tally.again(Some(&retries), DOWN, true, None), 100));
        let told = Some(Pushback::read(b"1234"));
        assert_eq!(tally.again(Some(&retries), DOWN, true, told), Some(Duration::from_millis(1234)));
        assert!(about(tally.again(Some(&retries), DOWN, true, None), 100));
    }

    /// The budget against a model in thousandths, over many outcomes in an order that looks random and is always the same.
    #[test]
    fn the_budget_is_what_the_model_says() {
        for (max, ratio) in [(10.0, 0.1), (1.0, 1.0), (3.5, 0.25), (1000.0, 0.001)] {
            let retries = Retries::new(policy(), Some(Arc::new(Budget::new(max, ratio))));
            let (max, ratio) = ((max * 1000.0) as i64, (ratio * 1000.0) as i64);
            let (mut tokens, mut seed) = (max, 7_u64);
            let mut repeated = 0;
            for step in 0..20_000_u64 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if seed >> 61 < 3 + (step / 5000) % 4 {
                    retries.succeeded();
                    tokens = (tokens + ratio).min(max);
                } else {
                    tokens = (tokens - 1000).max(0);
                    let again = Tally::default().again(Some(&retries), DOWN, true, None);
                    assert_eq!(again.is_some(), tokens > max / 2, "step {step}, {tokens} of {max}");
                    repeated += i32::from(again.is_some());
                }
                assert_eq!(i64::from(tokens_of(&retries)), tokens);
            }
            assert!(repeated > 0 || max == 1000, "it was exercised");
        }
    }

    /// However servers fail, what is sent is bounded: by the budget at first, then by what succeeds.
    #[test]
    fn servers_that_fail_get_hardly_more_calls() {
        let retries = retries();
        let mut sent = 0;
        for _ in 0..1000 {
            let mut tally = Tally::default();
            sent += 1;
            while tally.again(Some(&retries), DOWN, true, None).is_some() {
                sent += 1;
            }
        }
        assert_eq!(sent, 1000 + 3);
    }

    #[test]
    fn threads_lose_no_token() {
        let budget = Budget::new(1000.0, 0.1);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..100).for_each(|_| _ = budget.failed()));
            }
        });
        assert_eq!(budget.tokens.load(Ordering::Relaxed), 600 * TOKEN);
    }

    #[test]
    fn policies_draw_on_one_budget_or_on_none() {
        let budget = Arc::new(Budget::new(4.0, 1.0));
        let (one, other) = (Retries::new(policy(), Some(Arc::clone(&budget))), Retries::new(policy(), Some(budget)));
        let again = |retries: &Retries| Tally::default().again(Some(retries), DOWN, true, None).is_some();
        assert!(again(&one));
        assert!(!again(&other), "the first has spent half of it");
        one.succeeded();
        assert!(!again(&other));
        let free = Retries::new(policy(), None);
        assert!((0..100).all(|_| again(&free)));
    }
}
