//! Entering control groups while the process does something else.
//!
//! The system waits for all processors before it moves a process: 1 to 25 ms, in which an interpreter can
//! import.

use std::fs;
use std::thread::{self, JoinHandle};

use rustix::thread::gettid;

use super::cgroup;
use crate::{Layer, Limits, Report};

/// This process on its way into control groups.
pub struct Early {
    limits: Limits,
    /// The layers that came of it, and the number of the thread; nothing if there could be no thread.
    thread: Option<JoinHandle<(Vec<Layer>, i32)>>,
}

impl Early {
    /// Begins, in a thread that [`apply`](super::apply) waits for.
    pub fn begin(limits: Limits) -> Self {
        let wanted = limits.clone();
        let enter = move || {
            let mut report = Report::default();
            cgroup::enter(&wanted, &mut report);
            (report.layers, gettid().as_raw_nonzero().get())
        };
        Self { limits, thread: thread::Builder::new().name("nearcall-groups".into()).spawn(enter).ok() }
    }

    /// Waits for it. What came of it, if it was begun with these limits.
    pub(super) fn finish(self, limits: &Limits) -> Option<Vec<Layer>> {
        let (layers, thread) = self.thread?.join().ok()?;
        // A thread has ended for those who wait for it a little before the system has forgotten it. What confines a process
        // counts its threads.
        while fs::exists(format!("/proc/self/task/{thread}")).unwrap_or(false) {
            thread::yield_now();
        }
        let for_groups = |limits: &Limits| (limits.memory, limits.cpu_share, limits.tasks);
        (for_groups(&self.limits) == for_groups(limits)).then_some(layers)
    }
}
