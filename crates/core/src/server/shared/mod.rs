//! What the connections, calls and threads of one server share: its limits, its counts, and whether it stops.
//!
//! They hold a [`Shared`], so that none of them needs the server itself. `Shared` knows nothing of them.

pub(in crate::server) mod early_ends;
pub(in crate::server) mod limits;
pub(in crate::server) mod mailbox;
pub(in crate::server) mod notice;
pub(in crate::server) mod roster;
pub(in crate::server) mod session;
pub(in crate::server) mod statistics;
mod watching;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use nearcall_platform::descriptors;
use nearcall_platform::fault::{Fault, contained};
use nearcall_transport::Budget;

use crate::server::threads::crew::Crew;
use crate::server::threads::leadership::Leadership;
use crate::server::threads::loop_watch::LoopWatch;
use crate::sync::{AtomicU8, AtomicUsize, Ordering};
use limits::WorkLimits;
use mailbox::Mailbox;
use notice::{Notice, OnNotice};
use roster::{ConnectionRow, Roster};
use session::{Hook, SessionHooks};
use statistics::{MeasuredMethod, Snapshot, Statistics};

/// What all parts of a server share.
pub(in crate::server) struct Shared {
    pub(in crate::server) limits: WorkLimits,
    notice: OnNotice,
    pub(in crate::server) leadership: Leadership,
    /// The system's poller of the reactor.
    pub(in crate::server) poller: Arc<OwnedFd>,
    /// What is left for the receiving thread.
    pub(in crate::server) mailbox: Arc<Mailbox<Hook>>,
    pub(in crate::server) session_hooks: SessionHooks,
    /// How far the server is: [`STOPPING`] and so on.
    stage: AtomicU8,
    pub(in crate::server) loop_watch: LoopWatch,
    /// Which of the processes that serve together this is, and how many there are.
    pub(in crate::server) process: OnceLock<(usize, usize)>,
    /// How many requests were received and are not finished.
    pub(in crate::server) in_flight: AtomicUsize,
    pub(in crate::server) crew: Crew,
    /// How many one-way calls came while the server was stopping. Their clients get no reply, so only a notice can say
    /// so.
    pub(in crate::server) came_too_late: AtomicUsize,
    pub(in crate::server) statistics: Statistics,
    pub(in crate::server) roster: Roster,
    pub(in crate::server) budget: Arc<Budget>,
}

/// The server takes no new clients and no new calls.
pub(in crate::server) const STOPPING: u8 = 1;
/// No call is under way any more, and the clients have all that was sent.
pub(in crate::server) const DELIVERED: u8 = 2;
/// The stop is over: workers return.
pub(in crate::server) const STOPPED: u8 = 3;

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Shared {
    pub(in crate::server) fn new(
        limits: WorkLimits,
        session_hooks: SessionHooks,
        measured: Vec<Option<MeasuredMethod>>,
        notice: OnNotice,
    ) -> io::Result<Arc<Self>> {
        let (poller, mailbox) = (Arc::new(descriptors::new_poller()?), Mailbox::new()?);
        Ok(Arc::new(Self {
            crew: Crew::new(limits.max_concurrency, limits.most_streams()),
            leadership: Leadership::new(descriptors::new_event()?, descriptors::new_alarm()?, Arc::clone(&poller)),
            statistics: Statistics::new(measured),
            budget: Budget::waking(limits.max_memory, &mailbox.waker()),
            limits,
            notice,
            poller,
            mailbox,
            session_hooks,
            stage: AtomicU8::new(0),
            loop_watch: LoopWatch::default(),
            process: OnceLock::new(),
            in_flight: AtomicUsize::new(0),
            came_too_late: AtomicUsize::new(0),
            roster: Roster::default(),
        }))
    }

    /// Whether the server takes no more calls.
    pub(in crate::server) fn is_stopping(&self) -> bool {
        self.has_reached(STOPPING)
    }

    /// Whether the stop is over.
    pub(in crate::server) fn is_stopped(&self) -> bool {
        self.has_reached(STOPPED)
    }

    /// The server is so far now: [`STOPPING`] and so on.
    pub(in crate::server) fn reach(&self, stage: u8) {
        // Release: a thread that sees the stage also sees what was done before.
        self.stage.fetch_max(stage, Ordering::Release);
    }

    #[inline]
    pub(in crate::server) fn has_reached(&self, stage: u8) -> bool {
        // Acquire: after the Release of `reach`.
        self.stage.load(Ordering::Acquire) >= stage
    }

    /// Whether no call is under way, and no hook.
    pub(in crate::server) fn is_idle(&self) -> bool {
        // Acquire: the reply to a call that is over was sent.
        self.in_flight.load(Ordering::Acquire) == 0 && self.mailbox.hooks_are_over()
    }

    /// The statistics of the calls, and how busy the server is, without the calls that ask for them.
    pub(in crate::server) fn snapshot(&self, asking: usize) -> Snapshot {
        let (threads, idle_threads) = self.leadership.workers();
        // Relaxed: each number is true for itself, and out of date a moment later.
        Snapshot {
            pid: std::process::id(),
            version: crate::VERSION,
            connections: self.roster.len(),
            threads,
            idle_threads,
            queued: self.crew.queued(),
            in_flight: self.in_flight.load(Ordering::Relaxed).saturating_sub(asking),
            memory: self.budget.used(),
            max_memory: self.budget.limit(),
            worker: self.process.get().map(|(number, _)| *number),
            workers: self.process.get().map_or(1, |(_, count)| *count),
            loop_held_up: self.loop_watch.held().map_or(0.0, |time| time.as_secs_f64()),
            ..self.statistics.snapshot()
        }
    }

    /// The first connections whose numbers are greater than `after`, at most `limit`.
    pub(in crate::server) fn connection_rows(&self, after: u64, limit: usize) -> Vec<ConnectionRow> {
        self.roster.page(after, limit, self.process.get().copied())
    }

    pub(in crate::server) fn notify(&self, serious: bool, text: String) {
        self.tell(Notice::Line { serious, text });
    }

    /// Tells the operator of a fault.
    #[cold]
    pub(in crate::server) fn tell_fault(&self, fault: &Fault) {
        self.notify(true, fault.to_string());
    }

    /// Does some work. If it panics, the operator is told, and the thread goes on with what else is to be done.
    #[inline]
    pub(in crate::server) fn contain(&self, work: impl FnOnce()) {
        if let Err(fault) = contained(work) {
            self.tell_fault(&fault);
        }
    }

    pub(in crate::server) fn tell(&self, notice: Notice) {
        (self.notice)(notice);
        // The receiving worker passes the notice on, and may be about to sleep.
        self.mailbox.wake();
    }
}
