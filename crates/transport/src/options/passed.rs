//! Listening sockets that another process has bound and passed to this one, as service managers do.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use nearcall_platform::lock::Mutex;
use rustix::net::{SocketAddrAny, SocketAddrUnix, getsockname};

/// Listening sockets that are used in place of new ones, each where a URL has its address.
#[derive(Debug, Clone, Default)]
pub struct PassedSockets(Arc<Mutex<Vec<OwnedFd>>>);

impl PassedSockets {
    /// These sockets, which listen already.
    #[must_use]
    pub fn new(sockets: Vec<OwnedFd>) -> Self {
        Self(Arc::new(Mutex::new(sockets)))
    }

    /// The socket at one of these addresses. Nobody else gets it.
    pub(crate) fn take_tcp(&self, addresses: &[SocketAddr]) -> Option<TcpListener> {
        let is_there = |at: SocketAddrAny| SocketAddr::try_from(at).is_ok_and(|at| addresses.contains(&at));
        self.take(is_there).map(TcpListener::from)
    }

    /// The socket at this path. Nobody else gets it.
    pub(crate) fn take_unix(&self, path: &Path) -> Option<UnixListener> {
        let is_there = |at: SocketAddrAny| {
            let at = SocketAddrUnix::try_from(at).ok();
            at.is_some_and(|at| at.path_bytes().is_some_and(|bytes| bytes == path.as_os_str().as_bytes()))
        };
        self.take(is_there).map(UnixListener::from)
    }

    fn take(&self, is_there: impl Fn(SocketAddrAny) -> bool) -> Option<OwnedFd> {
        let mut sockets = self.0.lock();
        let index = sockets.iter().position(|socket| getsockname(socket).is_ok_and(&is_there))?;
        Some(sockets.remove(index))
    }

    /// The addresses of the sockets that nobody took.
    #[must_use]
    pub fn left(&self) -> Vec<String> {
        self.0.lock().iter().map(shown).collect()
    }
}

fn shown(socket: &OwnedFd) -> String {
    let Ok(at) = getsockname(socket) else { return "an unknown address".to_owned() };
    if let Ok(at) = SocketAddr::try_from(at.clone()) {
        return at.to_string();
    }
    let path = SocketAddrUnix::try_from(at).ok().and_then(|at| at.path_bytes().map(<[u8]>::to_vec));
    path.map_or_else(|| "an unknown address".to_owned(), |path| String::from_utf8_lossy(&path).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_taken_once_by_who_has_its_address() {
        let folder = std::env::temp_dir().join(format!("nearcall-passed-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("a.sock");
        let unix = UnixListener::bind(&path).expect("a socket");
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let at = tcp.local_addr().expect("an address");
        let passed = PassedSockets::new(vec![unix.into(), tcp.into()]);
        assert_eq!(passed.left(), [path.display().to_string(), at.to_string()]);
        assert!(passed.take_unix(&folder.join("b.sock")).is_none());
        assert!(passed.take_tcp(&[([127, 0, 0, 1], 1).into()]).is_none());
        let other = passed.clone();
        assert!(passed.take_tcp(&[([127, 0, 0, 1], 1).into(), at]).is_some());
        assert!(other.take_tcp(&[at]).is_none());
        assert!(other.take_unix(&path).is_some());
        assert_eq!(passed.left(), [""; 0]);
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }
}
