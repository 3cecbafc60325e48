//! What a transport is: how its URLs are read, and how a socket comes about at either side.

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
use crate::options::Options;
use crate::pace::Pace;
use crate::peer::{Admission, Peer};

/// A way to reach a server.
pub(crate) trait Transport: Sync {
    /// How its URLs are written, as in `shm://name`.
    fn form(&self) -> &'static str;

    /// The place that `rest` names: a URL of this transport without `scheme://`.
    ///
    /// # Errors
    /// What is wrong with it, for the user.
    fn parse(&self, rest: &str) -> Result<Arc<dyn Place>, String>;

    /// The part of the URL before the colon.
    fn scheme(&self) -> &'static str {
        self.form().split(':').next().unwrap_or_default()
    }
}

/// Where a server is. It is shown as its URL.
pub(crate) trait Place: Debug + Display + Send + Sync {
    /// Connects a socket to the server there.
    fn dial<'a>(&'a self, options: &'a Options, pace: &'a Pace) -> Dialling<'a>;

    /// The servers there, in the order in which to try them: a name has several addresses, a URL may list several hosts.
    /// Empty if the place is one of them, and can be dialled.
    fn servers<'a>(&'a self, _options: &'a Options, _each: Each, _pace: &'a Pace) -> Finding<'a> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// What tells it from other servers' places. A name may have several addresses, and is shown for each of them.
    fn key(&self) -> String {
        self.to_string()
    }

    /// Listens there.
    ///
    /// # Errors
    /// With a sentence that names the URL: it is served already, the options do not allow it (`InvalidInput`), or the system
    /// refuses.
    fn bind(&self, options: &Options) -> io::Result<Bound>;

    /// What may become of it while no server is there.
    fn comeback(&self) -> Comeback;
}

/// What may become of a place where no server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comeback {
    /// One may come, and whether it has is known at once: looking costs one system call.
    Near,
    /// One may come; to look costs the network and others something.
    Far,
    /// None will: there was one connection.
    Never,
}

/// What counts as one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Each {
    /// Each address that can be connected to, the proxy's if there is one.
    Address,
    /// Each address of a server; behind a proxy, which looks names up, each host.
    Server,
}

/// A server of several.
#[derive(Debug)]
pub(crate) struct Found {
    /// Where it is.
    pub(crate) place: Arc<dyn Place>,
    /// Which of the hosts that were listed it belongs to.
    pub(crate) host: usize,
}

/// A search for servers under way.
pub(crate) type Finding<'a> = Pin<Box<dyn Future<Output = Result<Vec<Found>, ConnectError>> + Send + 'a>>;

/// A dial under way.
pub(crate) type Dialling<'a> = Pin<Box<dyn Future<Output = Result<Dialled, ConnectError>> + Send + 'a>>;

/// A socket to a server that has not been greeted yet.
#[derive(Debug)]
pub(crate) struct Dialled {
    pub(crate) socket: OwnedFd,
    pub(crate) memory: SharedMemory,
    /// How to encrypt it, and the name that the server's certificate has to show.
    pub(crate) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    pub(crate) speaks: Speaks,
}

/// What is spoken on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// nearcall's own protocol.
    Nearcall,
    /// gRPC over HTTP/2, without a handshake of ours.
    Grpc,
    /// The same, gRPC-Web, Connect and JSON, over HTTP/2 or HTTP/1.1. Clients speak Connect.
    Http,
}

impl Speaks {
    /// What TLS is to agree on, if that matters.
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
    /// Over a pair of sockets: the client offers some, and the server says whether it takes it.
    IfBothCan,
}

impl SharedMemory {
    /// Who the kernel says is at the other end of such a connection's socket.
    pub(crate) fn peer_of(self, socket: BorrowedFd<'_>) -> Peer {
        let peer = Peer::of(socket);
        if self == Self::IfBothCan { peer.of_pair() } else { peer }
    }
}

/// What listens at a place.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) clients: Box<dyn Clients>,
    /// Where it really is: the system may have chosen the port.
    pub(crate) place: Arc<dyn Place>,
    pub(crate) memory: SharedMemory,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) admission: Admission,
    pub(crate) speaks: Speaks,
}
