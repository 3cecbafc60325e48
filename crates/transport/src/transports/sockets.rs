//! TCP's sockets: connected, set up and accepted.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use crate::link::pace::Pace;
use crate::places::clients::{Clients, ConnectionPermit, accept_from};

/// Silence after which the system asks the peer for a sign of life (keep-alive).
const IDLE: Duration = Duration::from_secs(30);
/// Time between two such questions.
const INTERVAL: Duration = Duration::from_secs(10);
/// So many questions without an answer end the connection.
const QUESTIONS: u32 = 3;
/// How long sent data may stay unacknowledged.
const UNACKNOWLEDGED: Duration = Duration::from_secs(60);

/// Takes clients from a TCP socket.
#[derive(Debug)]
pub(super) struct Listening(pub(super) TcpListener);

impl Clients for Listening {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn accept(&self) -> rustix::io::Result<(OwnedFd, Option<Arc<ConnectionPermit>>)> {
        let accepted = accept_from(&self.0)?;
        // Fails only if the client is gone already, which the handshake will show.
        let _ = prepare(&accepted.0);
        Ok(accepted)
    }
}

/// Sets up a connection's socket, on either side.
pub(super) fn prepare(socket: impl AsFd) -> io::Result<()> {
    // A call is small and waits for its reply: Nagle's algorithm would only delay it.
    sockopt::set_tcp_nodelay(&socket, true)?;
    // A machine without power or network sends no goodbye.
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, IDLE)?;
    sockopt::set_tcp_keepintvl(&socket, INTERVAL)?;
    sockopt::set_tcp_keepcnt(&socket, QUESTIONS)?;
    sockopt::set_tcp_user_timeout(&socket, UNACKNOWLEDGED.as_millis() as u32)?;
    Ok(())
}

/// A connected socket; `None` if time ran out.
pub(super) async fn connect(address: SocketAddr, pace: &Pace) -> io::Result<Option<OwnedFd>> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    if let Err(error) = rustix::net::connect(&socket, &address) {
        if error != rustix::io::Errno::INPROGRESS {
            return Err(error.into());
        }
        if !pace.ready(socket.as_fd(), PollFlags::OUT).await? {
            return Ok(None);
        }
        sockopt::socket_error(&socket)??;
    }
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(Some(socket))
}
