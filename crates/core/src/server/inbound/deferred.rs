//! Requests that are not begun before their client reads what it is sent.

use std::collections::VecDeque;

use nearcall_platform::lock::Mutex;

use crate::sync::{AtomicBool, Ordering};

/// One client's requests that wait for that, in order.
#[derive(Debug)]
pub(in crate::server) struct Deferred<R> {
    requests: Mutex<VecDeque<Box<R>>>,
    /// Whether there are any.
    any: AtomicBool,
}

/// So many may wait; more are not read from the client.
const MOST: usize = 256;

impl<R> Default for Deferred<R> {
    fn default() -> Self {
        Self { requests: Mutex::default(), any: AtomicBool::new(false) }
    }
}

impl<R> Deferred<R> {
    #[inline]
    pub(in crate::server) fn is_empty(&self) -> bool {
        // Relaxed: a worker that defers a request holds the lock, and looks for room under it.
        !self.any.load(Ordering::Relaxed)
    }

    /// Whether as many wait as may.
    pub(in crate::server) fn is_full(&self) -> bool {
        !self.is_empty() && self.requests.lock().len() >= MOST
    }

    /// Lets a request wait, also behind others that wait. Gives it back if it may be begun: if the client `reads`.
    #[cold]
    pub(in crate::server) fn push(&self, request: Box<R>, reads: impl FnOnce() -> bool) -> Option<Box<R>> {
        let mut requests = self.requests.lock();
        // Looked at under the lock, which whoever makes room takes after it.
        if requests.is_empty() && reads() {
            return Some(request);
        }
        requests.push_back(request);
        self.any.store(true, Ordering::Relaxed);
        None
    }

    /// The first request that waited, if the client `reads`; and whether more wait that may be begun.
    pub(in crate::server) fn pop(&self, reads: impl FnOnce() -> bool) -> (Option<Box<R>>, bool) {
        let mut requests = self.requests.lock();
        let first = if reads() { requests.pop_front() } else { None };
        self.any.store(!requests.is_empty(), Ordering::Relaxed);
        let more = first.is_some() && !requests.is_empty();
        (first, more)
    }

    /// Forgets them: the client is gone.
    pub(in crate::server) fn clear(&self) {
        let requests = std::mem::take(&mut *self.requests.lock());
        drop(requests);
    }
}
