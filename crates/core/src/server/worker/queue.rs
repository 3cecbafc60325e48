//! Work that waits for a worker.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::server::work::Work;

/// Work that waits for a worker, because as many handlers run as may.
#[derive(Debug, Default)]
pub(in crate::server) struct Queue {
    turns: Turns<Work>,
    /// Since when the first has waited: nothing was taken out since.
    since: Option<Instant>,
    /// When the operator was last told.
    told: Option<Instant>,
}

impl Queue {
    pub(super) fn push(&mut self, work: Work) {
        if self.len() == 0 {
            self.since = Some(Instant::now());
        }
        self.turns.push(work.client(), work.is_stream(), work);
    }

    /// Puts a stream back that was the first.
    pub(super) fn push_first(&mut self, stream: Work) {
        self.turns.push_first(stream.client(), stream);
    }

    /// What has its turn; a stream only if there is a place for one.
    pub(super) fn pop(&mut self, may_stream: bool) -> Option<Work> {
        let work = self.turns.pop(may_stream)?;
        self.since = Some(Instant::now());
        Some(work)
    }

    pub(super) fn len(&self) -> usize {
        self.turns.len
    }

    /// Those that wait for a place among the streams.
    pub(super) fn streams(&self) -> usize {
        self.turns.streams
    }

    pub(in crate::server) fn clear(&mut self) {
        while let Some(work) = self.turns.pop(true) {
            work.give_up();
        }
    }

    /// How many have waited in vain for so long that the operator is to be told, which is counted as done.
    pub(super) fn stuck(&mut self) -> Option<usize> {
        let is_over = |since: Option<Instant>, time| since.is_none_or(|since| since.elapsed() >= time);
        if self.len() == 0 || !is_over(self.since, STUCK) || !is_over(self.told, TOLD_AGAIN) {
            return None;
        }
        self.told = Some(Instant::now());
        Some(self.len())
    }
}

/// How long calls wait for a worker, with none coming free, before the operator is told.
pub(super) const STUCK: Duration = Duration::from_secs(1);
/// How long after that he is told again.
const TOLD_AGAIN: Duration = Duration::from_secs(60);

/// Things that wait: of each client what came first, and one client after the other. So a client that has sent a thousand
/// calls keeps the next one waiting for one of them, and not for all.
#[derive(Debug)]
struct Turns<T> {
    clients: HashMap<u64, Waiting<T>>,
    /// The clients of whom something waits: who is next is the first.
    order: VecDeque<u64>,
    arrived: u64,
    len: usize,
    /// Streams among them.
    streams: usize,
}

/// What waits of one client, each with its number in the order of arrival.
#[derive(Debug)]
struct Waiting<T> {
    /// Apart, because streams may have to wait although others need not.
    streams: VecDeque<(u64, T)>,
    others: VecDeque<(u64, T)>,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self { clients: HashMap::new(), order: VecDeque::new(), arrived: 0, len: 0, streams: 0 }
    }
}

impl<T> Turns<T> {
    fn push(&mut self, client: u64, is_stream: bool, one: T) {
        self.arrived += 1;
        let numbered = (self.arrived, one);
        let waiting = self.of(client);
        let queue = if is_stream { &mut waiting.streams } else { &mut waiting.others };
        queue.push_back(numbered);
        self.len += 1;
        self.streams += usize::from(is_stream);
    }

    /// Puts a stream back that was taken out last: it is the first once more.
    fn push_first(&mut self, client: u64, stream: T) {
        self.of(client).streams.push_front((0, stream));
        self.order.retain(|other| *other != client);
        self.order.push_front(client);
        self.len += 1;
        self.streams += 1;
    }

    fn of(&mut self, client: u64) -> &mut Waiting<T> {
        self.clients.entry(client).or_insert_with(|| {
            self.order.push_back(client);
            Waiting { streams: VecDeque::new(), others: VecDeque::new() }
        })
    }

    /// Takes out what has its turn. Without a place for a stream those that have nothing else keep their turns.
    fn pop(&mut self, may_stream: bool) -> Option<T> {
        for at in 0..self.order.len() {
            let client = self.order[at];
            let Some(waiting) = self.clients.get_mut(&client) else { continue };
            let first = |queue: &VecDeque<(u64, T)>| queue.front().map_or(u64::MAX, |(number, _)| *number);
            let is_stream = may_stream && first(&waiting.streams) < first(&waiting.others);
            let queue = if is_stream { &mut waiting.streams } else { &mut waiting.others };
            let Some((_, one)) = queue.pop_front() else { continue };
            let is_empty = waiting.streams.is_empty() && waiting.others.is_empty();
            self.order.remove(at);
            if is_empty {
                self.clients.remove(&client);
            } else {
                self.order.push_back(client);
            }
            self.len -= 1;
            self.streams -= usize::from(is_stream);
            return Some(one);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(turns: &mut Turns<&'static str>, may_stream: bool) -> Vec<&'static str> {
        std::iter::from_fn(|| turns.pop(may_stream)).collect()
    }

    #[test]
    fn clients_take_turns_whatever_each_has_sent() {
        let mut turns = Turns::default();
        for (client, one) in [(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (3, "c1"), (2, "b2")] {
            turns.push(client, false, one);
        }
        assert_eq!(turns.pop(true), Some("a1"));
        turns.push(4, false, "d1");
        assert_eq!(all(&mut turns, true), ["b1", "c1", "a2", "d1", "b2", "a3"]);
        assert!(turns.clients.is_empty() && turns.order.is_empty() && turns.len == 0);
    }

    #[test]
    fn streams_wait_for_places_and_others_do_not() {
        let mut turns = Turns::default();
        turns.push(1, true, "stream of 1");
        turns.push(1, false, "call of 1");
        turns.push(2, true, "stream of 2");
        assert_eq!(turns.streams, 2);
        assert_eq!(turns.pop(false), Some("call of 1"));
        assert_eq!(turns.pop(false), None);
        let first = turns.pop(true);
        assert_eq!(first, Some("stream of 2"));
        turns.push_first(2, "stream of 2");
        assert_eq!((turns.len, turns.streams), (2, 2));
        assert_eq!(all(&mut turns, true), ["stream of 2", "stream of 1"]);
    }
}
