//! `tcp://host:port`: where it may lead, and how a peer is noticed that vanished without a word.

use std::fmt::{self, Display};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use super::address::Address;
use super::{
    Bound, Clients, Comeback, Dialled, Dialling, Each, Finding, Memory, Place, Speaks, Transport, accept_from,
};
use crate::dial::Pace;
use crate::handed::ConnectionPermit;
use crate::link::Options;
use crate::peer::Admission;

/// Silence after which the system asks whether the peer is still there.
const IDLE: Duration = Duration::from_secs(30);
/// Between two such questions.
const INTERVAL: Duration = Duration::from_secs(10);
/// Questions without an answer that end the connection.
const QUESTIONS: u32 = 3;
/// How long what was sent may stay unacknowledged.
const UNACKNOWLEDGED: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Tcp;

impl Transport for Tcp {
    fn form(&self) -> &'static str {
        "tcp://host:port"
    }

    fn parse(&self, rest: &str) -> Result<Arc<dyn Place>, String> {
        let (scheme, speaks) = (self.scheme(), Speaks::Nearcall);
        Ok(Arc::new(Plain { scheme, address: Address::parse(scheme, rest)?, speaks }))
    }
}

/// An address that is spoken to without encryption.
#[derive(Debug, Clone)]
pub(super) struct Plain {
    pub(super) scheme: &'static str,
    pub(super) address: Address,
    pub(super) speaks: Speaks,
}

impl Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.address)
    }
}

impl Place for Plain {
    fn dial<'a>(&'a self, _: &'a Options, pace: &'a Pace) -> Dialling<'a> {
        Box::pin(async move {
            let socket = self.address.dial(self, pace).await?;
            Ok(Dialled { socket, memory: Memory::Never, tls: None, speaks: self.speaks })
        })
    }

    fn servers<'a>(&'a self, options: &'a Options, each: Each, pace: &'a Pace) -> Finding<'a> {
        self.address.find(self, options, each, false, pace, |address| Arc::new(Self { address, ..self.clone() }))
    }

    fn key(&self) -> String {
        format!("{self}{}", self.address.place())
    }

    fn bind(&self, options: &Options) -> io::Result<Bound> {
        let (clients, address) = self.address.listen(self, options.allow_plaintext)?;
        Ok(Bound {
            clients: Box::new(clients),
            place: Arc::new(Self { address, ..self.clone() }),
            memory: Memory::Never,
            tls: None,
            admission: Admission::default(),
            speaks: self.speaks,
        })
    }

    fn comeback(&self) -> Comeback {
        Comeback::Far
    }
}

/// Takes clients from a TCP socket.
#[derive(Debug)]
pub(super) struct Listening(pub(super) TcpListener);

impl Clients for Listening {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn accept(&self) -> rustix::io::Result<(OwnedFd, Option<Arc<ConnectionPermit>>)> {
        let accepted = accept_from(&self.0)?;
        // It fails only for a client that is gone already, which its handshake will show.
        let _ = prepare(&accepted.0);
        Ok(accepted)
    }
}

/// Sets up a connection's socket, on either side.
pub(super) fn prepare(socket: impl AsFd) -> io::Result<()> {
    // A call is small and waits for its reply: Nagle's algorithm would only delay it.
    sockopt::set_tcp_nodelay(&socket, true)?;
    // A machine that lost its power or its network sends no goodbye.
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
