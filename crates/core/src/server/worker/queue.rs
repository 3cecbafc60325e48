//! Work that waits for a worker.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::server::connection::session::Work;

/// Requests that wait for a worker, because as many handlers run as may.
#[derive(Debug, Default)]
pub(in crate::server) struct Queue {
    requests: VecDeque<Work>,
    /// Since when the first has waited: nothing was taken out since.
    since: Option<Instant>,
    /// When the operator was last told.
    told: Option<Instant>,
}

impl Queue {
    pub(super) fn push(&mut self, work: Work) {
        if self.requests.is_empty() {
            self.since = Some(Instant::now());
        }
        self.requests.push_back(work);
    }

    pub(super) fn pop(&mut self) -> Option<Work> {
        self.since = Some(Instant::now());
        self.requests.pop_front()
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(in crate::server) fn clear(&mut self) {
        self.requests.drain(..).for_each(Work::give_up);
    }

    /// How many have waited in vain for so long that the operator is to be told, which is counted as done.
    pub(super) fn stuck(&mut self) -> Option<usize> {
        let is_over = |since: Option<Instant>, time| since.is_none_or(|since| since.elapsed() >= time);
        if self.requests.is_empty() || !is_over(self.since, STUCK) || !is_over(self.told, TOLD_AGAIN) {
            return None;
        }
        self.told = Some(Instant::now());
        Some(self.requests.len())
    }
}

/// How long calls wait for a worker, with none coming free, before the operator is told.
pub(super) const STUCK: Duration = Duration::from_secs(1);
/// How long after that he is told again.
const TOLD_AGAIN: Duration = Duration::from_secs(60);
