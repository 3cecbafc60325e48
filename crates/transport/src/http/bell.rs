//! What the receiving thread of a client's HTTP connection sleeps on: the socket, and a bell that other threads ring.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nearcall_platform::descriptors::{self, EventDescriptor, Poller};
use rustix::event::epoll::{self, EventData, EventFlags};

use crate::signal::Signal;
use crate::sync::{AtomicU8, Ordering};

/// Somebody has rung: whoever rings now has nothing to do.
const RUNG: u8 = 1;
/// The event is readable because of that. Until then it would be cleared too early, and then stay readable for nothing.
const SIGNALLED: u8 = 2;

/// The socket's events that the poller reports.
const ARRIVALS: EventFlags = EventFlags::IN.union(EventFlags::RDHUP);

/// Wakes the sleeping receiving thread when a sending thread has made frames for the core.
#[derive(Debug)]
pub(super) struct Bell {
    /// Readable when the socket is readable, or the bell has rung.
    poller: Poller,
    event: EventDescriptor,
    /// [`RUNG`] and [`SIGNALLED`].
    state: AtomicU8,
}

impl Bell {
    /// A bell beside a socket.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn beside(socket: Signal<'_>) -> io::Result<Self> {
        let bell =
            Self { poller: descriptors::new_poller()?, event: descriptors::new_event()?, state: AtomicU8::new(0) };
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
        if self.state.fetch_or(RUNG, Ordering::AcqRel) & RUNG == 0 {
            descriptors::signal(&self.event);
            self.state.fetch_or(SIGNALLED, Ordering::AcqRel);
        }
    }

    pub(super) fn clear(&self) {
        // Relaxed: a cheap look before the swap.
        if self.state.load(Ordering::Relaxed) == RUNG | SIGNALLED {
            // The event first: if the state went first, a ring in between would lose its signal.
            descriptors::clear(&self.event);
            self.state.swap(0, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::thread;
    use std::time::Instant;

    use nearcall_platform::sys;
    use rustix::event::PollFlags;

    use super::*;
    use crate::sync::AtomicUsize;

    /// A clear that comes between a ring and its signal must not leave the bell readable: its thread would not sleep again.
    #[test]
    fn what_was_cleared_is_silent() {
        const RINGS: usize = 20_000;
        let (socket, _other) = UnixStream::pair().unwrap();
        let bell = Bell::beside(Signal::Descriptor(socket.as_fd())).unwrap();
        let (asked, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 1..=RINGS {
                    while asked.load(Ordering::Acquire) < turn {
                        thread::yield_now();
                    }
                    bell.ring();
                    done.store(turn, Ordering::Release);
                }
            });
            let mut rang = 0;
            for turn in 1..=RINGS {
                asked.store(turn, Ordering::Release);
                while done.load(Ordering::Acquire) < turn {
                    bell.clear();
                }
                bell.clear();
                rang += usize::from(sys::wait_for(bell.fd(), PollFlags::IN, Some(Instant::now())).unwrap());
            }
            assert_eq!(rang, 0, "of {RINGS}");
        });
    }
}
