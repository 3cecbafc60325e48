//! Ends a process when another one ends.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use std::{io, thread};

use rustix::event::PollFlags;
use rustix::process::{Signal, getpid, kill_process, set_parent_process_death_signal};

use crate::sys;

/// Has the system kill this process when the thread ends that started it, whatever hangs here by then.
///
/// # Errors
/// What the system says.
pub fn die_with_starter() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Ends this process when the other end of the socket is closed, which the kernel does when its process dies. Sends
/// `SIGTERM` at once, and exits after `patience` in case this process is too busy to react. The other end must never
/// send anything.
///
/// # Errors
/// The system's error, if the thread cannot be started.
pub fn end_with(socket: OwnedFd, patience: Option<Duration>) -> io::Result<()> {
    thread::Builder::new().name("nearcall-lifeline".into()).spawn(move || {
        // A signal has interrupted this thread: look again.
        while sys::wait_for(socket.as_fd(), PollFlags::IN, None).is_err() {}
        // Never fails: a process may signal itself.
        let _ = kill_process(getpid(), Signal::TERM);
        if let Some(patience) = patience {
            thread::sleep(patience);
            // SAFETY: no preconditions. Skips everything that would run at an ordinary exit, because that may be what
            // hangs.
            unsafe { libc::_exit(1) }
        }
    })?;
    Ok(())
}
