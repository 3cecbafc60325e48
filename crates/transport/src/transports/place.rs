//! The traits of a transport: how its URLs are parsed, and how each side gets a socket.

use std::fmt::{Debug, Display};
use std::future::Future;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};

use super::clients::Clients;
use crate::errors::ConnectError;
use crate::link::pace::Pace;
use crate::options::Options;
use crate::peer::{Admission, Peer};

/// A way to reach a server.
pub(crate) trait Transport: Sync {
    /// The form of its URLs, such as `shm://name`.
    fn form(&self) -> &'static str;

    /// The place that `rest` names: a URL of this transport without `scheme://`.
    ///
    /// # Errors
    /// What is wrong with the URL, for the user.
    fn parse(&self, rest: &str) -> Result<Arc<dyn Place>, String>;

    /// The part of the URL before the colon.
    fn scheme(&self) -> &'static str {
        self.form().split(':').next().unwrap_or_default()
    }
}

/// Where a server is. Displayed as its URL.
pub(crate) trait Place: Debug + Display + Send + Sync {
    /// Connects a socket to the server there.
    fn dial<'a>(&'a self, options: &'a Options, pace: &'a Pace) -> Dialling<'a>;

    /// The servers at this place, in the order in which to try them: a name may have several addresses, and a URL may
    /// list several hosts. Empty if the place itself is a server that can be dialled.
    fn servers<'a>(&'a self, _options: &'a Options, _each: Each, _pace: &'a Pace) -> Finding<'a> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Tells this place from those of other servers. A name with several addresses is displayed alike for each of them.
    fn key(&self) -> String {
        self.to_string()
    }

    /// Listens there.
    ///
    /// # Errors
    /// With a sentence that names the URL: the URL is in use, the options do not allow it (`InvalidInput`), or the
    /// system refuses.
    fn bind(&self, options: &Options) -> io::Result<Bound>;

    /// What to expect of this place while no server is there.
    fn comeback(&self) -> Comeback;
}

/// What to expect of a place without a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comeback {
    /// A server may come, and can be looked for at the cost of one system call.
    Near,
    /// A server may come, but looking for it costs the network and others something.
    Far,
    /// No server will come: there was one connection only.
    Never,
}

/// What [`Place::servers`] counts as one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Each {
    /// Each address to connect to; behind a proxy, each address of the proxy.
    Address,
    /// Each address of a server; behind a proxy, which looks names up itself, each host.
    Server,
}

/// One of several servers.
#[derive(Debug)]
pub(crate) struct Found {
    /// Where it is.
    pub(crate) place: Arc<dyn Place>,
    /// The index of its host in the URL.
    pub(crate) host: usize,
}

/// A search for servers under way.
pub(crate) type Finding<'a> = Pin<Box<dyn Future<Output = Result<Vec<Found>, ConnectError>> + Send + 'a>>;

/// A dial under way.
pub(crate) type Dialling<'a> = Pin<Box<dyn Future<Output = Result<Dialled, ConnectError>> + Send + 'a>>;

/// A socket to a server, before the handshake.
#[derive(Debug)]
pub(crate) struct Dialled {
    pub(crate) socket: OwnedFd,
    pub(crate) memory: SharedMemory,
    /// The configuration of TLS, and the name that the server's certificate must have.
    pub(crate) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    pub(crate) speaks: Speaks,
}

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// nearcall's own protocol.
    Nearcall,
    /// gRPC over HTTP/2, without a handshake of nearcall.
    Grpc,
    /// gRPC, gRPC-Web, Connect and JSON, over HTTP/2 or HTTP/1.1. nearcall's clients speak Connect.
    Http,
}

impl Speaks {
    /// The protocols that TLS may agree on (ALPN); empty if none has to be.
    pub(super) fn alpn(self) -> Vec<Vec<u8>> {
        match self {
            Self::Nearcall => Vec::new(),
            Self::Grpc => vec![b"h2".to_vec()],
            Self::Http => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        }
    }
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

/// A listener at a place.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) clients: Box<dyn Clients>,
    /// The real place: the system may have chosen the port.
    pub(crate) place: Arc<dyn Place>,
    pub(crate) memory: SharedMemory,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) admission: Admission,
    pub(crate) speaks: Speaks,
}
