//! The workers of a server by number, and those of them that sleep because they neither receive nor run a handler.

use std::sync::Arc;

use nearcall_platform::lock::Condvar;

/// So many stay for as long as the server: who takes the lead from a slow handler may get a slow one, too. Others end
/// after a while.
pub(super) const KEPT_WORKERS: usize = 2;

/// The workers that sleep. Each does so on its own, and who came last is called first: so those end that are really too
/// many.
#[derive(Debug, Default)]
pub(super) struct Parked {
    pub(super) sleepers: Vec<Arc<Condvar>>,
    /// How many workers are alive.
    pub(super) workers: usize,
    /// How many threads were started to be workers, and are none yet.
    pub(super) starting: usize,
    /// A worker sleeps as the watcher, or has not come back from that since it was called: two could not be woken apart.
    pub(super) is_watched: bool,
    /// The server has stopped: nobody sleeps here any more.
    pub(super) is_closed: bool,
}

impl Parked {
    pub(super) fn len(&self) -> usize {
        self.sleepers.len()
    }

    /// How many are free to receive, now or soon.
    pub(super) fn ready(&self) -> usize {
        self.len() + self.starting
    }

    /// How many came before this one and sleep still; `None` if it was called.
    pub(super) fn position(&self, own: &Arc<Condvar>) -> Option<usize> {
        self.sleepers.iter().position(|other| Arc::ptr_eq(other, own))
    }
}
