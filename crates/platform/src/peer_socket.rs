//! The socket of a connection, as long as it lasts.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, Shutdown, sockopt};

use crate::closing::close_aside;
use crate::fork::Owner;
use crate::sys::{Received, receive_memory};

/// So much of what the peer has sent is looked through at the end of a connection.
const MOST_READS: usize = 64;

/// The socket of a connection. When it is dropped, nobody waits for descriptors that the peer has sent and nobody has
/// read: closing the socket would let go of them, too.
#[derive(Debug)]
pub struct PeerSocket {
    /// There until it is dropped.
    socket: Option<OwnedFd>,
    owner: Owner,
}

impl PeerSocket {
    /// From now on it belongs to this process.
    #[must_use]
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket: Some(socket), owner: Owner::this_process() }
    }

    /// The socket, for who goes on with it.
    #[must_use]
    pub fn into_socket(mut self) -> OwnedFd {
        self.socket.take().expect("it is there until it is dropped")
    }
}

impl AsFd for PeerSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_ref().expect("it is there until it is dropped").as_fd()
    }
}

impl Drop for PeerSocket {
    fn drop(&mut self) {
        let Some(socket) = self.socket.take() else { return };
        // In a forked child the connection is the parent's, which may go on with it. Others than Unix sockets bring no
        // descriptors.
        if self.owner.is_this_process()
            && sockopt::socket_domain(&socket).is_ok_and(|domain| domain == AddressFamily::UNIX)
            && !is_emptied(&socket)
        {
            close_aside(socket);
        }
    }
}

/// Takes what is unread, mostly nothing or a few bells. Whether that was all.
fn is_emptied(socket: &OwnedFd) -> bool {
    // From then on nothing comes any more.
    let _ = rustix::net::shutdown(socket, Shutdown::Read);
    (0..MOST_READS).any(|_| {
        match receive_memory(socket.as_fd(), &mut [0; 4096], &mut Vec::new(), RecvFlags::DONTWAIT) {
            Ok(Received { bytes, .. }) => bytes == 0,
            // The system tells of an error once nothing is unread.
            Err(error) => error != rustix::io::Errno::INTR,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::sys::send_with_fds;

    const LINGERS: Duration = Duration::from_secs(60);

    /// A socket whose last closing waits, and its other end.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let mut here = TcpStream::connect(listener.local_addr().expect("its address")).expect("a connection");
        let (there, _) = listener.accept().expect("its other end");
        here.set_nonblocking(true).expect("a socket");
        while here.write(&[0; 1 << 12]).is_ok() {}
        sockopt::set_socket_linger(&here, Some(LINGERS)).expect("an option of it");
        (here.into(), there)
    }

    #[test]
    fn who_gives_a_descriptor_away_to_be_closed_does_not_wait() {
        let begun = Instant::now();
        let (socket, _other) = lingering();
        close_aside(socket);
        assert!(begun.elapsed() < LINGERS / 2);
    }

    #[test]
    fn who_ends_a_connection_does_not_wait_for_what_it_brought() {
        let begun = Instant::now();
        let (here, there) = UnixStream::pair().expect("a pair");
        let (socket, _other) = lingering();
        send_with_fds(there.as_fd(), b"x", &[socket.as_fd()]).expect("it takes a byte");
        drop(socket);
        drop(PeerSocket::new(here.into()));
        assert!(begun.elapsed() < LINGERS / 2);
    }
}
