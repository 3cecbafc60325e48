//! What an event loop waits for at a node: room in a queue, and replies.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use nearcall_core::lock::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use crate::message::Transaction;
use crate::sync::{AtomicUsize, Ordering};

/// Rings when there may be room for a message that waits, and for each reply.
#[derive(Debug, Default)]
pub struct Bell {
    event: OnceLock<OwnedFd>,
    /// Messages that wait for room.
    waiting: AtomicUsize,
    /// Calls whose replies have come.
    answered: Mutex<Vec<Transaction>>,
}

impl Bell {
    /// The descriptor that the loop polls for reading.
    ///
    /// # Errors
    /// What the system says.
    pub fn event(&self) -> io::Result<BorrowedFd<'_>> {
        if self.event.get().is_none() {
            // If two threads get here at once, one of the two descriptors stays.
            let _ = self.event.set(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        }
        Ok(self.event.get().expect("it was just set").as_fd())
    }

    /// Stops ringing. Returns the transaction numbers of the calls whose replies have come since.
    pub fn take(&self) -> Vec<Transaction> {
        if let Some(event) = self.event.get() {
            // It can fail only if it does not ring. Before the replies are taken: the next one rings again.
            let _ = rustix::io::read(event, &mut [0; 8]);
        }
        std::mem::take(&mut self.answered.lock())
    }

    /// A message waits for room from now on. It must be tried once more after this.
    pub(crate) fn begin_waiting(&self) {
        // Relaxed, all three: who tries takes the lock of a queue after this, and who rings has had it before.
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_waiting(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// There may be room.
    pub(crate) fn ring_for_room(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.ring();
        }
    }

    /// The reply to this call has come.
    pub(crate) fn ring_for_reply(&self, transaction: Transaction) {
        self.answered.lock().push(transaction);
        self.ring();
    }

    fn ring(&self) {
        if let Some(event) = self.event.get() {
            // It can fail only if it rings already.
            let _ = rustix::io::write(event, &1u64.to_ne_bytes());
        }
    }
}
