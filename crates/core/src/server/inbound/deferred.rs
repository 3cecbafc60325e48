//! Deferred requests: they do not begin before their client reads what the server sends to it.

use std::collections::VecDeque;

use nearcall_platform::lock::Mutex;

use crate::sync::{AtomicBool, Ordering, fence};

/// One client's deferred requests, in order.
#[derive(Debug)]
pub(in crate::server) struct Deferred<R> {
    requests: Mutex<VecDeque<Box<R>>>,
    /// Whether there are any.
    any: AtomicBool,
}

/// How many requests of one client may wait. Then the server reads no more from the client.
const MAX_WAITING: usize = 256;

impl<R> Default for Deferred<R> {
    fn default() -> Self {
        Self { requests: Mutex::default(), any: AtomicBool::new(false) }
    }
}

impl<R> Deferred<R> {
    #[inline]
    pub(in crate::server) fn is_empty(&self) -> bool {
        // Relaxed: see `push`.
        !self.any.load(Ordering::Relaxed)
    }

    /// Whether as many requests wait as may.
    pub(in crate::server) fn is_full(&self) -> bool {
        !self.is_empty() && self.requests.lock().len() >= MAX_WAITING
    }

    /// Lets a request wait. Gives it back if it may begin now: if no other waits and the client `reads`.
    #[cold]
    pub(in crate::server) fn push(&self, request: Box<R>, reads: impl FnOnce() -> bool) -> Option<Box<R>> {
        let mut requests = self.requests.lock();
        // Relaxed, with the fence: either the look finds room, or the thread that makes room after that, and has a fence
        // there, finds this mark.
        self.any.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if requests.is_empty() && reads() {
            self.any.store(false, Ordering::Relaxed);
            return Some(request);
        }
        requests.push_back(request);
        None
    }

    /// Takes the first request that waits, if the client `reads`.
    #[cold]
    pub(in crate::server) fn pop(&self, reads: impl FnOnce() -> bool) -> Option<Box<R>> {
        let mut requests = self.requests.lock();
        let first = if reads() { requests.pop_front() } else { None };
        self.any.store(!requests.is_empty(), Ordering::Relaxed);
        first
    }

    /// Drops all requests that wait: the client is gone.
    pub(in crate::server) fn clear(&self) {
        let requests = std::mem::take(&mut *self.requests.lock());
        drop(requests);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who makes room just then looks at the mark, and not again.
    #[test]
    fn the_mark_is_there_before_the_look_for_room() {
        let deferred = Deferred::default();
        assert!(deferred.push(Box::new(1), || !deferred.is_empty()).is_some() && deferred.is_empty());
        assert!(deferred.push(Box::new(2), || deferred.is_empty()).is_none() && !deferred.is_empty());
        assert!(deferred.pop(|| false).is_none() && !deferred.is_empty());
        assert_eq!(deferred.pop(|| true), Some(Box::new(2)));
        assert!(deferred.is_empty());
    }
}
