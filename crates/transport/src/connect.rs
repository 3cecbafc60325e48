//! The client's half of making a connection.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use nearcall_ring::Segment;
use nearcall_wire::{Hello, Limits, Preamble, Welcome};
use rustix::event::PollFlags;
use rustix::net::RecvFlags;

use crate::link::{ConnectError, Link, Options};
use crate::peer::Peer;
use crate::rendezvous;
use crate::shm::ShmLink;
use crate::stream::StreamLink;
use crate::sys;
use crate::tcp;
use crate::url::Url;

/// A fresh connection and what the server said of itself.
#[derive(Debug)]
pub struct Connected {
    /// The connection.
    pub link: Arc<dyn Link>,
    /// The server's welcome.
    pub welcome: Welcome,
}

/// Dials `url` and shakes hands. Blocks for at most `options.handshake`.
///
/// # Errors
/// [`ConnectError`], with a sentence that names the URL.
pub fn connect(url: &Url, version: &str, options: &Options) -> Result<Connected, ConnectError> {
    let deadline = Instant::now() + options.handshake;
    let limits = Limits { max_message: options.max_message };
    let mut hello = Hello { version: version.to_owned(), limits, ring: 0 };
    let socket = match url {
        Url::Tcp { host, port } => tcp::dial(url, host, *port, options, deadline)?,
        Url::Shm(_) | Url::Unix(_) | Url::Inproc(_) => rendezvous::dial(url, deadline)?,
    };
    let segment = match url {
        Url::Shm(_) | Url::Inproc(_) => {
            hello.ring = options.ring_size as u64;
            let made = Segment::create(options.ring_size)
                .map_err(|error| ConnectError::Unavailable(format!("cannot make shared memory for {url}: {error}")))?;
            Some(made)
        }
        Url::Unix(_) | Url::Tcp { .. } => None,
    };
    let fds: Vec<_> = segment.iter().map(|(_, fd)| fd.as_fd()).collect();
    let welcome = shake_hands(url, socket.as_fd(), &hello, &fds, deadline)?;
    let peer = peer_of(socket.as_fd());
    let limit = welcome.limits.max_message;
    let link: Arc<dyn Link> = match segment {
        Some((segment, _)) => Arc::new(ShmLink::new(socket, segment, peer, limit, options)),
        None => Arc::new(StreamLink::new(socket, peer, limit, options)),
    };
    Ok(Connected { link, welcome })
}

fn shake_hands(
    url: &Url,
    socket: BorrowedFd<'_>,
    hello: &Hello,
    fds: &[BorrowedFd<'_>],
    deadline: Instant,
) -> Result<Welcome, ConnectError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::TimedOut => {
            ConnectError::TimedOut(format!("{url} accepted the connection but did not finish the handshake in time"))
        }
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            ConnectError::Unavailable(format!("{url} hung up during the handshake"))
        }
        _ => ConnectError::Unavailable(format!("the handshake with {url} failed: {error}")),
    };
    let body = hello.encode();
    let mut message = Preamble::Hello(body.len()).encode().to_vec();
    message.extend_from_slice(&body);
    sys::send_all_with_fds(socket, &message, fds, deadline).map_err(failed)?;

    let mut preamble = [0; Preamble::LEN];
    receive_exactly(socket, &mut preamble, deadline).map_err(failed)?;
    let mismatch = |what: String| ConnectError::Mismatch(format!("cannot use {url}: {what}"));
    let preamble = Preamble::decode(&preamble).map_err(|error| mismatch(error.to_string()))?;
    let (Preamble::Hello(len) | Preamble::Welcome(len) | Preamble::Reject(len)) = preamble;
    let mut body = vec![0; len];
    receive_exactly(socket, &mut body, deadline).map_err(failed)?;
    match preamble {
        Preamble::Welcome(_) => Welcome::decode(&body).map_err(mismatch),
        Preamble::Reject(_) => Err(ConnectError::Refused(format!("{url} refused: {}", String::from_utf8_lossy(&body)))),
        Preamble::Hello(_) => Err(mismatch("the peer is a client, not a server".into())),
    }
}

fn receive_exactly(socket: BorrowedFd<'_>, mut into: &mut [u8], deadline: Instant) -> io::Result<()> {
    while !into.is_empty() {
        match rustix::net::recv(socket, &mut *into, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((_, got)) => into = &mut into[got..],
            Err(rustix::io::Errno::AGAIN) => {
                if !sys::wait_through(socket, PollFlags::IN, deadline)? {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Who the kernel says is at the other end.
pub(crate) fn peer_of(socket: BorrowedFd<'_>) -> Peer {
    if let Ok(Some(address)) = rustix::net::getpeername(socket)
        && let Ok(address) = std::net::SocketAddr::try_from(address)
    {
        return Peer::Remote(address);
    }
    match sys::peer_credentials(socket) {
        Ok(who) => Peer::Local { pid: who.pid, uid: who.uid, gid: who.gid },
        Err(_) => Peer::Local { pid: 0, uid: u32::MAX, gid: u32::MAX },
    }
}
