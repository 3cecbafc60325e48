//! The workers of a server by number: how many there are, what they do, and how much work waits for one.
//!
//! Work that finds as many handlers running as may waits in a queue, and the thread that receives may fall asleep. So
//! each time a handler leaves its place, some thread must look at the queue; the models in `crates/models` try that.

use crate::sync::{AtomicUsize, Ordering, fence};

/// How many workers do what.
#[derive(Debug)]
pub(in crate::server) struct Crew {
    /// How many handlers may run in threads.
    most: usize,
    /// How many workers are alive.
    workers: AtomicUsize,
    /// How many threads were started to be workers, and are none yet.
    starting: AtomicUsize,
    /// How many of them wait for the lead.
    standby: AtomicUsize,
    /// How many of them run handlers, without those that wait in a handler for a reply. Wraps below 0, if a worker waits
    /// that runs none.
    busy: AtomicUsize,
    /// How many of them wait in handlers for replies to calls of their own, and do not receive themselves.
    waiting: AtomicUsize,
    /// How many pieces of work wait for a worker.
    queued: AtomicUsize,
}

impl Crew {
    pub(in crate::server) fn new(most: usize) -> Self {
        Self {
            most,
            workers: AtomicUsize::new(0),
            starting: AtomicUsize::new(0),
            standby: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
        }
    }

    /// One worker more.
    pub(in crate::server) fn join(&self) {
        // Relaxed, as all counts that say only how many threads to keep: a wrong answer is corrected when this is asked
        // again.
        self.workers.fetch_add(1, Ordering::Relaxed);
    }

    /// One worker less.
    pub(in crate::server) fn leave(&self) {
        self.workers.fetch_sub(1, Ordering::Relaxed);
    }

    pub(in crate::server) fn workers(&self) -> usize {
        self.workers.load(Ordering::Relaxed)
    }

    /// A thread is started that is to be a worker.
    pub(in crate::server) fn begin_starting(&self) {
        self.starting.fetch_add(1, Ordering::Relaxed);
    }

    /// That thread has become a worker, or could not be started. Harmless for a worker that nobody has announced.
    pub(in crate::server) fn end_starting(&self) {
        let mut starting = self.starting.load(Ordering::Relaxed);
        while let Some(fewer) = starting.checked_sub(1) {
            match self.starting.compare_exchange(starting, fewer, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => starting = now,
            }
        }
    }

    /// How many workers there are or soon will be.
    pub(in crate::server) fn all(&self) -> usize {
        self.workers() + self.starting.load(Ordering::Relaxed)
    }

    /// How many of them are free to receive, now or soon.
    #[inline]
    pub(in crate::server) fn ready(&self) -> usize {
        self.standby() + self.starting.load(Ordering::Relaxed)
    }

    /// A worker is about to wait for the lead.
    pub(in crate::server) fn begin_standby(&self) {
        self.standby.fetch_add(1, Ordering::Relaxed);
    }

    /// See [`Crew::begin_standby`].
    pub(in crate::server) fn end_standby(&self) {
        self.standby.fetch_sub(1, Ordering::Relaxed);
    }

    pub(in crate::server) fn standby(&self) -> usize {
        self.standby.load(Ordering::Relaxed)
    }

    /// Takes a place for a handler, if one is free.
    #[inline]
    pub(in crate::server) fn begin(&self) -> bool {
        let mut busy = self.busy.load(Ordering::Relaxed);
        loop {
            if !self.has_place(busy) {
                return false;
            }
            // Relaxed, both: only the number counts.
            match self.busy.compare_exchange(busy, busy.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => busy = now,
            }
        }
    }

    /// The handler is through. The caller must look [whether work waits](Crew::may_begin) before it sleeps or ends.
    #[inline]
    pub(in crate::server) fn end(&self) {
        // Relaxed: the fence of `may_begin` orders it.
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }

    /// The handler is about to wait for a reply, and leaves its place. Whether work waits that may begin there: then the
    /// caller must wake a thread that looks for it.
    pub(in crate::server) fn begin_waiting(&self) -> bool {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.end();
        self.may_begin()
    }

    /// The handler goes on. It does not wait for a place: for a moment there may be more than are allowed.
    pub(in crate::server) fn end_waiting(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.busy.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::server) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether as many handlers run as may.
    pub(in crate::server) fn is_full(&self) -> bool {
        !self.has_place(self.busy.load(Ordering::Relaxed))
    }

    fn has_place(&self, busy: usize) -> bool {
        busy.cast_signed() < self.most.cast_signed()
    }

    /// How much work waits, after a change.
    pub(in crate::server) fn set_queued(&self, queued: usize) {
        // Release: a thread that sees the count finds the work.
        self.queued.store(queued, Ordering::Release);
    }

    #[inline]
    pub(in crate::server) fn queued(&self) -> usize {
        // Acquire: after the Release of `set_queued`.
        self.queued.load(Ordering::Acquire)
    }

    /// Whether work waits, and a place is free. To be asked before a thread sleeps.
    pub(in crate::server) fn may_begin(&self) -> bool {
        // SeqCst: a thread that queues work asks this after that, and so does a thread that leaves its place. At least one
        // of the two sees what the other has done.
        fence(Ordering::SeqCst);
        self.queued() > 0 && !self.is_full()
    }
}
