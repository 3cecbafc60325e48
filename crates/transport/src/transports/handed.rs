//! Clients that another process has accepted and hands over, one at a time, through a socket.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nearcall_platform::sys;
use rustix::net::RecvFlags;

use super::clients::{Clients, ConnectionPermit, ENDED};

/// The receiving end: each client arrives as one descriptor beside one byte.
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
