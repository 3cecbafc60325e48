//! Work that waits for a worker.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::server::connection::session::Work;

/// Requests that wait for a worker, because as many handlers run as may.
#[derive(Debug, Default)]
pub(in crate::server) struct Queue {
    /// Apart, because streams may have to wait although others need not. Each with its number in the order of arrival.
    streams: VecDeque<(u64, Work)>,
    others: VecDeque<(u64, Work)>,
    arrived: u64,
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
        self.arrived += 1;
        let waiting = if work.is_stream() { &mut self.streams } else { &mut self.others };
        waiting.push_back((self.arrived, work));
    }

    /// Puts a stream back that was the first.
    pub(super) fn push_first(&mut self, stream: Work) {
        self.streams.push_front((0, stream));
    }

    /// The one that has waited longest; a stream only if there is a place for one.
    pub(super) fn pop(&mut self, may_stream: impl FnOnce() -> bool) -> Option<Work> {
        let number = |waiting: &VecDeque<(u64, Work)>| waiting.front().map_or(u64::MAX, |(number, _)| *number);
        let (stream, other) = (number(&self.streams), number(&self.others));
        let waiting = if stream < other && may_stream() { &mut self.streams } else { &mut self.others };
        let (_, work) = waiting.pop_front()?;
        self.since = Some(Instant::now());
        Some(work)
    }

    pub(super) fn len(&self) -> usize {
        self.streams.len() + self.others.len()
    }

    /// Those that wait for a place among the streams.
    pub(super) fn streams(&self) -> usize {
        self.streams.len()
    }

    pub(in crate::server) fn clear(&mut self) {
        self.streams.drain(..).chain(self.others.drain(..)).for_each(|(_, work)| work.give_up());
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
