//! Where servers of this machine are found: Unix sockets, their lock files, and the directory for named servers.

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_platform::fork::Owner;
use nearcall_platform::peer_socket::PeerSocket;
use nearcall_platform::sys::{self, own_uid};
use rustix::fs::{FlockOperation, flock};

use crate::errors::ConnectError;
use crate::frame::paths::misspelled;
use crate::link::pace::Pace;
use crate::options::passed::PassedSockets;
use crate::peer::{Admission, Peer};
use crate::places::clients::{Clients, ConnectionPermit, accept_from};

/// The variable that names the directory for the sockets of named servers.
const DIRECTORY: &str = "NEARCALL_RUNTIME_DIR";

/// Where clients meet a Unix-domain server of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rendezvous {
    /// A socket file.
    File(PathBuf),
    /// A name in the kernel's abstract namespace that contains this process's id.
    Abstract(Vec<u8>),
}

impl Rendezvous {
    /// Where all processes of this user find the server with that name.
    pub(crate) fn named(name: &str) -> io::Result<Self> {
        let path = runtime_dir()?.join(format!("{name}.sock"));
        if path.as_os_str().as_bytes().len() > 107 {
            return Err(io::Error::other(format!(
                "the socket's path {} is over 107 bytes; use a shorter name or set {DIRECTORY}",
                path.display()
            )));
        }
        Ok(Self::File(path))
    }

    /// Where this process finds the server with that name.
    pub(crate) fn in_process(name: &str) -> Self {
        Self::Abstract(format!("nearcall/{}/{name}", std::process::id()).into_bytes())
    }

    fn address(&self) -> io::Result<SocketAddr> {
        match self {
            Self::File(path) => SocketAddr::from_pathname(path),
            Self::Abstract(name) => SocketAddr::from_abstract_name(name),
        }
    }
}

/// The private directory for the sockets of named servers, made if it is not there.
///
/// `$NEARCALL_RUNTIME_DIR`, else `$XDG_RUNTIME_DIR/nearcall`, else `nearcall-<uid>` in the directory for temporary
/// files. No other user may be able to write into it, and so pretend to be a server.
fn runtime_dir() -> io::Result<PathBuf> {
    let named = |variable| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let dir = match (named(DIRECTORY), named("XDG_RUNTIME_DIR")) {
        (Some(dir), _) => dir,
        (None, Some(base)) if base.is_dir() => base.join("nearcall"),
        _ => std::env::temp_dir().join(format!("nearcall-{}", own_uid())),
    };
    match fs::DirBuilder::new().mode(0o700).create(&dir) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => {
            return Err(io::Error::new(error.kind(), format!("cannot make the directory {}: {error}", dir.display())));
        }
    }
    let found = fs::symlink_metadata(&dir)?;
    if !found.is_dir() || found.uid() != own_uid() || found.mode() & 0o077 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "{} must be a directory of this user that nobody else may enter (mode 0700); remove it or set {DIRECTORY}",
                dir.display()
            ),
        ));
    }
    Ok(dir)
}

