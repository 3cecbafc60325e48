//! What is spoken over a socket, and makes links of sockets.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};

use super::opening::{Accepted, Dialled, Greeted, Greeting};
use super::place::Place;
use crate::peer::Peer;

/// What is spoken over a socket.
#[derive(Debug)]
pub(crate) struct Protocol {
    /// The protocols that TLS may agree on (ALPN); empty if none has to be.
    pub(crate) alpn: &'static [&'static [u8]],
    /// What a client speaks with a server that does not speak this, if there is something.
    pub(crate) fallback: Option<&'static Protocol>,
    /// Greets a server.
    pub(crate) greet: for<'a> fn(Reached, Greeting<'a>) -> Greeted<'a>,
    /// Begins with a client that has just connected. The error is that of TLS.
    pub(crate) accept: fn(Client) -> io::Result<Box<dyn Accepted>>,
}

/// A socket to a server.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) socket: OwnedFd,
    pub(crate) memory: SharedMemory,
    /// The server, if its socket does not say who that is.
    pub(crate) peer: Option<Peer>,
    /// The configuration of TLS, and the name that the server's certificate must have.
    pub(crate) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    pub(crate) protocol: &'static Protocol,
    /// The same place, for what the protocol [falls back](Protocol::fallback) to.
    pub(crate) fallback: Option<Arc<dyn Place>>,
}

impl Reached {
    /// A socket without encryption, which says itself who the server is.
    pub(crate) fn plainly(socket: OwnedFd, memory: SharedMemory, protocol: &'static Protocol) -> Self {
        Self { socket, memory, peer: None, tls: None, protocol, fallback: None }
    }
}

impl Dialled for Reached {
    fn greet(self: Box<Self>, greeting: Greeting<'_>) -> Greeted<'_> {
        (self.protocol.greet)(*self, greeting)
    }
}

/// A client's socket.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) socket: OwnedFd,
    pub(crate) peer: Peer,
    /// Why the client is rejected, if it is.
    pub(crate) stranger: Option<String>,
    pub(crate) memory: SharedMemory,
    pub(crate) tls: Option<Arc<ServerConfig>>,
}

/// Whether the frames of a connection go through memory that both sides share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SharedMemory {
    Never,
    Always,
    /// Over a pair of sockets: the client offers shared memory, and the server says whether it accepts.
    IfBothCan,
}

impl SharedMemory {
    /// The peer at the other end of such a connection's socket, as the kernel knows it.
    pub(crate) fn peer_of(self, socket: BorrowedFd<'_>) -> Peer {
        let peer = Peer::of(socket);
        if self == Self::IfBothCan { peer.of_pair() } else { peer }
    }
}
