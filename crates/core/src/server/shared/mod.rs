//! What the connections, calls and threads of one server share: its limits, its counts, and whether it stops.
//!
//! They hold a [`Shared`], so that none of them needs the server itself. `Shared` knows nothing of them.

pub(in crate::server) mod early_ends;
pub(in crate::server) mod held_up;
pub(in crate::server) mod kept_back;
pub(in crate::server) mod limits;
pub(in crate::server) mod notice;
pub(in crate::server) mod roster;
pub(in crate::server) mod session;
pub(in crate::server) mod statistics;
mod watching;

use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use nearcall_platform::descriptors;
use nearcall_platform::fault::{Fault, contained};
use nearcall_platform::lock::Mutex;
use nearcall_transport::Budget;

use crate::exports::Releases;
use crate::server::threads::crew::Crew;
use crate::server::threads::leadership::Leadership;
use crate::server::threads::loop_watch::LoopWatch;
use crate::sync::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use held_up::HeldUp;
use kept_back::KeptBack;
use limits::WorkLimits;
use notice::{Notice, OnNotice};
use roster::{ConnectionRow, Roster};
use session::SessionEvents;
use statistics::{Snapshot, Statistics};

/// What all parts of a server share.
pub(in crate::server) struct Shared {
    pub(in crate::server) limits: WorkLimits,
    notice: OnNotice,
    pub(in crate::server) leadership: Leadership,
    /// The system's poller of the reactor.
    pub(in crate::server) poller: Arc<OwnedFd>,
    /// Wakes the receiving thread out of the system's poller.
    pub(in crate::server) wake: Arc<OwnedFd>,
    stopping: AtomicBool,
    /// The stop is over: workers return.
    stopped: AtomicBool,
    /// `ASKED` or `DELIVERED`: the reactor was asked whether the clients have all that was sent; it has found that they
    /// have.
    delivery: AtomicU8,
    pub(in crate::server) loop_watch: LoopWatch,
    /// Which of the processes that serve together this is, and how many there are.
    pub(in crate::server) place: OnceLock<(usize, usize)>,
    /// How many requests were received and are not finished.
    pub(in crate::server) in_flight: AtomicUsize,
    /// How many connections are open.
    pub(in crate::server) connections: AtomicUsize,
    /// How many connections have frames that wait to be sent.
    pub(in crate::server) unsent_connections: AtomicUsize,
    pub(in crate::server) crew: Crew,
    /// How many one-way calls came while the server was stopping. Their clients get no reply, so only a notice can say
    /// so.
    pub(in crate::server) came_too_late: AtomicUsize,
    pub(in crate::server) statistics: Statistics,
    pub(in crate::server) roster: Roster,
    pub(in crate::server) budget: Arc<Budget>,
    pub(in crate::server) kept_back: KeptBack,
    pub(in crate::server) held_up: HeldUp,
    /// Tokens of which the poller does not tell: of what has no descriptor and is to be looked at, and of connections over
    /// shared memory on which a thread has sent what others had queued. Only that thread knows that there may be room again.
    news: Mutex<Vec<u64>>,
    /// Begins and ends of sessions whose hooks are to run.
    pub(in crate::server) session_events: Arc<SessionEvents>,
    /// Objects that clients have released, and whose owners are to be told.
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

/// What [`Shared::new`] takes.
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
            crew: Crew::new(limits.max_concurrency, limits.most_streams()),
            limits,
            notice,
            leadership,
            poller,
            releases: Releases::new(Arc::clone(&wake)),
            news: Mutex::default(),
            wake,
            stopping: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            delivery: AtomicU8::new(UNASKED),
            loop_watch: LoopWatch::default(),
            place: OnceLock::new(),
            in_flight: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            unsent_connections: AtomicUsize::new(0),
            came_too_late: AtomicUsize::new(0),
            statistics,
            roster: Roster::default(),
            budget,
            kept_back,
            held_up: HeldUp::default(),
            session_events,
        })
    }

    /// The server begins to stop: it takes no new clients and no new calls.
    pub(in crate::server) fn begin_to_stop(&self) {
        // Release: a worker that sees the flag also sees what was done before the stop began.
        self.stopping.store(true, Ordering::Release);
    }

    /// Whether the server takes no more calls.
    pub(in crate::server) fn is_stopping(&self) -> bool {
        // Acquire: after the Release of `begin_to_stop`.
        self.stopping.load(Ordering::Acquire)
    }

    /// The stop is over: workers return.
    pub(in crate::server) fn end(&self) {
        // Release: a worker that sees the flag also sees what the stop has done.
        self.stopped.store(true, Ordering::Release);
    }

    pub(in crate::server) fn is_stopped(&self) -> bool {
        // Acquire: after the Release of `end`.
        self.stopped.load(Ordering::Acquire)
    }

    /// Asks the reactor whether the clients have all that was sent, unless it was asked before. Whether it has found
    /// that they have.
    pub(in crate::server) fn ask_delivery(&self) -> bool {
        // AcqRel: the thread that answers sees that no call was under way when this was asked.
        self.delivery.compare_exchange(UNASKED, ASKED, Ordering::AcqRel, Ordering::Acquire) == Err(DELIVERED)
    }

    /// Whether the question of `ask_delivery` waits for an answer. No call was under way when it was asked.
    pub(in crate::server) fn asks_delivery(&self) -> bool {
        // Acquire: this thread sees what was sent before the question.
        self.delivery.load(Ordering::Acquire) == ASKED
    }

    /// Answers the question of `ask_delivery`: the clients have all that was sent.
    pub(in crate::server) fn answer_delivery(&self) {
        // Release: before the Acquire of the thread that asks again.
        self.delivery.store(DELIVERED, Ordering::Release);
    }

    /// The statistics of the calls, and how busy the server is. For a call that asks for them.
    pub(in crate::server) fn snapshot(&self) -> Snapshot {
        let (threads, idle_threads) = self.leadership.workers();
        // Relaxed: each number is true for itself, and out of date a moment later.
        Snapshot {
            pid: std::process::id(),
            version: crate::VERSION,
            connections: self.connections.load(Ordering::Relaxed),
            threads,
            idle_threads,
            queued: self.crew.queued(),
            // Without the call that asks.
            in_flight: self.in_flight.load(Ordering::Relaxed).saturating_sub(1),
            memory: self.budget.used(),
            max_memory: self.budget.limit(),
            worker: self.place.get().map(|(number, _)| *number),
            workers: self.place.get().map_or(1, |(_, count)| *count),
            loop_held_up: self.loop_watch.held().map_or(0.0, |time| time.as_secs_f64()),
            ..self.statistics.snapshot()
        }
    }

    /// The first connections whose numbers are greater than `after`, at most `limit`.
    pub(in crate::server) fn connection_rows(&self, after: u64, limit: usize) -> Vec<ConnectionRow> {
        self.roster.page(after, limit, self.place.get().copied())
    }

    /// There may be something to receive from what has this token, or room again: the receiving thread is to look.
    #[cold]
    pub(in crate::server) fn tell_news(&self, token: u64) {
        let mut tokens = self.news.lock();
        if !tokens.contains(&token) {
            tokens.push(token);
        }
        drop(tokens);
        self.wake_reactor();
    }

    /// Takes the tokens of what is to be looked at. For the receiving thread.
    pub(in crate::server) fn take_news(&self) -> Vec<u64> {
        std::mem::take(&mut *self.news.lock())
    }

    pub(in crate::server) fn wake_reactor(&self) {
        descriptors::signal(&self.wake);
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
        self.wake_reactor();
    }
}
