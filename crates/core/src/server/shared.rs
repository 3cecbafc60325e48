//! What the connections, calls and threads of one server have in common: its limits, its counts, and whether it stops.
//!
//! This knows nothing of any of them. They hold it, so that none of them needs the server itself.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use nearcall_platform::descriptors;
use nearcall_transport::Budget;

use crate::exports::Releases;
use crate::server::kept_back::KeptBack;
use crate::server::leadership::Leadership;
use crate::server::limits::WorkLimits;
use crate::server::notice::{Notice, OnNotice};
use crate::server::session::SessionEvents;
use crate::server::statistics::{Snapshot, Statistics};
use crate::sync::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

/// What all parts of a server know.
pub(in crate::server) struct Shared {
    pub(in crate::server) limits: WorkLimits,
    notice: OnNotice,
    pub(in crate::server) leadership: Leadership,
    /// The system's poller of the reactor.
    pub(in crate::server) poller: Arc<OwnedFd>,
    /// Wakes the receiving worker out of the system's poller.
    pub(in crate::server) wake: Arc<OwnedFd>,
    stopping: AtomicBool,
    /// Set when everything is over: workers return.
    stopped: AtomicBool,
    /// Whether the reactor has been asked if all that went out is at the clients, and has found that it is.
    delivery: AtomicU8,
    /// Requests received and not finished.
    pub(in crate::server) in_flight: AtomicUsize,
    /// Connections open.
    pub(in crate::server) connections: AtomicUsize,
    /// Clients that do not read what waits for them.
    pub(in crate::server) unsent_connections: AtomicUsize,
    /// Workers alive, and those of them that wait for the lead.
    pub(in crate::server) workers: AtomicUsize,
    pub(in crate::server) standby: AtomicUsize,
    /// Requests that wait for a worker, because as many handlers run as may.
    pub(in crate::server) queued: AtomicUsize,
    /// One-way calls that came while the server was stopping: nobody else could be told.
    pub(in crate::server) came_too_late: AtomicUsize,
    pub(in crate::server) statistics: Statistics,
    pub(in crate::server) budget: Arc<Budget>,
    pub(in crate::server) kept_back: KeptBack,
    /// Sessions whose hooks are to be run.
    pub(in crate::server) session_events: Arc<SessionEvents>,
    /// Objects that clients have let go of.
    pub(in crate::server) releases: Arc<Releases>,
}

const UNASKED: u8 = 0;
const ASKED: u8 = 1;
const DELIVERED: u8 = 2;

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// What it is made of.
pub(in crate::server) struct Parts {
    pub(in crate::server) limits: WorkLimits,
    pub(in crate::server) notice: OnNotice,
    pub(in crate::server) leadership: Leadership,
    pub(in crate::server) poller: Arc<OwnedFd>,
    pub(in crate::server) wake: Arc<OwnedFd>,
    pub(in crate::server) statistics: Statistics,
    pub(in crate::server) budget: Arc<Budget>,
    pub(in crate::server) kept_back: KeptBack,
    pub(in crate::server) session_events: Arc<SessionEvents>,
}

impl Shared {
    pub(in crate::server) fn new(parts: Parts) -> Arc<Self> {
        let Parts { limits, notice, leadership, poller, wake, statistics, budget, kept_back, session_events } = parts;
        Arc::new(Self {
            limits,
            notice,
            leadership,
            poller,
            releases: Releases::new(Arc::clone(&wake)),
            wake,
            stopping: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            delivery: AtomicU8::new(UNASKED),
            in_flight: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            unsent_connections: AtomicUsize::new(0),
            workers: AtomicUsize::new(0),
            standby: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
            came_too_late: AtomicUsize::new(0),
            statistics,
            budget,
            kept_back,
            session_events,
        })
    }

    /// No new clients, no new calls.
    pub(in crate::server) fn begin_to_stop(&self) {
        // Release: a worker that sees it also sees what was done before stopping.
        self.stopping.store(true, Ordering::Release);
    }

    /// Whether it takes no more calls.
    pub(in crate::server) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Everything is over: workers return.
    pub(in crate::server) fn end(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    pub(in crate::server) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Asks the reactor, unless that was done, whether all that went out is at the clients. Whether it has found that it is.
    pub(in crate::server) fn ask_delivery(&self) -> bool {
        // AcqRel: whoever answers sees that nothing is under way any more.
        self.delivery.compare_exchange(UNASKED, ASKED, Ordering::AcqRel, Ordering::Acquire) == Err(DELIVERED)
    }

    /// Whether that was asked and not answered: nothing is under way any more.
    pub(in crate::server) fn asks_delivery(&self) -> bool {
        // Acquire: what was sent before the question is out.
        self.delivery.load(Ordering::Acquire) == ASKED
    }

    /// It is.
    pub(in crate::server) fn answer_delivery(&self) {
        self.delivery.store(DELIVERED, Ordering::Release);
    }

    /// What is measured of the calls, and how busy the server is, for a call that asks.
    pub(in crate::server) fn snapshot(&self) -> Snapshot {
        // Relaxed: each number is true by itself, and old a moment later.
        Snapshot {
            pid: std::process::id(),
            version: crate::VERSION,
            connections: self.connections.load(Ordering::Relaxed),
            workers: self.workers.load(Ordering::Relaxed),
            idle_workers: self.standby.load(Ordering::Relaxed),
            queued: self.queued.load(Ordering::Relaxed),
            // The call that asks is under way, too, but is not what somebody wants to know.
            in_flight: self.in_flight.load(Ordering::Relaxed).saturating_sub(1),
            memory: self.budget.used(),
            max_memory: self.budget.limit(),
            ..self.statistics.snapshot()
        }
    }

    pub(in crate::server) fn wake_reactor(&self) {
        descriptors::signal(&self.wake);
    }

    pub(in crate::server) fn notify(&self, serious: bool, text: String) {
        self.tell(Notice::Line { serious, text });
    }

    pub(in crate::server) fn tell(&self, notice: Notice) {
        (self.notice)(notice);
        // The worker that receives tells it on, and may be about to sleep.
        self.wake_reactor();
    }
}
