//! Where clients' sockets come from: a listening socket, or another process that accepts them and hands them over, one at a
//! time, through a socket.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nearcall_platform::descriptors;
use nearcall_platform::fork::Owner;
use nearcall_platform::sys;
use rustix::net::{RecvFlags, SocketFlags};

/// Where clients' sockets come from.
pub(crate) trait Clients: Debug + Send + Sync {
    /// A descriptor that is readable when a client waits.
    fn fd(&self) -> BorrowedFd<'_>;

    /// The next client, and its permit if another process handed it over. `AGAIN` if no client waits.
    fn accept(&self) -> rustix::io::Result<(OwnedFd, Option<Arc<ConnectionPermit>>)>;
}

/// The next client of a listening socket.
pub(crate) fn accept_from(socket: impl AsFd) -> rustix::io::Result<(OwnedFd, Option<Arc<ConnectionPermit>>)> {
    rustix::net::accept_with(socket, SocketFlags::CLOEXEC).map(|client| (client, None))
}

/// The error of accepting when the other process has gone or hands out no more clients.
pub(crate) const ENDED: rustix::io::Errno = rustix::io::Errno::PIPE;

/// Whether an error of accepting means that no client will come any more.
#[must_use]
pub fn is_end_of_clients(error: &io::Error) -> bool {
    error.raw_os_error() == Some(ENDED.raw_os_error())
}

/// One client's place in the count of clients that another process handed over. Given back when its last owner drops
/// it.
#[derive(Debug)]
pub struct ConnectionPermit {
    returned: Arc<OwnedFd>,
    owner: Owner,
}

impl ConnectionPermit {
    /// For a client that is counted in the eventfd `returned` when its connection has ended.
    fn new(returned: Arc<OwnedFd>) -> Self {
        Self { returned, owner: Owner::this_process() }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        if self.owner.is_this_process() {
            descriptors::signal(&self.returned);
        }
    }
}

/// The receiving end of a process that hands clients over: each arrives as one descriptor beside one byte.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) channel: OwnedFd,
    /// An eventfd that counts the clients whose connections have ended, for the process that hands them out.
    pub(crate) returned: Arc<OwnedFd>,
}

impl Clients for Handed {
    fn fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    fn accept(&self) -> rustix::io::Result<(OwnedFd, Option<Arc<ConnectionPermit>>)> {
        let mut fds = Vec::new();
        loop {
            match sys::receive_with_fds(self.channel.as_fd(), &mut [0], &mut fds, RecvFlags::DONTWAIT) {
                Ok(received) if received.bytes == 0 => return Err(ENDED),
                Ok(_) => {
                    if let Some(client) = fds.pop() {
                        let permit = ConnectionPermit::new(Arc::clone(&self.returned));
                        return Ok((client, Some(Arc::new(permit))));
                    }
                    // The descriptor was lost on the way: this process has as many as it may. The client sees the
                    // connection end.
                    return Err(rustix::io::Errno::MFILE);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }
}
