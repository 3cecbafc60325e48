//! Where clients come from: a listening socket, or another process that accepts them.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nearcall_platform::descriptors;
use nearcall_platform::fork::Owner;
use rustix::net::SocketFlags;

/// Where clients come from.
pub(crate) trait Clients: Debug + Send + Sync {
    /// A descriptor that is readable when a client waits.
    fn fd(&self) -> BorrowedFd<'_>;

    /// The next client, and its permit if another process handed it over. `AGAIN` if no client waits.
    fn accept(&self) -> rustix::io::Result<(OwnedFd, Option<Arc<ConnectionPermit>>)>;
}

/// The next client of a listening socket.
pub(super) fn accept_from(socket: impl AsFd) -> rustix::io::Result<(OwnedFd, Option<Arc<ConnectionPermit>>)> {
    rustix::net::accept_with(socket, SocketFlags::CLOEXEC).map(|client| (client, None))
}

/// The error of accepting when the other process has gone or hands out no more clients.
pub(super) const ENDED: rustix::io::Errno = rustix::io::Errno::PIPE;

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
    pub(super) fn new(returned: Arc<OwnedFd>) -> Self {
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
