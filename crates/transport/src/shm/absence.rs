//! Whether the process at the other end is gone without a goodbye. A sender of one-way calls waits for nothing, so it would
//! never look at the socket, and go on to write into memory that nobody reads.

use std::os::fd::AsFd;

use nearcall_platform::{clock, sys};

use crate::sync::{AtomicU64, Ordering};

/// The socket is looked at again after so many nanoseconds: a system call in this time is nothing, and what is sent meanwhile
/// is lost if the peer has died.
const PAUSE_NS: u64 = 2_000_000;
/// Stands for the time of a look that has found the peer gone.
const GONE: u64 = u64::MAX;

/// When the socket was looked at last, in nanoseconds on the coarse clock; or [`GONE`].
#[derive(Debug, Default)]
pub(super) struct Absence(AtomicU64);

impl Absence {
    /// Whether the peer has hung up, as far as is known: the socket is looked at once in a while.
    #[inline]
    pub(super) fn is_noticed(&self, socket: &impl AsFd) -> bool {
        let now = clock::coarse_ns();
        // Relaxed, all of it: one of several threads that ask looks, and what it finds says nothing of other memory.
        let last = self.0.load(Ordering::Relaxed);
        now.saturating_sub(last) >= PAUSE_NS && self.look(socket, now) || last == GONE
    }

    #[cold]
    fn look(&self, socket: &impl AsFd, now: u64) -> bool {
        if sys::hung_up(socket.as_fd()) {
            self.0.store(GONE, Ordering::Relaxed);
            return true;
        }
        self.0.fetch_max(now, Ordering::Relaxed);
        false
    }
}
