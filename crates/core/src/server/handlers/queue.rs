//! The queue of work that waits for a worker, and the clients' turns in it.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::server::handlers::work::Work;

/// Work that waits for a worker, because as many handlers run as may.
#[derive(Debug, Default)]
pub(in crate::server) struct Queue {
    turns: Turns<Work>,
    /// When work was last taken out, or put into the empty queue.
    since: Option<Instant>,
    /// When the operator was last told that calls are stuck.
    told: Option<Instant>,
}

impl Queue {
    pub(in crate::server) fn push(&mut self, work: Work) {
        if self.len() == 0 {
            self.since = Some(Instant::now());
        }
        self.turns.push(work.client(), work.is_stream(), work);
    }

    /// Takes out the work whose turn it is, or the first stream of the client `streams`, if that is before. The caller
    /// [puts a stream back](Self::push_first) for which there is no place after all.
    pub(in crate::server) fn pop(&mut self, streams: Option<u64>) -> Option<Work> {
        let work = self.turns.pop(streams)?;
        self.since = Some(Instant::now());
        Some(work)
    }

    /// Puts a stream back that `pop` has just returned: it is the first of its client again.
    pub(in crate::server) fn push_first(&mut self, stream: Work) {
        self.turns.push_first(stream.client(), stream);
    }

    /// Counts how long a worker has run the work that was taken out for a client.
    pub(in crate::server) fn charge(&mut self, client: u64, took: Duration) {
        self.turns.charge(client, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX >> 1));
    }

    pub(in crate::server) fn len(&self) -> usize {
        self.turns.len
    }

    /// How many calls and hooks wait, and how many streams.
    pub(in crate::server) fn others_and_streams(&self) -> (usize, usize) {
        (self.turns.len - self.turns.streams, self.turns.streams)
    }

    /// The server ends: nothing in it is begun any more.
    pub(in crate::server) fn give_up(self) {
        for ClientWork { streams, others, .. } in self.turns.clients.into_values() {
            streams.into_iter().chain(others).for_each(|(_, work)| work.give_up());
        }
    }

    /// How many wait, if none was taken out for [`STUCK`] and the operator is to be told now. Counts the operator as
    /// told.
    pub(in crate::server) fn stuck(&mut self) -> Option<usize> {
        let is_over = |since: Option<Instant>, time| since.is_none_or(|since| since.elapsed() >= time);
        if self.len() == 0 || !is_over(self.since, STUCK) || !is_over(self.told, TOLD_AGAIN) {
            return None;
        }
        self.told = Some(Instant::now());
        Some(self.len())
    }
}

/// The operator is told when calls wait and no worker has come free for this time.
pub(in crate::server) const STUCK: Duration = Duration::from_secs(1);
/// The operator is told again after this time.
const TOLD_AGAIN: Duration = Duration::from_secs(60);

/// The nanoseconds that a call is taken to cost until it is over. A new client starts with this and `now`. So clients
/// take turns call by call while their costs are unknown.
const GUESS: u64 = 10_000_000;
/// With fewer clients than this, `Turns` looks for none to forget.
const FEW: usize = 64;

/// The order of work that waits. Next is the client that has had least of the workers' time, and of its work what came
/// first. So if one client has sent a thousand calls, the next client waits for one of them, and not for all; and a
/// client whose calls are short waits for fewer calls of others than a client whose calls are long.
#[derive(Debug)]
pub(super) struct Turns<T> {
    clients: HashMap<u64, ClientWork<T>>,
    /// The clients of which work waits that is no stream. The first is next.
    order: BTreeSet<Turn>,
    /// The time that the client whose turn came last had had by then. A client counts as having had at least this,
    /// however long it was away.
    now: u64,
    arrived: u64,
    len: usize,
    /// Streams among them.
    streams: usize,
    /// Once there are so many clients, `of` forgets those of which no work waits and which have had no more than `now`.
    sweep_at: usize,
}

/// A client's place in the order: the nanoseconds that it has had, the arrival number since which it waits, and the
/// client.
type Turn = (u64, u64, u64);