/// The directory of this user's named servers, and the names in it, in order. A name may be left over from a server
/// that died.
///
/// # Errors
///
/// The directory cannot be made, read or trusted.
pub fn named_servers() -> io::Result<(PathBuf, Vec<String>)> {
    let dir = runtime_dir()?;
    let mut names = Vec::new();
    for entry in fs::read_dir(&dir)? {
        if let Some(name) = entry?.file_name().to_str().and_then(|name| name.strip_suffix(".sock")) {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok((dir, names))
}

/// What the peer may send over a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Brings {
    /// Bytes only: descriptors are refused where the system can.
    Bytes,
    /// Descriptors, too.
    Descriptors,
}

impl Brings {
    /// Before the socket listens or is connected.
    fn settle(self, socket: BorrowedFd<'_>) {
        if self == Self::Bytes {
            sys::refuse_descriptors(socket);
        }
    }
}

/// A listening Unix socket, and the lock that shows that its server lives.
#[derive(Debug)]
pub(crate) struct LocalListening {
    socket: UnixListener,
    /// The lock beside the socket's file.
    _lock: Option<Lock>,
}

impl Clients for LocalListening {
    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn accept(&self) -> rustix::io::Result<(OwnedFd, Option<Arc<ConnectionPermit>>)> {
        accept_from(&self.socket)
    }
}

impl LocalListening {
    /// Listens at a place, on behalf of `url`. With `open`, all users may try to connect. Replaces the socket file of a
    /// dead server, but not that of a living one. A socket that was passed to this process is used as it is: whoever
    /// bound it chose the mode of its file, and removes it.
    pub(crate) fn bind(
        url: &impl Display,
        place: io::Result<Rendezvous>,
        passed: &PassedSockets,
        open: bool,
        brings: Brings,
    ) -> io::Result<Self> {
        let cannot = |error: io::Error| io::Error::new(error.kind(), format!("cannot serve {url}: {error}"));
        let place = place.map_err(cannot)?;
        if let Rendezvous::File(path) = &place
            && let Some(socket) = passed.take_unix(path)
        {
            brings.settle(socket.as_fd());
            socket.set_nonblocking(true).map_err(cannot)?;
            return Ok(Self { socket, _lock: None });
        }
        let mut lock = match &place {
            Rendezvous::File(path) => Some(Lock::take(path, url)?),
            Rendezvous::Abstract(_) => None,
        };
        if let Rendezvous::File(path) = &place {
            // This process holds the lock: an existing socket belongs to a dead server, or to another program.
            match fs::symlink_metadata(path) {
                Ok(found) if !is_socket(&found) => {
                    let why = format!("{} exists and is not a socket", path.display());
                    return Err(cannot(io::Error::new(io::ErrorKind::AlreadyExists, why)));
                }
                Ok(_) if UnixStream::connect(path).is_ok() => {
                    return Err(cannot(io::Error::new(io::ErrorKind::AddrInUse, "another program listens there")));
                }
                Ok(_) => fs::remove_file(path).map_err(cannot)?,
                Err(_) => {}
            }
        }
        let socket = UnixListener::bind_addr(&place.address()?).map_err(|error| match error.kind() {
            kind @ io::ErrorKind::AddrInUse => cannot(io::Error::new(kind, "it is already served")),
            _ => cannot(error),
        })?;
        brings.settle(socket.as_fd());
        if let (Rendezvous::File(path), Some(lock)) = (&place, &mut lock) {
            lock.guards_socket = true;
            // Clients are checked when they connect. The mode only saves other users the attempt.
            fs::set_permissions(path, fs::Permissions::from_mode(if open { 0o666 } else { 0o600 })).map_err(cannot)?;
        }
        // The kernel queues clients that are not accepted yet, so that a burst of clients is not refused.
        rustix::net::listen(&socket, 1024).map_err(|error| cannot(error.into()))?;
        socket.set_nonblocking(true).map_err(cannot)?;
        Ok(Self { socket, _lock: lock })
    }
}

fn is_socket(found: &fs::Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_socket(&found.file_type())
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

/// The lock of a socket's path. The kernel releases it when the server dies, however it dies. A server that ends
/// normally removes the files.
#[derive(Debug)]
struct Lock {
    file: File,
    path: PathBuf,
    /// The socket's file belongs to this server.
    guards_socket: bool,
    owner: Owner,
}

impl Lock {
    /// Takes the lock. The error says which process has it.
    fn take(path: &Path, url: &impl Display) -> io::Result<Self> {
        let lock_path = lock_path(path);
        let refuse = |kind, why: &str| io::Error::new(kind, format!("cannot serve {url}: {why}"));
        let no_file = |error: io::Error| {
            let why = match path.parent() {
                // In some directories no file can be made, such as those of `/proc`.
                Some(dir) if error.kind() == io::ErrorKind::NotFound && dir.is_dir() => {
                    format!("no file can be made in the directory {}; take another one", dir.display())
                }
                Some(dir) if error.kind() == io::ErrorKind::NotFound => {
                    format!("the directory {} does not exist; create it", dir.display())
                }
                _ => format!("{}: {error}", lock_path.display()),
            };
            refuse(error.kind(), &why)
        };
        loop {
            let mut options = OpenOptions::new();
            options.create(true).truncate(false).read(true).write(true).mode(0o600);
            // If other users may write to the directory, they may have put a link there, to a file that would be emptied
            // here.
            options.custom_flags(libc::O_NOFOLLOW);
            let mut file = options.open(&lock_path).map_err(no_file)?;
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                let pid = io::read_to_string((&file).take(20)).unwrap_or_default();
                // Another program that may write to the directory may have written this file.
                let who =
                    pid.trim().parse::<u32>().map_or("another process".to_owned(), |pid| format!("process {pid}"));
                let why = format!("{who} already does; stop it or serve another name");
                return Err(refuse(io::ErrorKind::AddrInUse, &why));
            }
            // The last owner may have removed the file before it was locked here: then the lock guards nothing.
            if is_still(&file, &lock_path) {
                // Only a hint for those who find the lock taken: a full disk must not keep this server from serving.
                let _ = file.set_len(0);
                let _ = io::Write::write_all(&mut file, std::process::id().to_string().as_bytes());
                return Ok(Self { file, path: path.to_owned(), guards_socket: false, owner: Owner::this_process() });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if !self.owner.is_this_process() {
            // The parent process serves there.
            return;
        }
        let lock_path = lock_path(&self.path);
        // If the files were removed, a successor may have made its own.
        if is_still(&self.file, &lock_path) {
            // Errors mean that the files were removed already.
            if self.guards_socket {
                let _ = fs::remove_file(&self.path);
            }
            let _ = fs::remove_file(lock_path);
        }
    }
}

/// Whether the path still names this open file.
fn is_still(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(ours), Ok(there)) => (ours.ino(), ours.dev()) == (there.ino(), there.dev()),
        _ => false,
    }
}

/// Names the sockets beside a missing one that the user may mean: up to five, whose names are nearly the same, or begin
/// alike.
fn beside(path: &Path) -> String {
    let name = |path: &Path| path.file_stem().and_then(OsStr::to_str).map(str::to_owned);
    let (Some(Ok(folder)), Some(asked)) = (path.parent().map(fs::read_dir), name(path)) else { return String::new() };
    let found =
        folder.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|kind| kind == "sock"));
    let is_meant =
        |name: &String| misspelled(name, &asked) || name.starts_with(&asked) || asked.starts_with(name.as_str());
    let mut names: Vec<_> = found.filter_map(|path| name(&path)).filter(is_meant).collect();
    if names.is_empty() {
        return String::new();
    }
    names.sort();
    let more = if names.len() > 5 { ", ..." } else { "" };
    names.truncate(5);
    format!(", but {}.sock{more}", names.join(".sock, "))
}

