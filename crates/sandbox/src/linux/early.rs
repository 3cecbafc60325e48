//! Entering control groups while the process does something else.
//!
//! The system waits for all processors before it moves a process. That takes 1 to 25 ms, during which an interpreter
//! can import.

use std::fs;
use std::thread::{self, JoinHandle};

use rustix::thread::gettid;

use super::cgroup;
use crate::{Layer, Limits, Report};

/// A move of this process into control groups that has begun.
pub struct Early {
    limits: Limits,
    /// The thread returns the states of its layers, and its own number. `None` if no thread could be started.
    thread: Option<JoinHandle<(Vec<Layer>, i32)>>,
}

impl Early {
    /// Begins the move in a thread that [`apply`](super::apply) waits for.
    pub fn begin(limits: Limits) -> Self {
        let wanted = limits.clone();
        let enter = move || {
            let mut report = Report::default();
            cgroup::enter(&wanted, &mut report);
            (report.layers, gettid().as_raw_nonzero().get())
        };
        Self { limits, thread: thread::Builder::new().name("nearcall-groups".into()).spawn(enter).ok() }
    }

    /// Waits for the thread. Returns the states of the layers if the move was begun with these limits.
    pub(super) fn finish(self, limits: &Limits) -> Option<Vec<Layer>> {
        let (layers, thread) = self.thread?.join().ok()?;
        // A thread can be joined a little before the system has forgotten it, and `apply` counts the threads that the
        // system knows.
        while fs::exists(format!("/proc/self/task/{thread}")).unwrap_or(false) {
            thread::yield_now();
        }
        let for_groups = |limits: &Limits| (limits.memory, limits.cpu_share, limits.tasks);
        (for_groups(&self.limits) == for_groups(limits)).then_some(layers)
    }
}
