//! How many handlers run in the threads of a server, and how much work waits for one.
//!
//! Work that finds as many handlers running as may waits in a queue, and the thread that receives may fall asleep. So
//! each time a handler leaves its place, some thread must look at the queue; the models in `crates/models` try that.

use nearcall_platform::lock::Mutex;

use super::places::Places;
use crate::sync::{AtomicBool, AtomicU64, Ordering, fence};

/// How many handlers run, and how much work waits.
#[derive(Debug)]
pub(in crate::server) struct Crew {
    /// How many handlers may run in threads.
    most: usize,
    /// How many workers run handlers, and in the upper half how many of them wait in these for replies to calls of their
    /// own, and do not receive themselves: they take no place.
    handlers: AtomicU64,
    /// The places of those that are handlers of streams, whether they wait or not.
    places: Mutex<Places>,
    /// Whether a stream that waits may have a place among these.
    may_stream: AtomicBool,
    /// How many calls and hooks wait for a worker, and in the upper half how many streams.
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
            handlers: AtomicU64::new(0),
            places: Mutex::new(Places::new(most_streams)),
            may_stream: AtomicBool::new(false),
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

    /// Takes a place among the handlers of streams for a client, if it may have one more.
    pub(in crate::server) fn begin_stream(&self, client: u64) -> bool {
        self.change_places(|places| places.take(client))
    }

    /// The handler of a client's stream is through. The caller must look [whether work waits](Crew::may_begin) before it
    /// sleeps or ends.
    pub(in crate::server) fn end_stream(&self, client: u64) {
        self.change_places(|places| places.leave(client));
    }

    /// One more stream of a client is queued.
    pub(in crate::server) fn let_stream_wait(&self, client: u64) {
        self.change_places(|places| places.wait(client));
    }

    /// The client whose queued stream may begin next. For the thread that holds the queue.
    pub(in crate::server) fn next_stream(&self) -> Option<u64> {
        // Relaxed: only a hint.
        if self.may_stream.load(Ordering::Relaxed) { self.places.lock().next() } else { None }
    }

    /// Takes a place for a stream of the client, which was taken out of the queue. `false` if the last place was taken
    /// meanwhile: the stream waits on.
    pub(in crate::server) fn begin_queued_stream(&self, client: u64) -> bool {
        self.change_places(|places| {
            let begins = places.take(client);
            if begins {
                places.end_wait(client);
            }
            begins
        })
    }

    /// A queued stream of the client waits no longer, and does not begin.
    pub(in crate::server) fn end_stream_wait(&self, client: u64) {
        self.change_places(|places| places.end_wait(client));
    }

    fn change_places<R>(&self, change: impl FnOnce(&mut Places) -> R) -> R {
        let mut places = self.places.lock();
        let result = change(&mut places);
        // Relaxed: the lock orders the stores, and the fence of `may_begin` the look of who has left a place.
        self.may_stream.store(places.next().is_some(), Ordering::Relaxed);
        result
    }

    /// Whether all places of streams are taken.
    pub(in crate::server) fn streams_are_full(&self) -> bool {
        self.places.lock().are_full()
    }

    /// How many calls and hooks wait, and how many streams, after a change.
    pub(in crate::server) fn set_queued(&self, others: usize, streams: usize) {
        // Release: a thread that sees the count finds the work.
        self.queued.store((streams as u64) << UPPER | others as u64, Ordering::Release);
    }

    /// How much work waits, with the streams that may not begin yet.
    #[inline]
    pub(in crate::server) fn queued(&self) -> usize {
        let (others, streams) = self.queued_and_streams();
        others + streams
    }

    #[inline]
    fn queued_and_streams(&self) -> (usize, usize) {
        // Acquire: after the Release of `set_queued`.
        two(self.queued.load(Ordering::Acquire))
    }

    /// Whether work waits that lacks only a place among all handlers, or not even that.
    #[inline]
    pub(in crate::server) fn has_queued(&self) -> bool {
        let (others, streams) = self.queued_and_streams();
        // Relaxed: see `change_places`.
        others > 0 || streams > 0 && self.may_stream.load(Ordering::Relaxed)
    }

    /// Whether work waits, and a place is free. To be asked before a thread sleeps.
    pub(in crate::server) fn may_begin(&self) -> bool {
        // SeqCst: a thread that queues work asks this after that, and so does a thread that leaves its place. At least one
        // of the two sees what the other has done.
        fence(Ordering::SeqCst);
        self.has_queued() && !self.is_full()
    }
}