/// Where the sockets of named servers are for processes with other variables.
fn usual_directories() -> Vec<PathBuf> {
    let uid = own_uid();
    let temporary = [std::env::temp_dir(), PathBuf::from("/tmp"), PathBuf::from("/var/tmp")];
    let mut found: Vec<_> = temporary.iter().map(|base| base.join(format!("nearcall-{uid}"))).collect();
    found.push(PathBuf::from(format!("/run/user/{uid}/nearcall")));
    if let Some(base) = std::env::var_os("XDG_RUNTIME_DIR") {
        found.push(Path::new(&base).join("nearcall"));
    }
    found
}

/// The socket of the same name in one of these directories, if there is one: server and client have other variables.
fn elsewhere(path: &Path, directories: &[PathBuf]) -> Option<PathBuf> {
    let name = path.file_name()?;
    let found = directories.iter().map(|directory| directory.join(name));
    found.filter(|other| other != path).find(|other| fs::symlink_metadata(other).is_ok_and(|found| is_socket(&found)))
}

/// Connects to a Unix-domain server on behalf of `url`. The error says why there is none, or none that this user or
/// `admission` trusts.
pub(crate) async fn dial(
    url: &(impl Display + Sync),
    place: io::Result<Rendezvous>,
    admission: &Admission,
    brings: Brings,
    pace: &Pace,
) -> Result<OwnedFd, ConnectError> {
    let unavailable = |what: String| ConnectError::Unavailable(format!("cannot connect to {url}: {what}"));
    let place = place.map_err(|error| unavailable(error.to_string()))?;
    let connected = match place.address() {
        Ok(address) => connect(&address, brings, pace).await,
        Err(error) => Err(error),
    };
    match (connected, &place) {
        (Ok(socket), _) => {
            let checked = check_server(url, &Peer::of(socket.as_fd()), socket.as_fd(), admission);
            if let Err(error) = checked {
                drop(PeerSocket::new(socket));
                return Err(error);
            }
            Ok(socket)
        }
        (Err(error), _) if error.kind() == io::ErrorKind::WouldBlock => Err(ConnectError::TimedOut(format!(
            "cannot connect to {url}: its server accepts no clients; it hangs, or too many are waiting"
        ))),
        (Err(error), Rendezvous::File(path)) => Err(match error.kind() {
            io::ErrorKind::NotFound => {
                let named = url.to_string().starts_with("shm://");
                let elsewhere = if named { elsewhere(path, &usual_directories()) } else { None };
                let others = if named { beside(path) } else { String::new() };
                let what = elsewhere.map_or_else(
                    || "start the server first".to_owned(),
                    |other| {
                        format!(
                            "but there is {}: set {DIRECTORY} to the same directory for server and clients",
                            other.display()
                        )
                    },
                );
                unavailable(format!("nobody has served it (there is no {}{others}); {what}", path.display()))
            }
            io::ErrorKind::ConnectionRefused if fs::metadata(path).is_ok_and(|found| !is_socket(&found)) => {
                unavailable(format!("{} is not a socket; write the path that the server listens at", path.display()))
            }
            io::ErrorKind::ConnectionRefused => {
                unavailable(format!("its server has died (it left {} behind); start it again", path.display()))
            }
            io::ErrorKind::PermissionDenied => {
                ConnectError::Refused(format!("cannot connect to {url}: this user may not open {}", path.display()))
            }
            _ => unavailable(error.to_string()),
        }),
        (Err(error), Rendezvous::Abstract(_)) => Err(match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                unavailable("nobody serves it in this process; start the server first".into())
            }
            _ => unavailable(error.to_string()),
        }),
    }
}

