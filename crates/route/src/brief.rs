//! What an endpoint has beside others if it is there for replies only: a part in what all of them may keep, and an end.

use std::fmt::Debug;
use std::sync::Weak;
use std::time::{Duration, Instant};

use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// How long a receiver is looked for.
const FOR_CONNECTION: Duration = Duration::from_secs(1);
/// After so long without a reply an endpoint ends.
const PAUSE: Duration = Duration::from_secs(15);

/// What all of them together have.
#[derive(Debug)]
pub(crate) struct Room {
    /// Those whose threads have not ended.
    pub(crate) alive: AtomicUsize,
    /// Bytes that wait in all of them.
    pub(crate) bytes: AtomicUsize,
    /// The most of these.
    pub(crate) most_bytes: usize,
}

/// Where they are kept.
pub(crate) trait Home: Debug + Send + Sync {
    /// What they have together.
    fn room(&self) -> &Room;

    /// The endpoint of that address, which has this, has ended.
    fn leave(&self, address: &str, brief: &Brief);
}

/// What such an endpoint has beside others.
#[derive(Debug)]
pub(crate) struct Brief {
    home: Weak<dyn Home>,
    /// How many messages were sent when the last reply was refused; `u64::MAX` if none was.
    refused_at: AtomicU64,
}

impl Brief {
    /// For one more endpoint. `None` if there are too many.
    pub(crate) fn begin(home: Weak<dyn Home>, most: usize) -> Option<Self> {
        let alive = home.upgrade()?;
        let alive = &alive.room().alive;
        // Relaxed: a bound that another thread may pass by one.
        if alive.fetch_add(1, Ordering::Relaxed) >= most {
            alive.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Self { home, refused_at: AtomicU64::new(u64::MAX) })
    }

    /// A reply was refused for want of room, after so many were sent.
    pub(crate) fn note_refused(&self, sent: u64) {
        // Relaxed: a hint for who would wait.
        self.refused_at.store(sent, Ordering::Relaxed);
    }

    /// Whether a reply was refused when as many were sent as now.
    pub(crate) fn was_refused_at(&self, sent: u64) -> bool {
        // Relaxed: likewise.
        self.refused_at.load(Ordering::Relaxed) == sent
    }

    /// Whether so many bytes more may wait. One reply may, however long.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        // Relaxed, here and below: a bound, which threads that add at once may pass by a message each.
        self.home.upgrade().is_some_and(|home| match home.room().bytes.load(Ordering::Relaxed) {
            0 => true,
            waiting => waiting.saturating_add(bytes) <= home.room().most_bytes,
        })
    }

    pub(crate) fn add_bytes(&self, bytes: usize) {
        self.home.upgrade().inspect(|home| _ = home.room().bytes.fetch_add(bytes, Ordering::Relaxed));
    }

    pub(crate) fn take_bytes(&self, bytes: usize) {
        self.home.upgrade().inspect(|home| _ = home.room().bytes.fetch_sub(bytes, Ordering::Relaxed));
    }

    /// The endpoint of that address has ended.
    pub(crate) fn leave(&self, address: &str) {
        self.home.upgrade().inspect(|home| home.leave(address, self));
    }
}

impl Drop for Brief {
    fn drop(&mut self) {
        // Relaxed: as in `begin`.
        self.home.upgrade().inspect(|home| _ = home.room().alive.fetch_sub(1, Ordering::Relaxed));
    }
}

/// How long such an endpoint lives.
#[derive(Debug)]
pub(crate) struct Life {
    was_connected: bool,
    sent: u64,
    end: Instant,
}

impl Life {
    pub(crate) fn begin() -> Self {
        Self { was_connected: false, sent: 0, end: Instant::now() + FOR_CONNECTION }
    }

    /// Whether it is over for an endpoint that is connected or not, and has sent so many messages.
    pub(crate) fn is_over(&mut self, connected: bool, sent: u64, is_empty: bool) -> bool {
        let now = Instant::now();
        if !connected {
            return self.was_connected || self.end <= now;
        }
        if !self.was_connected || self.sent != sent || !is_empty {
            *self = Self { was_connected: true, sent, end: now + PAUSE };
            return false;
        }
        self.end <= now
    }

    /// When to look whether it is over.
    pub(crate) fn end(&self) -> Instant {
        self.end
    }
}
