//! Descriptors that threads sleep at: the system's poller, event descriptors, which wake those who sleep in one, and alarms,
//! which do so later.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};

/// The system's poller (epoll).
pub type Poller = OwnedFd;
/// Wakes one that sleeps in a poller (eventfd): readable from when it was signalled until it is cleared.
pub type EventDescriptor = OwnedFd;
/// Wakes one that sleeps at it when the time has come (timerfd). To set it costs a tenth of waking somebody now.
pub type Alarm = OwnedFd;

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

/// An alarm that is not set.
///
/// # Errors
/// What the system says.
pub fn new_alarm() -> io::Result<Alarm> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    Ok(rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?)
}

/// Sets it, in the place of what it was set to before. At 0 it does not ring at all.
pub fn set_alarm(alarm: &Alarm, after: Duration) {
    let never = Timespec { tv_sec: 0, tv_nsec: 0 };
    // Times of this program are short.
    let at = Timespec::try_from(after).unwrap_or(never);
    // It fails for times that are none.
    let set = Itimerspec { it_interval: never, it_value: at };
    let _ = rustix::time::timerfd_settime(alarm, TimerfdTimerFlags::empty(), &set);
}

/// Keeps it from ringing, if it has not rung yet.
pub fn take_back(alarm: &Alarm) {
    set_alarm(alarm, Duration::ZERO);
}

/// Wakes whoever sleeps at the event descriptor.
pub fn signal(event: &EventDescriptor) {
    // It fails only when the counter is full, and then the sleeper is awake.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

/// Makes it not readable any more. The same for an alarm that has rung.
pub fn clear(event: &EventDescriptor) {
    // It fails if it was not signalled.
    let _ = rustix::io::read(event, &mut [0; 8]);
}

/// Sleeps until the alarm rings, the event descriptor was signalled, or the poller has seen something, if there is one to
/// sleep in. Clears the first two.
pub fn sleep(poller: Option<&Poller>, alarm: &Alarm, event: &EventDescriptor) {
    let (alarmed, signalled) = (PollFd::new(alarm, PollFlags::IN), PollFd::new(event, PollFlags::IN));
    // An error is a signal; the caller looks again.
    let _ = match poller {
        Some(poller) => rustix::event::poll(&mut [alarmed, signalled, PollFd::new(poller, PollFlags::IN)], None),
        None => rustix::event::poll(&mut [alarmed, signalled], None),
    };
    clear(alarm);
    clear(event);
}

/// Whether the poller has seen something.
#[must_use]
pub fn is_readable(poller: &Poller) -> bool {
    let mut one = [PollFd::new(poller, PollFlags::IN)];
    rustix::event::poll(&mut one, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}
