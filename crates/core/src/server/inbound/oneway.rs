//! One-way calls of a client are handled one after the other, in the order in which the client sent them. The client
//! gets no reply, so it could not wait for the first call itself before it sends the second.

use std::collections::VecDeque;

use nearcall_platform::lock::Mutex;

use crate::sync::{AtomicUsize, Ordering};

/// The order of one client's one-way requests.
#[derive(Debug)]
pub(in crate::server) struct OnewayOrder<R> {
    /// The requests that wait while another one runs; `None` while none does.
    waiting: Mutex<Option<VecDeque<Box<R>>>>,
    /// How many requests were received and are not finished.
    pending: AtomicUsize,
}

impl<R> Default for OnewayOrder<R> {
    fn default() -> Self {
        Self { waiting: Mutex::default(), pending: AtomicUsize::new(0) }
    }
}

impl<R> OnewayOrder<R> {
    /// Gives the request back if it may be handled now; `None` if it waits for an earlier one.
    pub(in crate::server) fn begin(&self, request: Box<R>) -> Option<Box<R>> {
        let mut waiting = self.waiting.lock();
        if let Some(waiting) = &mut *waiting {
            waiting.push_back(request);
            return None;
        }
        *waiting = Some(VecDeque::new());
        Some(request)
    }

    /// The request that has waited for the one just handled.
    pub(in crate::server) fn next(&self) -> Option<Box<R>> {
        let mut waiting = self.waiting.lock();
        let next = waiting.as_mut()?.pop_front();
        if next.is_none() {
            *waiting = None;
        }
        next
    }

    /// Drops the requests that wait: the server ends.
    pub(in crate::server) fn clear(&self) {
        let waiting = self.waiting.lock().as_mut().map(std::mem::take);
        drop(waiting);
    }

    /// Whether no counted request is under way.
    pub(in crate::server) fn is_idle(&self) -> bool {
        // Relaxed: as in `count`.
        self.pending.load(Ordering::Relaxed) == 0
    }

    /// Counts a request that was received. Whether no other is under way.
    pub(in crate::server) fn count(&self) -> bool {
        // Relaxed: a bound on memory, exact enough.
        self.pending.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// A counted request is finished.
    pub(in crate::server) fn one_finished(&self) {
        // Relaxed: as in `count`.
        self.pending.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether at most one counted request is under way.
    pub(in crate::server) fn is_alone(&self) -> bool {
        // Relaxed: as in `count`.
        self.pending.load(Ordering::Relaxed) <= 1
    }
}
