//! Closing descriptors that others have chosen, without waiting for them.
//!
//! Whoever lets go of a descriptor last does what its closing takes: of a network's socket that may be the wait for its
//! last bytes (`SO_LINGER`), of a file whatever its file system does. A peer that sends such a descriptor over a Unix
//! socket can so make its receiver wait for as long as it likes. Nor need the receiver take it: closing a socket lets go
//! of what was not read from it. So all this happens on threads of their own. Shared memory is let go of at once.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use rustix::net::sockopt;

use crate::lock::InnerMutex;
use crate::per_process::PerProcess;

/// So many threads may wait for a descriptor to close. What comes beyond that stays open until one of them is through.
const MOST_THREADS: usize = 8;

static CLOSING: LazyLock<PerProcess<InnerMutex<Closing>>> = LazyLock::new(|| PerProcess::new(InnerMutex::default));

#[derive(Debug, Default)]
struct Closing {
    waiting: VecDeque<OwnedFd>,
    threads: usize,
}

/// Closes a descriptor on another thread, for that may take as long as its peer likes. A socket of the network is told to
/// wait for nothing: so a peer would have to take more trouble to leave descriptors here than one for each.
pub fn close_aside(fd: OwnedFd) {
    // An error means that it is no socket.
    let _ = sockopt::set_socket_linger(&fd, Some(Duration::ZERO));
    let closing = CLOSING.get();
    {
        let mut closing = closing.lock();
        closing.waiting.push_back(fd);
        if closing.threads >= MOST_THREADS {
            return;
        }
        closing.threads += 1;
    }
    if thread::Builder::new().name("nearcall-closing".into()).spawn(close_all).is_err() {
        // They stay open until there is room for a thread again: better than to wait for them here.
        closing.lock().threads -= 1;
    }
}

fn close_all() {
    let closing = CLOSING.get();
    loop {
        let next = {
            let mut closing = closing.lock();
            let next = closing.waiting.pop_front();
            if next.is_none() {
                closing.threads -= 1;
            }
            next
        };
        match next {
            Some(fd) => drop(fd),
            None => return,
        }
    }
}
