//! The server's half of making a connection. Nothing here blocks: a slow client holds nobody up.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_ring::Segment;
use nearcall_wire::{Hello, Preamble, Welcome};
use rustix::net::{RecvFlags, SocketFlags};

use crate::connect::peer_of;
use crate::link::{Link, Options};
use crate::peer::Peer;
use crate::rendezvous::Bound;
use crate::shm::ShmLink;
use crate::stream::StreamLink;
use crate::sys::{self, own_uid};
use crate::tcp;
use crate::url::Url;

/// Longest hello a server reads: it is sent by anyone who can connect.
const LONGEST_HELLO: usize = 64 << 10;

/// A socket that clients connect to.
#[derive(Debug)]
pub struct Listener {
    url: Url,
    socket: Socket,
}

#[derive(Debug)]
enum Socket {
    Unix(Bound),
    Tcp(TcpListener),
}

impl Listener {
    /// Listens at `url`.
    ///
    /// # Errors
    /// With a sentence that names the URL: it is served already, the options do not allow it (`InvalidInput`), or the system
    /// refuses.
    pub fn bind(url: &Url, options: &Options) -> io::Result<Self> {
        if let Url::Tcp { host, port } = url {
            let listener = tcp::listen(url, host, *port, options)?;
            let url = Url::Tcp { host: host.clone(), port: listener.local_addr()?.port() };
            return Ok(Self { url, socket: Socket::Tcp(listener) });
        }
        Ok(Self { url: url.clone(), socket: Socket::Unix(Bound::bind(url)?) })
    }

    /// Where this listens; a port of 0 has become the real one.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The descriptor to poll for reading.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Unix(bound) => bound.socket.as_fd(),
            Socket::Tcp(listener) => listener.as_fd(),
        }
    }

    /// The next client, if one is there.
    ///
    /// # Errors
    /// What the system says; out of descriptors is the one to expect.
    pub fn accept(&self) -> io::Result<Option<Arrival>> {
        loop {
            match rustix::net::accept_with(self.fd(), SocketFlags::CLOEXEC) {
                Ok(socket) => {
                    if matches!(self.socket, Socket::Tcp(_)) {
                        // It fails only for a client that is gone already, which its handshake will show.
                        let _ = tcp::prepare(&socket);
                    }
                    let peer = peer_of(socket.as_fd());
                    let shared = matches!(self.url, Url::Shm(_) | Url::Inproc(_));
                    return Ok(Some(Arrival { socket, peer, shared, received: Vec::new(), fds: Vec::new() }));
                }
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// A client that has connected and not finished its handshake.
#[derive(Debug)]
pub struct Arrival {
    socket: OwnedFd,
    peer: Peer,
    shared: bool,
    received: Vec<u8>,
    fds: Vec<OwnedFd>,
}

impl Arrival {
    /// The descriptor to poll for reading.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Who connected.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The client's hello, once all of it has arrived.
    ///
    /// # Errors
    /// A sentence to [reject](Arrival::reject) the client with, or `None` if it hung up.
    pub fn hello(&mut self) -> Result<Option<Hello>, Option<String>> {
        if let Peer::Local { uid, .. } = self.peer
            && uid != own_uid()
        {
            return Err(Some(format!("this server serves user {} only, you are user {uid}", own_uid())));
        }
        let mut buffer = [0; 4096];
        loop {
            match self.wanted()? {
                0 => break,
                wanted => {
                    let into = &mut buffer[..wanted.min(4096)];
                    match sys::receive_with_fds(self.socket.as_fd(), into, &mut self.fds, RecvFlags::DONTWAIT) {
                        Ok(0) => return Err(None),
                        Ok(_) if self.fds.len() > 1 => {
                            return Err(Some("the client sent more than one descriptor with its hello".into()));
                        }
                        Ok(got) => self.received.extend_from_slice(&into[..got]),
                        Err(rustix::io::Errno::AGAIN) => return Ok(None),
                        Err(rustix::io::Errno::INTR) => {}
                        Err(_) => return Err(None),
                    }
                }
            }
        }
        Hello::decode(&self.received[Preamble::LEN..]).map(Some).map_err(Some)
    }

    /// Bytes still to be read, never more: what follows the hello belongs to the link.
    fn wanted(&self) -> Result<usize, Option<String>> {
        let Some(preamble) = self.received.first_chunk::<{ Preamble::LEN }>() else {
            return Ok(Preamble::LEN - self.received.len());
        };
        match Preamble::decode(preamble) {
            Ok(Preamble::Hello(len)) if len <= LONGEST_HELLO => Ok(Preamble::LEN + len - self.received.len()),
            Ok(Preamble::Hello(len)) => {
                Err(Some(format!("the client's hello has {len} bytes, {LONGEST_HELLO} are too many")))
            }
            Ok(_) => Err(Some("the client's first message is no hello".into())),
            Err(error) => Err(Some(error.to_string())),
        }
    }

    /// Takes the client in.
    ///
    /// # Errors
    /// A sentence to tell the client: its shared memory cannot be used.
    pub fn welcome(self, hello: &Hello, welcome: &Welcome, options: &Options) -> Result<Arc<dyn Link>, String> {
        let limit = hello.limits.max_message;
        let segment = if self.shared {
            let fd = self.fds.first().map(AsFd::as_fd);
            let made = usize::try_from(hello.ring).ok().zip(fd).map(|(ring, fd)| Segment::open(fd, ring));
            match made {
                Some(Ok(segment)) => Some(segment),
                Some(Err(error)) => return Err(self.reject(&error.to_string())),
                None => return Err(self.reject("the client sent no shared memory; connect with shm:// to this server")),
            }
        } else {
            None
        };
        let body = welcome.encode();
        if let Err(error) = self.send(Preamble::Welcome(body.len()), &body) {
            return Err(error.to_string());
        }
        Ok(match segment {
            Some(segment) => Arc::new(ShmLink::new(self.socket, segment, self.peer, limit, options)),
            None => Arc::new(StreamLink::new(self.socket, self.peer, limit, options)),
        })
    }

    /// Sends the client away with a sentence, which is returned for the server's own log.
    pub fn reject(self, why: &str) -> String {
        // It may have hung up already; then there is nobody to tell.
        let _ = self.send(Preamble::Reject(why.len()), why.as_bytes());
        // Closing a socket with something unread in it resets the connection, and the sentence may be lost by that.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
        let mut unread = [0; 4096];
        for _ in 0..=LONGEST_HELLO / unread.len() {
            match rustix::net::recv(&self.socket, &mut unread, RecvFlags::DONTWAIT) {
                Ok((_, 1..)) => {}
                _ => break,
            }
        }
        why.to_owned()
    }

    fn send(&self, preamble: Preamble, body: &[u8]) -> io::Result<()> {
        let mut message = preamble.encode().to_vec();
        message.extend_from_slice(body);
        // A fresh socket has room for any sane description; a client that does not read its welcome is not waited for.
        sys::send_all_with_fds(self.socket.as_fd(), &message, &[], Instant::now() + Duration::from_millis(500))
    }
}
