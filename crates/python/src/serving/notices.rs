//! Messages of the core to the server's operator, on their way to Python.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nearcall_core::lock::Mutex;
use nearcall_core::server::Notice;

/// Keeps messages for the operator until a worker passes them on.
#[derive(Default)]
pub(crate) struct Notices {
    any: AtomicBool,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    list: Vec<Notice>,
    /// When the current second of lines began. `lines` and `left_out` count the lines passed on and left out since
    /// then.
    begun: Option<Instant>,
    lines: usize,
    left_out: usize,
}

/// The most lines in one second: what peers do must not fill a disk.
const MOST_LINES: usize = 100;

impl Notices {
    pub(crate) fn push(&self, notice: Notice) {
        let mut kept = self.kept.lock();
        if matches!(notice, Notice::Line { .. }) {
            if kept.begun.is_none_or(|begun| begun.elapsed() >= Duration::from_secs(1)) {
                kept.tell_left_out();
                (kept.begun, kept.lines) = (Some(Instant::now()), 0);
            }
            if kept.lines == MOST_LINES {
                kept.left_out += 1;
                return;
            }
            kept.lines += 1;
        }
        kept.list.push(notice);
        // Relaxed: a hint. A thread that is no worker wakes one after it pushes, and that wake-up orders the two
        // threads.
        self.any.store(true, Ordering::Relaxed);
    }

    pub(crate) fn take(&self) -> Vec<Notice> {
        // Relaxed: as above. Workers look around every call, so looking takes no lock.
        if !self.any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut kept = self.kept.lock();
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut kept.list)
    }

    /// To be called when no more messages will come: adds the number of lines left out.
    pub(crate) fn finish(&self) {
        let mut kept = self.kept.lock();
        kept.tell_left_out();
        self.any.store(true, Ordering::Relaxed);
    }
}

impl Kept {
    fn tell_left_out(&mut self) {
        let left_out = std::mem::take(&mut self.left_out);
        if left_out > 0 {
            let text = format!("{left_out} more lines like these were left out, over {MOST_LINES} in a second");
            self.list.push(Notice::Line { serious: false, text });
        }
    }
}
