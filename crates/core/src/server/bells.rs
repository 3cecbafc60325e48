//! The system's poller, and the bells that wake those who sleep in it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

/// The system's poller.
pub(super) type Poller = OwnedFd;
/// Wakes one that sleeps in a poller.
pub(super) type Bell = OwnedFd;

pub(super) fn new_poller() -> io::Result<Poller> {
    Ok(epoll::create(CreateFlags::CLOEXEC)?)
}

pub(super) fn new_bell() -> io::Result<Bell> {
    Ok(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Silences it.
pub(super) fn silence(bell: &Bell) {
    // It fails if it did not ring.
    let _ = rustix::io::read(bell, &mut [0; 8]);
}

/// Wakes whoever sleeps at the bell.
pub(super) fn ring(bell: &Bell) {
    // It fails only when the counter is full, and then the sleeper is awake.
    let _ = rustix::io::write(bell.as_fd(), &1_u64.to_ne_bytes());
}

/// Sleeps until the poller has seen something, or the bell has rung, and silences the bell.
pub(super) fn wait_for_either(poller: &Poller, bell: &Bell) {
    let mut both = [PollFd::new(poller, PollFlags::IN), PollFd::new(bell, PollFlags::IN)];
    // An error is a signal; the caller looks again.
    let _ = rustix::event::poll(&mut both, None);
    silence(bell);
}

/// Whether the poller has seen something.
pub(super) fn is_readable(poller: &Poller) -> bool {
    let mut one = [PollFd::new(poller, PollFlags::IN)];
    rustix::event::poll(&mut one, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}
