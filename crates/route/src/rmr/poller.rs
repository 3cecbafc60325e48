//! What a thread that serves many sockets sleeps on.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use nearcall_platform::descriptors::{self, EventDescriptor};
use rustix::event::epoll::{self, EventData, EventFlags};

/// The number under which the thread is woken.
const WOKEN: u64 = u64::MAX;

/// Watches sockets, each under a number.
#[derive(Debug)]
pub(super) struct Poller {
    poller: descriptors::Poller,
    event: EventDescriptor,
}

/// What is asked of a socket: whether it can be read, and whether it can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Interest {
    pub(super) read: bool,
    pub(super) write: bool,
}

impl Interest {
    pub(super) const READ: Self = Self { read: true, write: false };

    fn flags(self) -> EventFlags {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, self.read);
        flags.set(EventFlags::OUT, self.write);
        flags
    }
}

/// What has happened to a socket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Happened {
    pub(super) number: u64,
    /// It can be read, or is broken.
    pub(super) readable: bool,
    pub(super) writable: bool,
}

impl Poller {
    pub(super) fn new() -> io::Result<Self> {
        let made = Self { poller: descriptors::new_poller()?, event: descriptors::new_event()? };
        epoll::add(&made.poller, &made.event, EventData::new_u64(WOKEN), EventFlags::IN)?;
        Ok(made)
    }

    /// Watches a socket from now on, or for something else. One of which nothing is asked is not watched: it would still be
    /// reported when its other end is gone, again and again.
    pub(super) fn watch(&self, socket: impl AsFd, number: u64, interest: Interest) -> io::Result<()> {
        if interest.flags().is_empty() {
            self.leave(socket);
            return Ok(());
        }
        match epoll::add(&self.poller, &socket, EventData::new_u64(number), interest.flags()) {
            Err(rustix::io::Errno::EXIST) => {
                Ok(epoll::modify(&self.poller, &socket, EventData::new_u64(number), interest.flags())?)
            }
            other => Ok(other?),
        }
    }

    /// Sees nothing more of a socket. It may not have been watched.
    pub(super) fn leave(&self, socket: impl AsFd) {
        let _ = epoll::delete(&self.poller, &socket);
    }

    /// Wakes the thread that sleeps.
    pub(super) fn wake(&self) {
        descriptors::signal(&self.event);
    }

    /// Sleeps until something happens, or for so long.
    pub(super) fn sleep(&self, timeout: Option<Duration>) -> Vec<Happened> {
        let mut events = Vec::with_capacity(64);
        let timeout = timeout.map(nearcall_platform::sys::timespec);
        // An error is a signal; the caller looks again.
        let _ = epoll::wait(&self.poller, rustix::buffer::spare_capacity(&mut events), timeout.as_ref());
        let mut happened = Vec::with_capacity(events.len());
        for event in events {
            let (number, flags) = (event.data.u64(), event.flags);
            if number == WOKEN {
                descriptors::clear(&self.event);
                continue;
            }
            let writable = flags.contains(EventFlags::OUT);
            let readable = flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR);
            happened.push(Happened { number, readable, writable });
        }
        happened
    }
}
