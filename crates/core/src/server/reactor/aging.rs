//! The age of connections, and which of them is due. Ages differ by up to a tenth, so that connections that were made
//! together do not end together (gRPC's proposal A9).

use std::cmp::Reverse;
use std::collections::binary_heap::{BinaryHeap, PeekMut};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::time::{Duration, Instant};

use nearcall_platform::descriptors::{self, Alarm};

use crate::server::shared::limits::Age;

/// The connections, by when they are to be looked at next.
pub(super) struct Aging {
    pub(super) age: Age,
    /// Rings when the first of them is due.
    alarm: Alarm,
    due: BinaryHeap<Reverse<(Instant, u64, Step)>>,
    random: RandomState,
}

/// What is done next with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// The client is asked to begin no more calls on it.
    Goodbye,
    /// The last goodbye is sent once no call is under way, and the connection ended once it has arrived, or at this time.
    End(Instant),
}

impl Aging {
    pub(super) fn new(age: Age) -> io::Result<Self> {
        let alarm = descriptors::new_alarm()?;
        Ok(Self { age, alarm, due: BinaryHeap::new(), random: RandomState::new() })
    }

    /// Becomes readable when a connection is due.
    pub(super) fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    /// Adds a connection that is new.
    pub(super) fn add(&mut self, token: u64) {
        let share = self.random.hash_one(token) % 2001;
        self.push(Instant::now() + self.age.limit.mul_f64(0.9 + share as f64 / 10_000.0), token, Step::Goodbye);
    }

    /// The connection is to be looked at once more.
    pub(super) fn push(&mut self, at: Instant, token: u64, step: Step) {
        let is_first = self.due.peek().is_none_or(|Reverse((first, ..))| at < *first);
        self.due.push(Reverse((at, token, step)));
        if is_first {
            self.set_alarm();
        }
    }

    /// Takes a connection that is due, if there is one.
    pub(super) fn take(&mut self, now: Instant) -> Option<(u64, Step)> {
        let first = self.due.peek_mut().filter(|first| first.0.0 <= now)?;
        let Reverse((_, token, step)) = PeekMut::pop(first);
        Some((token, step))
    }

    /// To be called once all that were due are taken.
    pub(super) fn set_alarm(&self) {
        if let Some(Reverse((at, ..))) = self.due.peek() {
            // An alarm that is set to 0 never rings.
            let left = at.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
            descriptors::set_alarm(&self.alarm, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_due_in_order_and_at_different_times() {
        let age = Age { limit: Duration::from_secs(100), grace: Duration::from_secs(1) };
        let mut aging = Aging::new(age).expect("an alarm");
        let now = Instant::now();
        (0..100).for_each(|token| aging.add(token));
        assert_eq!(aging.take(now + Duration::from_secs(89)), None);
        let (early, late) = (now + Duration::from_secs(100), now + Duration::from_secs(111));
        let first: Vec<_> = std::iter::from_fn(|| aging.take(early)).collect();
        assert!((10..90).contains(&first.len()), "{} of 100 are due before their mean", first.len());
        aging.push(late, 7, Step::End(late));
        assert_eq!(std::iter::from_fn(|| aging.take(late)).count(), 101 - first.len());
        assert_eq!(aging.take(late), None);
    }
}
