//! Whether frames wait for a client to read, so that the receiving thread has to watch for room.

use crate::sync::{AtomicBool, Ordering};

/// Set while frames may wait.
#[derive(Debug, Default)]
pub(in crate::server) struct WriteInterest(AtomicBool);

/// The queue of frames, and the poller that reports room for them.
pub(in crate::server) trait Sends {
    /// Sends what waits, as far as there is room. Whether nothing is left.
    fn flush(&self) -> bool;

    /// Whether anything waits.
    fn is_queued(&self) -> bool;

    /// Starts or stops telling the receiving thread of room.
    fn watch_room(&self, watch: bool);
}

impl WriteInterest {
    /// Whether frames may wait.
    pub(in crate::server) fn is_set(&self) -> bool {
        // Relaxed: `flush` takes the lock of what it sends.
        self.0.load(Ordering::Relaxed)
    }

    /// Call this after queueing a frame. Returns whether the flag was clear before.
    pub(in crate::server) fn set(&self, sends: &impl Sends) -> bool {
        // AcqRel: see `flush`.
        let first = !self.0.swap(true, Ordering::AcqRel);
        if first {
            sends.watch_room(true);
        }
        first
    }

    /// Nothing waits any more.
    pub(in crate::server) fn clear(&self) {
        // AcqRel: a frame whose sender found the flag set is seen by the look at the queue that follows.
        self.0.swap(false, Ordering::AcqRel);
    }

    /// Sends what waits, as far as there is room. For the receiving thread, one at a time.
    pub(in crate::server) fn flush(&self, sends: &impl Sends) {
        while sends.flush() && self.is_set() {
            // In this order: a thread that queues a frame from here on either finds the flag set, and then the frame is
            // seen below, or sets it, and watches again.
            sends.watch_room(false);
            self.clear();
            if !sends.is_queued() {
                break;
            }
            self.set(sends);
        }
    }
}
