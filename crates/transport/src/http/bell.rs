//! What the receiving thread of a client's HTTP connection sleeps on: the socket, and a bell that other threads ring.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nearcall_platform::descriptors::{self, EventDescriptor, Poller};
use rustix::event::epoll::{self, EventData, EventFlags};

use crate::signal::Signal;
use crate::sync::{AtomicBool, Ordering};

/// The socket's events that the poller reports.
const ARRIVALS: EventFlags = EventFlags::IN.union(EventFlags::RDHUP);

/// Wakes the sleeping receiving thread when a sending thread has made frames for the core.
#[derive(Debug)]
pub(super) struct Bell {
    /// Readable when the socket is readable, or the bell has rung.
    poller: Poller,
    event: EventDescriptor,
    rung: AtomicBool,
}

impl Bell {
    /// A bell beside a socket.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn beside(socket: Signal<'_>) -> io::Result<Self> {
        let bell =
            Self { poller: descriptors::new_poller()?, event: descriptors::new_event()?, rung: AtomicBool::new(false) };
        bell.watch(socket, true)?;
        epoll::add(&bell.poller, &bell.event, EventData::new_u64(1), EventFlags::IN)?;
        Ok(bell)
    }

    /// Lets the socket wake the sleeping thread, too, or no longer.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn watch(&self, socket: Signal<'_>, watch: bool) -> rustix::io::Result<()> {
        let Signal::Descriptor(socket) = socket else { return Ok(()) };
        if watch {
            epoll::add(&self.poller, socket, EventData::new_u64(0), ARRIVALS)
        } else {
            epoll::delete(&self.poller, socket)
        }
    }

    /// The descriptor to sleep on.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    pub(super) fn ring(&self) {
        // AcqRel, here and in `clear`: the thread that clears the bell sees what was done before it rang.
        if !self.rung.swap(true, Ordering::AcqRel) {
            descriptors::signal(&self.event);
        }
    }

    pub(super) fn clear(&self) {
        // Relaxed: a cheap look before the swap.
        if self.rung.load(Ordering::Relaxed) {
            // The event first: if `rung` went first, a ring in between would lose its signal.
            descriptors::clear(&self.event);
            self.rung.swap(false, Ordering::AcqRel);
        }
    }
}
