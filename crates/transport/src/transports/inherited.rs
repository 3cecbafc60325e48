//! `fd://N` and `stdio:`: a connection that this process inherited. The process that started it has the other end.
//!
//! There is one connection, which cannot be made again. A server on it has one client. The descriptor of `fd://N`
//! belongs to the user's program, which may close it: this file uses a copy.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::thread;

use nearcall_platform::descriptors;
use nearcall_platform::inheritance::{claim, keep_from_children};
use nearcall_platform::lock::Mutex;
use rustix::fs::{FileType, Stat, fstat};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair, sockopt};
use rustix::stdio;

use crate::errors::ConnectError;
use crate::handshake::NATIVE;
use crate::link::pace::Pace;
use crate::options::Options;
use crate::places::clients::{Clients, ConnectionPermit, ENDED};
use crate::places::place::{Bound, Dialling, Place, Reconnect, Transport};
use crate::places::protocol::{Reached, SharedMemory};
use crate::places::sockets::Sockets;
use crate::sync::{AtomicBool, Ordering};

/// Bytes that a pump thread moves at once.
const PUMPED: usize = 64 << 10;
/// Descriptors below this number are the standard ones.
const FIRST_OWN: RawFd = 3;

pub(super) const FD: Transport = Transport::new("fd://N", |_, rest| match rest.parse::<RawFd>() {
    Ok(number) if number >= FIRST_OWN => Ok(Arc::new(Inherited::new(Some(number)))),
    Ok(0..FIRST_OWN) => Err("0 to 2 are the standard descriptors: write stdio:".into()),
    _ => Err("fd:// takes the number of an open descriptor: write fd://3".into()),
});

pub(super) const STDIO: Transport = Transport::new("stdio:", |_, rest| {
    if rest.is_empty() { Ok(Arc::new(Inherited::new(None))) } else { Err("write only stdio:".into()) }
});

/// A descriptor of this process, or its standard input and output.
#[derive(Debug)]
struct Inherited {
    number: Option<RawFd>,
    /// The connection was used. The number may name another descriptor by now.
    taken: AtomicBool,
}

impl fmt::Display for Inherited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            Some(number) => write!(f, "fd://{number}"),
            None => f.write_str("stdio:"),
        }
    }
}

impl Place for Inherited {
    fn dial<'a>(&'a self, _: &'a Options, _: &'a Pace) -> Dialling<'a> {
        Box::pin(async move {
            let socket = self.take().map_err(|trouble| match trouble {
                Trouble::Taken => ConnectError::Unavailable(self.failed("connect to", &trouble)),
                trouble => ConnectError::Options(self.failed("connect to", &trouble)),
            })?;
            keep_from_children(socket.as_fd());
            let memory = memory_over(&socket);
            Ok(Box::new(Reached::plainly(socket, memory, &NATIVE)) as _)
        })
    }

    fn bind(&self, _: &Options) -> io::Result<Bound> {
        let refuse = |trouble| io::Error::new(io::ErrorKind::InvalidInput, self.failed("serve", &trouble));
        let socket = self.take().map_err(refuse)?;
        let memory = memory_over(&socket);
        let event = descriptors::new_event()?;
        // The only client is there already.
        descriptors::signal(&event);
        let clients = OneClient { event, socket: Mutex::new(Some(socket)) };
        let acceptor = Box::new(Sockets::plainly(clients, memory, &NATIVE));
        Ok(Bound { acceptor, place: Arc::new(Self::new(self.number)) })
    }

    fn reconnect(&self) -> Reconnect {
        Reconnect::Never
    }
}

/// Shared memory can be passed through Unix sockets only.
fn memory_over(socket: &OwnedFd) -> SharedMemory {
    match sockopt::socket_domain(socket) {
        Ok(AddressFamily::UNIX) => SharedMemory::IfBothCan,
        _ => SharedMemory::Never,
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("the connection it stood for was used; it cannot be made again")]
    Taken,
    #[error("the connection of descriptor {0} is in use, or was, by another client or server of this process")]
    InUse(RawFd),
    #[error(
        "descriptor {0} is not open in this process; whoever starts it has to pass it on, as pass_fds of Python's subprocess does"
    )]
    NotOpen(RawFd),
    #[error("descriptor {0} is no socket; make a pair with socket.socketpair(), or use stdio: for pipes")]
    NoSocket(RawFd),
    #[error("{0} is no connected stream socket; make a pair with socket.socketpair()")]
    NotConnected(String),
    #[error(
        "standard input and output are no pipes or sockets (a terminal, say); nearcall.spawn() or another program has to start this one"
    )]
    NoPipes,
    #[error(
        "descriptor {0} (standard {1}) is closed; whoever starts this process has to leave it open, as nearcall.spawn() does"
    )]
    Closed(RawFd, &'static str),
    #[error("{0}")]
    System(#[from] io::Error),
}

impl From<Errno> for Trouble {
    fn from(error: Errno) -> Self {
        Self::System(error.into())
    }
}

impl Inherited {
    fn new(number: Option<RawFd>) -> Self {
        Self { number, taken: AtomicBool::new(false) }
    }

    fn failed(&self, to: &str, trouble: &Trouble) -> String {
        // Avoids a second colon after `stdio:`.
        format!("cannot {to} {}: {trouble}", self.to_string().trim_end_matches(':'))
    }

    /// The connection's socket, which belongs to this library from now on.
    fn take(&self) -> Result<OwnedFd, Trouble> {
        // Relaxed: orders nothing else.
        if self.taken.swap(true, Ordering::Relaxed) {
            return Err(Trouble::Taken);
        }
        let taken = match self.number {
            Some(number) => take_descriptor(number),
            None => take_standard(),
        };
        if taken.is_err() {
            // The descriptor still belongs to the user's program.
            self.taken.store(false, Ordering::Relaxed);
        }
        taken
    }
}

fn take_descriptor(number: RawFd) -> Result<OwnedFd, Trouble> {
    // SAFETY: no memory is touched, and a number that is not open is an error.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(Trouble::NotOpen(number));
    }
    // SAFETY: the descriptor is open, and is not closed meanwhile: the user's program, which owns it, waits in this
    // call.
    let lent = unsafe { BorrowedFd::borrow_raw(number) };
    if !is(FileType::Socket, &fstat(lent)?) {
        return Err(Trouble::NoSocket(number));
    }
    check_socket(lent, || format!("descriptor {number}"))?;
    if !claim(lent) {
        return Err(Trouble::InUse(number));
    }
    // Otherwise programs that this process starts would hold the connection open.
    fcntl_setfd(lent, FdFlags::CLOEXEC)?;
    Ok(fcntl_dupfd_cloexec(lent, FIRST_OWN)?)
}

