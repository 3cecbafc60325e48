//! Descriptors that threads sleep at: the system's poller, and event descriptors, which wake those who sleep in one.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, CreateFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

/// The system's poller (epoll).
pub type Poller = OwnedFd;
/// Wakes one that sleeps in a poller (eventfd): readable from when it was signalled until it is cleared.
pub type EventDescriptor = OwnedFd;

/// A poller that watches nothing yet.
///
/// # Errors
/// What the system says.
pub fn new_poller() -> io::Result<Poller> {
    Ok(epoll::create(CreateFlags::CLOEXEC)?)
}

/// An event descriptor that is not signalled.
///
/// # Errors
/// What the system says.
pub fn new_event() -> io::Result<EventDescriptor> {
    Ok(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Wakes whoever sleeps at the event descriptor.
pub fn signal(event: &EventDescriptor) {
    // It fails only when the counter is full, and then the sleeper is awake.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

/// Makes it not readable any more.
pub fn clear(event: &EventDescriptor) {
    // It fails if it was not signalled.
    let _ = rustix::io::read(event, &mut [0; 8]);
}

/// Sleeps until the poller has seen something, or the event descriptor was signalled, and clears it.
pub fn wait_for_either(poller: &Poller, event: &EventDescriptor) {
    let mut both = [PollFd::new(poller, PollFlags::IN), PollFd::new(event, PollFlags::IN)];
    // An error is a signal; the caller looks again.
    let _ = rustix::event::poll(&mut both, None);
    clear(event);
}

/// Whether the poller has seen something.
#[must_use]
pub fn is_readable(poller: &Poller) -> bool {
    let mut one = [PollFd::new(poller, PollFlags::IN)];
    rustix::event::poll(&mut one, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}
