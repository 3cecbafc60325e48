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
    /// How many workers run handlers, without those that wait in a handler for a reply. Wraps below 0, if a worker waits
    /// that runs none.
    busy: AtomicUsize,
    /// How many of these handlers are those of streams, whether they wait or not.
    streams: AtomicUsize,
    /// How many workers wait in handlers for replies to calls of their own, and do not receive themselves.
    waiting: AtomicUsize,
    /// How many pieces of work wait for a worker, and in the upper half how many of them are streams.
    queued: AtomicU64,
}

/// Where the number of streams stands in the count of work that waits.
const STREAMS: u32 = 32;
const OTHERS: u64 = (1 << STREAMS) - 1;

impl Crew {
    pub(in crate::server) fn new(most: usize, most_streams: usize) -> Self {
        Self {
            most,
            most_streams,
            busy: AtomicUsize::new(0),
            streams: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            queued: AtomicU64::new(0),
        }
    }

    /// Takes a place for a handler, if one is free.
    #[inline]
    pub(in crate::server) fn begin(&self) -> bool {
        take(&self.busy, self.most)
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
        !has_place(self.busy.load(Ordering::Relaxed), self.most)
    }

    /// Takes a place among the handlers of streams, if one is free.
    pub(in crate::server) fn begin_stream(&self) -> bool {
        take(&self.streams, self.most_streams)
    }

    /// The handler of a stream is through.
    pub(in crate::server) fn end_stream(&self) {
        // Relaxed: only the number counts.
        self.streams.fetch_sub(1, Ordering::Relaxed);
    }

    pub(in crate::server) fn may_stream(&self) -> bool {
        // Relaxed: only a hint; `begin_stream` takes the place.
        has_place(self.streams.load(Ordering::Relaxed), self.most_streams)
    }

    /// How much work waits, and how many streams are in it, after a change.
    pub(in crate::server) fn set_queued(&self, queued: usize, streams: usize) {
        // Release: a thread that sees the count finds the work.
        self.queued.store((streams as u64) << STREAMS | queued as u64, Ordering::Release);
    }

    #[inline]
    pub(in crate::server) fn queued(&self) -> usize {
        // Acquire: after the Release of `set_queued`.
        (self.queued.load(Ordering::Acquire) & OTHERS) as usize
    }

    /// Whether work waits, and a place is free. To be asked before a thread sleeps.
    pub(in crate::server) fn may_begin(&self) -> bool {
        // SeqCst: a thread that queues work asks this after that, and so does a thread that leaves its place. At least one
        // of the two sees what the other has done.
        fence(Ordering::SeqCst);
        // Acquire: as in `queued`.
        let queued = self.queued.load(Ordering::Acquire);
        queued > 0 && !self.is_full() && (queued & OTHERS > queued >> STREAMS || self.may_stream())
    }
}

/// Adds one to a count, if it is below `most`.
#[inline]
fn take(count: &AtomicUsize, most: usize) -> bool {
    let mut taken = count.load(Ordering::Relaxed);
    while has_place(taken, most) {
        // Relaxed, all: only the number counts.
        match count.compare_exchange(taken, taken.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(now) => taken = now,
        }
    }
    false
}

fn has_place(taken: usize, most: usize) -> bool {
    taken.cast_signed() < most.cast_signed()
}