/// Checks that the socket can carry a connection, and makes it blocking.
fn check_socket(socket: BorrowedFd<'_>, name: impl Fn() -> String) -> Result<(), Trouble> {
    let is_stream = sockopt::socket_type(socket)? == SocketType::STREAM;
    if !is_stream || rustix::net::getpeername(socket).is_err() {
        return Err(Trouble::NotConnected(name()));
    }
    rustix::io::ioctl_fionbio(socket, false)?;
    Ok(())
}

fn is(kind: FileType, found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == kind
}

/// Takes standard input if it is a socket, else standard input and output. What the program reads and prints afterwards
/// stays apart from the connection: it reads nothing, and prints to standard error where output was taken.
fn take_standard() -> Result<OwnedFd, Trouble> {
    let input = standard(stdio::stdin())?.ok_or(Trouble::Closed(0, "input"))?;
    let output = standard(stdio::stdout())?;
    occupy_standard()?;
    if is(FileType::Socket, &input) {
        check_socket(stdio::stdin(), || "standard input".into())?;
        let socket = fcntl_dupfd_cloexec(stdio::stdin(), FIRST_OWN)?;
        read_nothing()?;
        if output.is_some_and(|output| (input.st_dev, input.st_ino) == (output.st_dev, output.st_ino)) {
            stdio::dup2_stdout(stdio::stderr())?;
        }
        return Ok(socket);
    }
    let output = output.ok_or(Trouble::Closed(1, "output"))?;
    let carries = |found: &Stat| is(FileType::Fifo, found) || is(FileType::Socket, found);
    if !carries(&input) || !carries(&output) {
        return Err(Trouble::NoPipes);
    }
    let input = fcntl_dupfd_cloexec(stdio::stdin(), FIRST_OWN)?;
    let output = fcntl_dupfd_cloexec(stdio::stdout(), FIRST_OWN)?;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let theirs = Arc::new(theirs);
    for end in [&input, &output, &ours, &*theirs] {
        keep_from_children(end.as_fd());
    }
    read_nothing()?;
    stdio::dup2_stdout(stdio::stderr())?;
    pump("nearcall-stdin", input, Arc::clone(&theirs))?;
    pump("nearcall-stdout", theirs, output)?;
    Ok(ours)
}

/// The state of a standard descriptor; `None` if it is closed.
fn standard(fd: BorrowedFd<'_>) -> Result<Option<Stat>, Trouble> {
    match fstat(fd) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::BADF) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn read_nothing() -> Result<(), Trouble> {
    Ok(stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?)
}

/// Opens `/dev/null` in place of closed standard descriptors. Otherwise, what the program prints would go to the next
/// file that is opened.
fn occupy_standard() -> Result<(), Trouble> {
    loop {
        let nothing = OwnedFd::from(std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?);
        // The system gives out the lowest free number.
        if nothing.as_raw_fd() >= FIRST_OWN {
            return Ok(());
        }
        let _ = nothing.into_raw_fd();
    }
}

/// Moves bytes from one descriptor to another, in a thread of its own, until one of them ends.
fn pump(name: &str, from: impl AsFd + Send + 'static, to: impl AsFd + Send + 'static) -> Result<(), Trouble> {
    let forward = move || {
        let mut bytes = vec![0; PUMPED];
        'open: loop {
            let mut left = match rustix::io::read(&from, &mut bytes) {
                Ok(0) => break,
                Ok(got) => &bytes[..got],
                Err(Errno::INTR) => continue,
                Err(_) => break,
            };
            while !left.is_empty() {
                match rustix::io::write(&to, left) {
                    Ok(sent) => left = &left[sent..],
                    Err(Errno::INTR) => {}
                    Err(_) => break 'open,
                }
            }
        }
        // Tells both ends. What is on its way in the other direction still arrives. A pipe refuses `shutdown`; dropping
        // it ends it.
        let _ = shutdown(&from, Shutdown::Both);
        let _ = shutdown(&to, Shutdown::Write);
    };
    thread::Builder::new().name(name.into()).spawn(forward)?;
    Ok(())
}

/// The one client of an inherited connection.
#[derive(Debug)]
struct OneClient {
    /// Readable until the client has been taken.
    event: OwnedFd,
    socket: Mutex<Option<OwnedFd>>,
}

impl Clients for OneClient {
    fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn accept(&self) -> rustix::io::Result<(OwnedFd, Option<Arc<ConnectionPermit>>)> {
        let socket = self.socket.lock().take().ok_or(ENDED)?;
        // Not earlier: a server may be bound by one process, and served by its forked child.
        keep_from_children(socket.as_fd());
        Ok((socket, None))
    }
}
