//! Who is at the other end.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use nearcall_platform::sys::{self, own_uid, peer_groups};

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

impl Peer {
    /// Who the kernel says is at the other end of a socket.
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

    /// Of a pair of sockets the system knows only who made it, at both ends: that is no news of the other end if it was this
    /// process.
    pub(crate) fn of_pair(self) -> Self {
        match self {
            Self::Local { pid, uid, gid } if pid.unsigned_abs() == std::process::id() => {
                Self::Local { pid: 0, uid, gid }
            }
            other => other,
        }
    }
}

/// Whom a `unix://` server lets in besides its own user; or whose servers a client uses besides its own and root's.
#[derive(Debug, Clone, Default)]
pub struct Admission {
    /// User ids.
    pub users: Vec<u32>,
    /// Ids of groups; any of their members will do.
    pub groups: Vec<u32>,
}

impl Admission {
    /// Whether nobody else is let in.
    pub(crate) fn is_closed(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }

    /// Whether the process at the other end of a socket is the own user's or one of those named.
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
            Self::Certified { address, subject, .. } => write!(f, "{address} ({})", nearcall_wire::shown(subject)),
        }
    }
}
