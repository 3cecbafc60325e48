//! A process that must not outlive another.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use std::{io, thread};

use rustix::event::PollFlags;
use rustix::process::{Signal, getpid, kill_process};

use crate::sys;

/// Ends this process when the other end of the socket is closed, which the kernel does when its process dies: `SIGTERM` at
/// once, and without further ado after `patience`, should this process be too busy to hear of it. The other end must never
/// send anything.
///
/// # Errors
/// What the system says, if there can be no thread.
pub fn end_with(socket: OwnedFd, patience: Option<Duration>) -> io::Result<()> {
    thread::Builder::new().name("nearcall-lifeline".into()).spawn(move || {
        // Interrupted by a signal that this thread was given: look again.
        while sys::wait_for(socket.as_fd(), PollFlags::IN, None).is_err() {}
        // It fails for no process that may signal itself.
        let _ = kill_process(getpid(), Signal::TERM);
        if let Some(patience) = patience {
            thread::sleep(patience);
            // SAFETY: no preconditions. Nothing that would run at an ordinary exit is waited for: it may be what hangs.
            unsafe { libc::_exit(1) }
        }
    })?;
    Ok(())
}
