//! Descriptors that threads sleep on: the system's poller; event descriptors, which wake a thread that sleeps in a
//! poller; and alarms, which do so later.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};

/// The system's poller (epoll).
pub type Poller = OwnedFd;
/// Wakes a thread that sleeps in a poller (eventfd). Readable from the signal until it is cleared.
pub type EventDescriptor = OwnedFd;
/// Wakes a thread that sleeps on it at a set time (timerfd). Setting an alarm costs a tenth of waking a thread now.
pub type Alarm = OwnedFd;

/// So many descriptors [`make_room`] makes room for. The system's table of them takes 128 KiB.
const ROOM: u64 = 16_384;

/// Lets the system make room for as many descriptors as this process may have, at most [`ROOM`].
///
/// Linux doubles a process's table of descriptors when it is full. In a process with several threads whoever opens the
/// descriptor then waits until no processor can still be reading the old table (`expand_fdtable` in Linux's
/// `fs/file.c`): 10 to 25 ms, in which a thread that accepts clients does nothing else. It is better done once, before
/// there are clients. The table never shrinks.
///
/// `any`: a descriptor of this process; it is duplicated for a moment.
pub fn make_room(any: impl AsFd) {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(ROOM).min(ROOM);
    // Without the room it goes on as before.
    if let Ok(last) = i32::try_from(most.saturating_sub(1)) {
        drop(rustix::io::fcntl_dupfd_cloexec(any, last));
    }
}

/// Makes a poller that watches nothing yet.
///
/// # Errors
/// The system's error.
pub fn new_poller() -> io::Result<Poller> {
    Ok(epoll::create(CreateFlags::CLOEXEC)?)
}

/// Makes an event descriptor that is not signalled.
///
/// # Errors
/// The system's error.
pub fn new_event() -> io::Result<EventDescriptor> {
    Ok(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Makes an alarm that is not set.
///
/// # Errors
/// The system's error.
pub fn new_alarm() -> io::Result<Alarm> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    Ok(rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?)
}

/// Sets the alarm, in place of an earlier setting. With 0 it never rings.
pub fn set_alarm(alarm: &Alarm, after: Duration) {
    let never = Timespec { tv_sec: 0, tv_nsec: 0 };
    // The times in this program are short enough.
    let at = Timespec::try_from(after).unwrap_or(never);
    // Fails only for invalid times.
    let set = Itimerspec { it_interval: never, it_value: at };
    let _ = rustix::time::timerfd_settime(alarm, TimerfdTimerFlags::empty(), &set);
}

/// Stops the alarm, if it has not rung yet.
pub fn take_back(alarm: &Alarm) {
    set_alarm(alarm, Duration::ZERO);
}

/// Wakes the thread that sleeps on the event descriptor.
pub fn signal(event: &EventDescriptor) {
    // Fails only when the counter is full. The sleeping thread is then awake anyway.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

/// Makes an event descriptor unreadable again. Also for an alarm that has rung.
pub fn clear(event: &EventDescriptor) {
    // Fails if it was not signalled.
    let _ = rustix::io::read(event, &mut [0; 8]);
}

/// Sleeps until the alarm rings, the event descriptor is signalled, or the poller, if there is one, has seen something.
/// Clears the alarm and the event descriptor.
pub fn sleep(poller: Option<&Poller>, alarm: &Alarm, event: &EventDescriptor) {
    let (alarmed, signalled) = (PollFd::new(alarm, PollFlags::IN), PollFd::new(event, PollFlags::IN));
    // An error means a signal; the caller looks again.
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

/// Sleeps until one of the descriptors can be read, or its other end hung up, for at most `timeout`. Which of them, in their
/// order.
///
/// # Errors
/// What the system says, of a signal too.
pub fn sleep_at(descriptors: &[BorrowedFd<'_>], timeout: Duration) -> io::Result<Vec<bool>> {
    let mut polled: Vec<PollFd<'_>> =
        descriptors.iter().map(|descriptor| PollFd::from_borrowed_fd(*descriptor, PollFlags::IN)).collect();
    // Times of this program are short.
    let timeout = Timespec::try_from(timeout).ok();
    rustix::event::poll(&mut polled, timeout.as_ref())?;
    Ok(polled.iter().map(|one| !one.revents().is_empty()).collect())
}
