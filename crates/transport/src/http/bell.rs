//! What a client's receiver of a connection of HTTP sleeps at: its socket, and a bell that other threads ring.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nearcall_platform::descriptors::{self, EventDescriptor, Poller};
use rustix::event::epoll::{self, EventData, EventFlags};

use crate::sync::{AtomicBool, Ordering};

/// What the poller tells of the socket.
const ARRIVALS: EventFlags = EventFlags::IN.union(EventFlags::RDHUP);

/// Wakes whoever sleeps until something arrives, when a thread that sends has made frames for the core.
#[derive(Debug)]
pub(super) struct Bell {
    /// Readable when the socket is, or the bell has rung.
    poller: Poller,
    event: EventDescriptor,
    rung: AtomicBool,
}

impl Bell {
    /// One beside a socket.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn beside(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let bell =
            Self { poller: descriptors::new_poller()?, event: descriptors::new_event()?, rung: AtomicBool::new(false) };
        bell.watch(socket, true)?;
        epoll::add(&bell.poller, &bell.event, EventData::new_u64(1), EventFlags::IN)?;
        Ok(bell)
    }

    /// Whoever sleeps is woken by the socket, too, or no longer.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn watch(&self, socket: BorrowedFd<'_>, watch: bool) -> rustix::io::Result<()> {
        if watch {
            epoll::add(&self.poller, socket, EventData::new_u64(0), ARRIVALS)
        } else {
            epoll::delete(&self.poller, socket)
        }
    }

    /// To sleep at.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    pub(super) fn ring(&self) {
        // AcqRel, here and below: what was done before it rang is seen by who clears it.
        if !self.rung.swap(true, Ordering::AcqRel) {
            descriptors::signal(&self.event);
        }
    }

    pub(super) fn clear(&self) {
        // Relaxed: a look before the swap, which costs more.
        if self.rung.load(Ordering::Relaxed) {
            // In this order: who rings from here on is heard.
            descriptors::clear(&self.event);
            self.rung.swap(false, Ordering::AcqRel);
        }
    }
}
