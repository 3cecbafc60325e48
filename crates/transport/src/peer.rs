//! Who is at the other end.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use nearcall_platform::sys::{self, own_uid, peer_groups};

/// The peer's identity, as the kernel or a verified certificate gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// A process of this machine.
    Local {
        /// Process id when the connection was made; 0 if the process is invisible here (in a container, say).
        pid: i32,
        /// User id.
        uid: u32,
        /// Group id.
        gid: u32,
    },
    /// A peer at this address, not identified further.
    Remote(SocketAddr),
    /// A peer with a certificate that was verified.
    Certified {
        /// The peer's address.
        address: SocketAddr,
        /// The certificate's subject, as in `CN=worker 1,O=Example`.
        subject: String,
        /// The certificate's alternative names: host names, addresses, mail addresses and URIs.
        names: Vec<String>,
    },
    /// A peer beyond this broker, which does not say who it is.
    Beyond(String),
}

impl Peer {
    /// The peer at the other end of a socket, as the kernel knows it.
    pub(crate) fn of(socket: BorrowedFd<'_>) -> Self {
        if let Ok(Some(address)) = rustix::net::getpeername(socket)
            && let Ok(address) = SocketAddr::try_from(address)
        {
            return Self::Remote(address);
        }
        match sys::peer_credentials(socket) {
            Ok(who) => Self::Local { pid: who.pid, uid: who.uid, gid: who.gid },
            Err(_) => Self::Local { pid: 0, uid: u32::MAX, gid: u32::MAX },
        }
    }

    /// For an end of a pair of sockets. The kernel knows only the process that made the pair, for both ends. If this
    /// process made it, the process at the other end is unknown.
    pub(crate) fn of_pair(self) -> Self {
        match self {
            Self::Local { pid, uid, gid } if pid.unsigned_abs() == std::process::id() => {
                Self::Local { pid: 0, uid, gid }
            }
            other => other,
        }
    }
}

/// The users and groups that a `unix://` server admits besides its own user; or whose servers a client uses besides
/// those of its own user and root.
#[derive(Debug, Clone, Default)]
pub struct Admission {
    /// User ids.
    pub users: Vec<u32>,
    /// Ids of groups; any of their members is admitted.
    pub groups: Vec<u32>,
}

impl Admission {
    /// Whether no other user is admitted.
    pub(crate) fn is_closed(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }

    /// Whether the process at the other end of a socket belongs to this process's user, or to a user or group named
    /// here.
    pub(crate) fn admits(&self, peer: &Peer, socket: BorrowedFd<'_>) -> bool {
        let Peer::Local { uid, gid, .. } = peer else { return true };
        if *uid == own_uid() || self.users.contains(uid) || self.groups.contains(gid) {
            return true;
        }
        !self.groups.is_empty() && peer_groups(socket).iter().any(|group| self.groups.contains(group))
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Local { pid: 0, uid, .. } => write!(f, "a process of user {uid}"),
            Self::Local { pid, uid, .. } => write!(f, "process {pid} of user {uid}"),
            Self::Remote(address) => address.fmt(f),
            Self::Beyond(broker) => write!(f, "somebody at {broker}"),
            Self::Certified { address, subject, .. } => write!(f, "{address} ({})", nearcall_wire::shown(subject)),
        }
    }
}