/// Checks that the server of a Unix socket belongs to this user, to root, or to a user who is named: anyone who may
/// write to a directory can put a socket there.
fn check_server(
    url: &impl Display,
    peer: &Peer,
    socket: BorrowedFd<'_>,
    admission: &Admission,
) -> Result<(), ConnectError> {
    let Peer::Local { uid, .. } = peer else { return Ok(()) };
    if *uid == 0 || admission.admits(peer, socket) {
        return Ok(());
    }
    let (own, named) = (own_uid(), if admission.is_closed() { "" } else { ", nor of those that you name" });
    Err(ConnectError::Refused(format!(
        "cannot connect to {url}: its server is user {uid}, not you (user {own}) or root{named}; if you trust it, say allow_users=[{uid}]"
    )))
}

/// Connects, and waits for a place in the server's queue. `WouldBlock` if time ran out.
async fn connect(address: &SocketAddr, brings: Brings, pace: &Pace) -> io::Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};
    let address = match (address.as_pathname(), address.as_abstract_name()) {
        (Some(path), _) => SocketAddrUnix::new(path)?,
        (None, Some(name)) => SocketAddrUnix::new_abstract_name(name)?,
        (None, None) => return Err(io::ErrorKind::InvalidInput.into()),
    };
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    brings.settle(socket.as_fd());
    let attempt = |end: Instant| {
        // The kernel limits the wait for a place in the queue by the timeout for sending.
        let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let connected = sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(left))
            .and_then(|()| connect(&socket, &address));
        match connected {
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => None,
            ended => Some(ended),
        }
    };
    pace.wait(attempt).await.unwrap_or(Err(rustix::io::Errno::AGAIN))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, None)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sockets_beside_a_name_are_told() {
        let folder = std::env::temp_dir().join(format!("nearcall-beside-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let missing = folder.join("cal.sock");
        assert_eq!(beside(&missing), "");
        for name in ["farm.sock", "calc.sock", "calc.sock.lock"] {
            File::create(folder.join(name)).expect("a file");
        }
        assert_eq!(beside(&missing), ", but calc.sock");
        assert_eq!(beside(&folder.join("shop.sock")), "");
        for name in ["cal-a.sock", "cal-b.sock", "cal-c.sock", "cal-d.sock", "c.sock"] {
            File::create(folder.join(name)).expect("a file");
        }
        assert_eq!(beside(&missing), ", but c.sock, cal-a.sock, cal-b.sock, cal-c.sock, cal-d.sock, ...");
        fs::remove_dir_all(&folder).expect("it is ours");
        assert_eq!(beside(&missing), "");
    }
}
