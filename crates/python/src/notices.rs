//! What a server has to say to its operator, on the way from the core to Python.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nearcall_core::lock::Mutex;
use nearcall_core::server::Notice;

/// What the operator should know, until a worker tells it.
#[derive(Default)]
pub(crate) struct Notices {
    any: AtomicBool,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    list: Vec<Notice>,
    /// When the present second of lines began, how many lines it has, and how many it would have had besides.
    begun: Option<Instant>,
    lines: usize,
    left_out: usize,
}

/// Lines in one second; what peers do must not fill a disk.
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
        // Relaxed: a hint. Whoever pushes from another thread wakes a worker, which brings the rest in order.
        self.any.store(true, Ordering::Relaxed);
    }

    pub(crate) fn take(&self) -> Vec<Notice> {
        // Relaxed: as above. Looked at around every call, so it costs no lock.
        if !self.any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut kept = self.kept.lock();
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut kept.list)
    }

    /// When no more will come: what was left out is told as well.
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
