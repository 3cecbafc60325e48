//! Who is told of what arrives for a call, and when.

use std::thread::Thread;

use smallvec::SmallVec;

/// Who is to be told when something arrives for a call.
#[derive(Debug)]
pub(in crate::client) enum Waker {
    /// Nobody: the caller looks by itself.
    None,
    /// Threads that sleep: one that takes what comes, and one that sends a stream and waits for credit.
    Threads(SmallVec<[Thread; 1]>),
    /// The event loop that owns the connection.
    Loop,
}

/// Threads that are woken when it is dropped.
#[derive(Debug, Default)]
pub(in crate::client) struct Woken(pub(in crate::client) SmallVec<[Thread; 2]>);

impl Drop for Woken {
    #[inline]
    fn drop(&mut self) {
        self.0.iter().for_each(Thread::unpark);
    }
}