/// The work of one client that waits, each with its number in the order of arrival.
#[derive(Debug)]
struct ClientWork<T> {
    /// Apart, because streams may have to wait for a place when other work need not: whose is next is said from outside.
    streams: VecDeque<(u64, T)>,
    others: VecDeque<(u64, T)>,
    /// The nanoseconds of the workers' time that the client has had, at least `now` whenever it lines up.
    had: u64,
    /// The client's place in the order, while it has one.
    turn: Option<Turn>,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        let (clients, order) = (HashMap::new(), BTreeSet::new());
        Self { clients, order, now: 0, arrived: 0, len: 0, streams: 0, sweep_at: FEW }
    }
}

impl<T> Turns<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn push(&mut self, client: u64, is_stream: bool, one: T) {
        self.arrived += 1;
        let numbered = (self.arrived, one);
        let waiting = self.of(client);
        let queue = if is_stream { &mut waiting.streams } else { &mut waiting.others };
        queue.push_back(numbered);
        self.len += 1;
        self.streams += usize::from(is_stream);
        self.line_up(client, self.arrived);
    }

    fn push_first(&mut self, client: u64, stream: T) {
        let waiting = self.of(client);
        waiting.streams.push_front((0, stream));
        waiting.had = waiting.had.saturating_sub(GUESS);
        self.len += 1;
        self.streams += 1;
        self.line_up(client, 0);
    }

    fn of(&mut self, client: u64) -> &mut ClientWork<T> {
        if self.clients.len() >= self.sweep_at && !self.clients.contains_key(&client) {
            self.clients.retain(|_, it| it.turn.is_some() || !it.streams.is_empty() || it.had > self.now);
            self.sweep_at = FEW.max(2 * self.clients.len());
        }
        let had = self.now + GUESS;
        self.clients.entry(client).or_insert_with(|| ClientWork {
            streams: VecDeque::new(),
            others: VecDeque::new(),
            had,
            turn: None,
        })
    }

    /// Gives a client its place in the order, if work of it waits. `since` is its arrival number; a client with a place
    /// keeps the earlier number.
    fn line_up(&mut self, client: u64, since: u64) {
        let Some(waiting) = self.clients.get_mut(&client) else { return };
        let turn = waiting.turn.take();
        if let Some(turn) = &turn {
            self.order.remove(turn);
        }
        waiting.had = waiting.had.max(self.now);
        if !waiting.others.is_empty() {
            let turn = (waiting.had, turn.map_or(since, |(_, before, _)| before.min(since)), client);
            waiting.turn = Some(turn);
            self.order.insert(turn);
        }
    }

    /// Takes out the work whose turn it is: of the first client in the order, or a stream of the client `streams`.
    pub(super) fn pop(&mut self, streams: Option<u64>) -> Option<T> {
        let first = |queue: &VecDeque<(u64, T)>| queue.front().map(|(number, _)| *number);
        let other = self.order.first().and_then(|&(had, since, client)| {
            let number = first(&self.clients.get(&client)?.others)?;
            Some((had, if Some(client) == streams { number } else { since }, client))
        });
        let stream = streams.and_then(|client| {
            let waiting = self.clients.get(&client)?;
            Some((waiting.had.max(self.now), first(&waiting.streams)?, client))
        });
        let is_stream = stream.is_some_and(|stream| other.is_none_or(|other| stream < other));
        let (had, _, client) = if is_stream { stream } else { other }?;
        let waiting = self.clients.get_mut(&client)?;
        let (_, one) = if is_stream { &mut waiting.streams } else { &mut waiting.others }.pop_front()?;
        waiting.had = had + GUESS;
        self.now = self.now.max(had);
        self.len -= 1;
        self.streams -= usize::from(is_stream);
        self.arrived += 1;
        let since = self.arrived;
        if let Some(turn) = waiting.turn.take() {
            self.order.remove(&turn);
        }
        self.line_up(client, since);
        Some(one)
    }

    /// A worker has run the client's work for so many nanoseconds: they replace the guess.
    fn charge(&mut self, client: u64, took: u64) {
        let Some(waiting) = self.clients.get_mut(&client) else { return };
        waiting.had = (waiting.had + took).saturating_sub(GUESS);
        self.line_up(client, u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_take_turns_while_no_time_is_counted() {
        let mut turns = Turns::default();
        for (client, one) in [(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (3, "c1"), (2, "b2")] {
            turns.push(client, false, one);
        }
        assert_eq!(turns.pop(None), Some("a1"));
        turns.push(4, false, "d1");
        assert_eq!(all(&mut turns, None), ["b1", "c1", "a2", "d1", "b2", "a3"]);
        assert!(turns.is_empty());
    }

    fn all(turns: &mut Turns<&'static str>, streams: Option<u64>) -> Vec<&'static str> {
        std::iter::from_fn(|| turns.pop(streams)).collect()
    }

    #[test]
    fn clients_take_turns_whatever_each_has_sent() {
        let mut turns = Turns::default();
        for (client, one) in [(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (3, "c1"), (2, "b2")] {
            turns.push(client, false, one);
        }
        assert_eq!(turns.pop(None), Some("a1"));
        turns.push(4, false, "d1");
        assert_eq!(all(&mut turns, None), ["b1", "c1", "a2", "d1", "b2", "a3"]);
        assert!(turns.order.is_empty() && turns.len == 0);
    }

    #[test]
    fn short_calls_do_not_wait_for_a_long_one_of_everybody_else() {
        const MS: u64 = 1_000_000;
        let mut turns = Turns::default();
        for client in 1..=40 {
            for _ in 0..50 {
                turns.push(client, false, client);
            }
        }
        let mut before = Vec::new();
        while before.len() < 100 {
            turns.push(99, false, 99);
            let mut others = 0;
            while let Some(client) = turns.pop(None) {
                turns.charge(client, if client == 99 { MS / 20 } else { 50 * MS });
                if client == 99 {
                    break;
                }
                others += 1;
            }
            before.push(others);
        }
        assert_eq!(before.remove(0), 40, "nothing is known of anybody yet");
        assert!(before.iter().all(|others| *others <= 1), "{before:?}");
    }

    #[test]
    fn newcomers_without_end_keep_nobody_waiting() {
        let mut turns = Turns::default();
        turns.push(0, false, 0);
        turns.push(0, false, 0);
        let mut seen = 0;
        for client in 1..1000 {
            turns.push(client, false, client);
            let served = turns.pop(None).expect("there is one");
            turns.charge(served, 50_000_000);
            seen += u64::from(served == 0);
            assert!(turns.clients.len() <= 4 * FEW);
        }
        assert_eq!(seen, 2);
    }

    #[test]
    fn who_was_away_has_saved_nothing_up() {
        let mut turns = Turns::default();
        for client in [1, 2] {
            (0..20).for_each(|_| turns.push(client, false, client));
        }
        for _ in 0..20 {
            let served = turns.pop(None).expect("there is one");
            turns.charge(served, 50_000_000);
        }
        (0..20).for_each(|_| turns.push(3, false, 3));
        let served: Vec<_> = (0..12).map(|_| turns.pop(None).inspect(|&it| turns.charge(it, 50_000_000))).collect();
        assert!(served.iter().filter(|&&it| it == Some(3)).count() <= 5, "{served:?}");
    }

    #[test]
    fn streams_wait_until_their_client_is_named_and_others_do_not() {
        let mut turns = Turns::default();
        turns.push(1, true, "stream of 1");
        turns.push(1, false, "call of 1");
        turns.push(2, true, "stream of 2");
        turns.push(2, false, "call of 2");
        assert_eq!((turns.len, turns.streams), (4, 2));
        assert_eq!(turns.pop(Some(2)), Some("call of 1"), "it was there before");
        assert_eq!(turns.pop(None), Some("call of 2"));
        assert_eq!(turns.pop(None), None);
        assert_eq!(turns.pop(Some(2)), Some("stream of 2"));
        turns.push_first(2, "stream of 2");
        assert_eq!((turns.len, turns.streams), (2, 2));
        assert_eq!(turns.pop(Some(2)), Some("stream of 2"));
        assert_eq!(all(&mut turns, Some(1)), ["stream of 1"]);
        assert!(turns.is_empty());
    }
}
