//! What the thread that holds the reactor notes of a client. Nobody else reads or writes it.

use crate::sync::{AtomicU8, Ordering};

/// The client is in one of the lists of clients to look at, or is stalled.
pub(in crate::server) const LISTED: u8 = 1;
/// Nothing is read from the client.
pub(in crate::server) const STALLED: u8 = 2;
/// The client has hung up. The one-way calls that it sent before are still handled.
pub(in crate::server) const HUNG_UP: u8 = 4;
/// The client was sent the last goodbye: no call of it begins any more.
pub(in crate::server) const PARTED: u8 = 8;

/// The marks of one client. An atomic only because clients are shared between threads.
#[derive(Debug, Default)]
pub(in crate::server) struct Marks(AtomicU8);

impl Marks {
    #[inline]
    pub(in crate::server) fn has(&self, mark: u8) -> bool {
        // Relaxed, here and below: the reactor's lock orders what its holders do.
        self.0.load(Ordering::Relaxed) & mark != 0
    }

    /// Sets a mark. Whether it was not set before.
    #[inline]
    pub(in crate::server) fn set(&self, mark: u8) -> bool {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before | mark, Ordering::Relaxed);
        before & mark == 0
    }

    #[inline]
    pub(in crate::server) fn clear(&self, mark: u8) {
        self.0.store(self.0.load(Ordering::Relaxed) & !mark, Ordering::Relaxed);
    }
}
