//! Connections have an age that they may reach. Then the client is asked to make another one, and this one ends after its
//! calls: clients behind a name or a load balancer find servers that were added meanwhile.
//!
//! The rules are those of gRPC (proposal A9): a goodbye, then time for the calls under way, then the end; and the ages of
//! connections differ by up to a tenth, so that those that were made together do not end together.

use std::cmp::Reverse;
use std::collections::binary_heap::{BinaryHeap, PeekMut};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_platform::descriptors::{self, Alarm};
use nearcall_transport::{Body, LinkError, Outgoing};
use nearcall_wire::Kind;

use super::Reactor;
use crate::server::inbound::Inbound;
use crate::server::limits::Age;
use crate::server::request::Request;
use crate::sync::Ordering;

/// How often a connection whose client was sent a goodbye is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// The connections, by when they are to be looked at next.
pub(super) struct Aging {
    age: Age,
    /// Rings when the first of them is due.
    alarm: Alarm,
    due: BinaryHeap<Reverse<(Instant, u64, Step)>>,
    random: RandomState,
}

/// What is done next with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
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

    /// Becomes readable when [`Reactor::see_to_old`] is to be called.
    pub(super) fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    /// Adds a connection that is new.
    pub(super) fn add(&mut self, token: u64) {
        let share = self.random.hash_one(token) % 2001;
        self.push(Instant::now() + self.age.limit.mul_f64(0.9 + share as f64 / 10_000.0), token, Step::Goodbye);
    }

    fn push(&mut self, at: Instant, token: u64, step: Step) {
        let is_first = self.due.peek().is_none_or(|Reverse((first, ..))| at < *first);
        self.due.push(Reverse((at, token, step)));
        if is_first {
            self.set_alarm();
        }
    }

    /// Takes a connection that is due, if there is one.
    fn take(&mut self, now: Instant) -> Option<(u64, Step)> {
        let first = self.due.peek_mut().filter(|first| first.0.0 <= now)?;
        let Reverse((_, token, step)) = PeekMut::pop(first);
        Some((token, step))
    }

    fn set_alarm(&self) {
        if let Some(Reverse((at, ..))) = self.due.peek() {
            // An alarm that is set to 0 never rings.
            let left = at.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
            descriptors::set_alarm(&self.alarm, left);
        }
    }
}

impl Reactor {
    /// The alarm has rung: does what is due for connections that have reached their age.
    pub(super) fn see_to_old(&mut self) {
        let Some(aging) = &mut self.aging else { return };
        descriptors::clear(&aging.alarm);
        let (now, grace) = (Instant::now(), aging.age.grace);
        while let Some((token, step)) = self.aging.as_mut().and_then(|aging| aging.take(now)) {
            let Some(client) = self.connections.get(&token).cloned() else { continue };
            let until = match step {
                Step::Goodbye => {
                    say_goodbye(&client, 0);
                    now + grace
                }
                Step::End(until) => until,
            };
            if step != Step::Goodbye && (now >= until || has_parted(&client)) {
                self.unlist(&client);
                self.drop_client(&client, &LinkError::Closed);
            } else if let Some(aging) = &mut self.aging {
                aging.push(until.min(now + LOOK), token, Step::End(until));
            }
        }
        if let Some(aging) = &self.aging {
            aging.set_alarm();
        }
    }
}

/// Asks the client for another connection. With [`Outgoing::LAST`], calls that are not answered were not begun.
fn say_goodbye(client: &Inbound<Request>, flags: u8) {
    let connection = &client.connection;
    let goodbye = Outgoing { flags, ..Outgoing::new(Kind::GoAway, Body::Whole(&[])) };
    // If the client is gone, the next read from it finds that.
    connection.shared.contain(|| _ = connection.send(0, &goodbye));
}

/// Goes on with the parting from a client. Whether the connection may end: no call is under way or will be, and the client
/// has all that was sent to it.
fn has_parted(client: &Arc<Inbound<Request>>) -> bool {
    let connection = &client.connection;
    // On a link that takes last calls this also ends the client's time for them, once it has passed.
    let delivered = connection.link.has_delivered();
    if connection.session().under_way() > 0 || connection.link.queued() > 0 {
        return false;
    }
    if connection.link.takes_last_calls() {
        return delivered;
    }
    // Only the thread that holds the reactor begins calls. Relaxed: only that thread reads the flag.
    if !connection.parted.swap(true, Ordering::Relaxed) {
        say_goodbye(client, Outgoing::LAST);
    }
    // The client hangs up when it has read that. Then its last one-way calls have been taken in.
    false
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
