//! Sleeping until a connection's link has news, in a poller of the sleeping thread or of its event loop.

use std::io;
use std::os::fd::BorrowedFd;

use nearcall_transport::{LinkError, Signal};

use crate::client::connection::Inner;

impl Inner {
    /// The descriptor that becomes readable when the link has news. It is to be asked for before the link is armed.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn signal_fd(&self) -> io::Result<BorrowedFd<'_>> {
        match self.link.signal() {
            Signal::Descriptor(fd) => Ok(fd),
            Signal::Waker(slot) => self.own_event.fd(slot),
        }
    }

    /// That descriptor is readable.
    ///
    /// # Errors
    /// The peer hung up.
    pub(super) fn signalled(&self) -> Result<(), LinkError> {
        self.own_event.clear();
        self.memory.as_ref().map_or(Ok(()), |memory| memory.signalled().map(drop))
    }

    /// This side is awake: it needs no signal.
    pub(super) fn stay_awake(&self) {
        if let Some(memory) = &self.memory {
            memory.disarm();
        }
    }
}
