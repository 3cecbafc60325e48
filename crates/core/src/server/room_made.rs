//! Connections over which a thread has sent what others had queued: there may be room again, and only that thread knows.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use nearcall_platform::descriptors;
use nearcall_platform::lock::Mutex;

/// Such connections, by their tokens.
#[derive(Debug)]
pub(in crate::server) struct RoomMade {
    tokens: Mutex<Vec<u64>>,
    /// Wakes the receiving thread.
    wake: Arc<OwnedFd>,
}

impl RoomMade {
    pub(in crate::server) fn new(wake: Arc<OwnedFd>) -> Self {
        Self { tokens: Mutex::default(), wake }
    }

    /// Adds a connection, and wakes the receiving thread.
    #[cold]
    pub(in crate::server) fn tell(&self, token: u64) {
        let mut tokens = self.tokens.lock();
        if !tokens.contains(&token) {
            tokens.push(token);
        }
        drop(tokens);
        descriptors::signal(&self.wake);
    }

    /// Takes all tokens. For the receiving thread.
    pub(in crate::server) fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *self.tokens.lock())
    }
}
