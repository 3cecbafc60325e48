//! How many handlers run in the threads of a server, and how much work waits for one.
//!
//! Work that finds as many handlers running as may waits in a queue, and the thread that receives may fall asleep. So
//! each time a handler leaves its place, some thread must look at the queue; the models in `crates/models` try that.

use crate::sync::{AtomicU64, AtomicUsize, Ordering, fence};

/// How many handlers run, and how much work waits.
#[derive(Debug)]
pub(in crate::server) struct Crew {
    /// How many handlers may run in threads.
    most: usize,
    /// How many handlers of streams may.
    most_streams: usize,
    /// How many workers run handlers, and in the upper half how many of them wait in these for replies to calls of their
    /// own, and do not receive themselves: they take no place.
    handlers: AtomicU64,
    /// How many of these handlers are those of streams, whether they wait or not.
    streams: AtomicUsize,
    /// How many pieces of work wait for a worker, and in the upper half how many of them are streams.
    queued: AtomicU64,
}

/// Where the second number of two in one word begins.
const UPPER: u32 = 32;
/// One of the second number.
const ONE_UPPER: u64 = 1 << UPPER;

/// The two numbers.
fn two(word: u64) -> (usize, usize) {
    ((word & (ONE_UPPER - 1)) as usize, (word >> UPPER) as usize)
}

impl Crew {
    pub(in crate::server) fn new(most: usize, most_streams: usize) -> Self {
        Self {
            most,
            most_streams,
            handlers: AtomicU64::new(0),
            streams: AtomicUsize::new(0),
            queued: AtomicU64::new(0),
        }
    }

    /// Takes a place for a handler, if one is free.
    #[inline]
    pub(in crate::server) fn begin(&self) -> bool {
        let mut handlers = self.handlers.load(Ordering::Relaxed);
        while self.has_place(handlers) {
            // Relaxed, both: only the numbers count.
            match self.handlers.compare_exchange(handlers, handlers + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => handlers = now,
            }
        }
        false
    }

    /// The handler is through. The caller must look [whether work waits](Crew::may_begin) before it sleeps or ends.
    #[inline]
    pub(in crate::server) fn end(&self) {
        // Relaxed: the fence of `may_begin` orders it.
        self.handlers.fetch_sub(1, Ordering::Relaxed);
    }

    /// The handler is about to wait for a reply, and leaves its place. Whether work waits that may begin there: then the
    /// caller must wake a thread that looks for it.
    pub(in crate::server) fn begin_waiting(&self) -> bool {
        // Relaxed: as in `end`.
        self.handlers.fetch_add(ONE_UPPER, Ordering::Relaxed);
        self.may_begin()
    }

    /// The handler goes on. It does not wait for a place: for a moment there may be more than are allowed.
    pub(in crate::server) fn end_waiting(&self) {
        self.handlers.fetch_sub(ONE_UPPER, Ordering::Relaxed);
    }

    /// How many handlers wait.
    pub(in crate::server) fn waiting(&self) -> usize {
        two(self.handlers.load(Ordering::Relaxed)).1
    }

    /// Whether as many handlers run as may.
    pub(in crate::server) fn is_full(&self) -> bool {
        !self.has_place(self.handlers.load(Ordering::Relaxed))
    }

    fn has_place(&self, handlers: u64) -> bool {
        let (all, waiting) = two(handlers);
        // A worker may wait that runs no handler.
        all.saturating_sub(waiting) < self.most
    }

    /// Takes a place among the handlers of streams, if one is free.
    pub(in crate::server) fn begin_stream(&self) -> bool {
        let mut streams = self.streams.load(Ordering::Relaxed);
        while streams < self.most_streams {
            // Relaxed, both: only the number counts.
            match self.streams.compare_exchange(streams, streams + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => streams = now,
            }
        }
        false
    }

    /// The handler of a stream is through.
    pub(in crate::server) fn end_stream(&self) {
        // Relaxed: the fence of `may_begin` orders it.
        self.streams.fetch_sub(1, Ordering::Relaxed);
    }

    pub(in crate::server) fn may_stream(&self) -> bool {
        // Relaxed: only a hint; `begin_stream` takes the place.
        self.streams.load(Ordering::Relaxed) < self.most_streams
    }

    /// How much work waits, and how many streams are in it, after a change.
    pub(in crate::server) fn set_queued(&self, queued: usize, streams: usize) {
        // Release: a thread that sees the count finds the work.
        self.queued.store((streams as u64) << UPPER | queued as u64, Ordering::Release);
    }

    #[inline]
    pub(in crate::server) fn queued(&self) -> usize {
        self.queued_and_streams().0
    }

    #[inline]
    fn queued_and_streams(&self) -> (usize, usize) {
        // Acquire: after the Release of `set_queued`.
        two(self.queued.load(Ordering::Acquire))
    }

    /// Whether work waits, and a place is free. To be asked before a thread sleeps.
    pub(in crate::server) fn may_begin(&self) -> bool {
        // SeqCst: a thread that queues work asks this after that, and so does a thread that leaves its place. At least one
        // of the two sees what the other has done.
        fence(Ordering::SeqCst);
        let (queued, streams) = self.queued_and_streams();
        queued > 0 && !self.is_full() && (queued > streams || self.may_stream())
    }
}
