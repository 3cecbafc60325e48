//! Threads that wait for room in the ring while another one receives, which hears the bell for them.

use std::time::Duration;

use nearcall_platform::lock::{Condvar, Mutex};

use super::shared::Shared;
use crate::link::ROOM_LOOK;
use crate::sync::{AtomicU32, Ordering};

#[derive(Debug)]
pub(super) struct RoomWaiters {
    count: AtomicU32,
    mutex: Mutex<()>,
    told: Condvar,
}

impl RoomWaiters {
    pub(super) fn new() -> Self {
        Self { count: AtomicU32::new(0), mutex: Mutex::new(()), told: Condvar::new() }
    }

    /// Lets them look again; called whenever the bell may have rung for them.
    pub(super) fn notify(&self, shared: &Shared) {
        // SeqCst, both: a waiting thread counts itself before its last look at `bells_heard`.
        shared.bells_heard.fetch_add(1, Ordering::SeqCst);
        if self.count.load(Ordering::SeqCst) > 0 {
            let _guard = self.mutex.lock();
            self.told.notify_all();
        }
    }

    /// Waits until the bell may have rung since a sender last looked for room.
    pub(super) fn wait(&self, shared: &Shared, timeout: Duration) {
        // SeqCst, both: this thread is counted before its last look at `bells_heard`, which `notify` writes first.
        self.count.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.mutex.lock();
        if shared.bells_heard.load(Ordering::SeqCst) == shared.bells_seen.load(Ordering::Relaxed) {
            // Not longer: perhaps no thread receives just now, and then none hears the bell.
            self.told.wait_for(&mut guard, timeout.min(ROOM_LOOK));
        }
        drop(guard);
        self.count.fetch_sub(1, Ordering::SeqCst);
    }
}
