//! Who is at the other end.

use std::net::SocketAddr;

/// The peer's identity, as the kernel or a certificate vouches for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// A process of this machine.
    Local {
        /// Process id, when the connection was made; 0 if it lives where this process cannot see it (in a container, say).
        pid: i32,
        /// User id.
        uid: u32,
        /// Group id.
        gid: u32,
    },
    /// Someone at an address.
    Remote(SocketAddr),
    /// Someone at an address who has shown a certificate that was verified.
    Certified {
        /// Where they are.
        address: SocketAddr,
        /// Whom the certificate is for, as in `CN=worker 1,O=Example`.
        subject: String,
        /// Its alternative names: host names, addresses, mail addresses and URIs.
        names: Vec<String>,
    },
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Local { pid, uid, .. } => write!(f, "process {pid} of user {uid}"),
            Self::Remote(address) => address.fmt(f),
            Self::Certified { address, subject, .. } => write!(f, "{address} ({subject})"),
        }
    }
}
