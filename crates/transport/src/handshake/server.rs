//! The server's half of a handshake. Nothing here blocks, so a slow client holds up no other.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nearcall_http::{Code, farewell, refusal, refusal_of_http1};
use nearcall_platform::sys::{self, Received};
use nearcall_ring::Segment;
use nearcall_wire::{Hello, MAGIC, PROTOCOL, Preamble, PreambleError, Welcome, versions_differ};
use rustix::net::RecvFlags;
use rustls::ServerConfig;

use crate::errors::{LinkError, NO_DESCRIPTOR};
use crate::http;
use crate::link::Link;
use crate::link::wire::{Plain, Wire};
use crate::options::Options;
use crate::peer::Peer;
use crate::shm::{PeerLimits, ShmLink, rings_beyond_all};
use crate::stream::StreamLink;
use crate::tls::TlsWire;
use crate::transports::{ConnectionPermit, SharedMemory, Speaks};

/// The longest hello that a server reads. Anyone who can connect can send one.
const LONGEST_HELLO: usize = 64 << 10;
/// The first bytes of a TLS connection.
const TLS_HANDSHAKE: [u8; 2] = [22, 3];

/// A client that has connected.
pub(crate) struct Accepted {
    pub(crate) socket: OwnedFd,
    /// Where the server listens that the client has connected to.
    pub(crate) url: Arc<str>,
    /// The client's permit, if another process handed it over.
    pub(crate) permit: Option<Arc<ConnectionPermit>>,
    pub(crate) peer: Peer,
    /// Why the client is rejected, if it is.
    pub(crate) stranger: Option<String>,
    pub(crate) memory: SharedMemory,
    pub(crate) speaks: Speaks,
}

/// A client that has connected and not finished its handshake.
#[derive(Debug)]
pub struct Handshake {
    carrier: Carrier,
    stage: Stage,
    url: Arc<str>,
    peer: Peer,
    /// Why the client is rejected, if it is.
    stranger: Option<String>,
    memory: SharedMemory,
    speaks: Speaks,
    /// Whether its time is over.
    late: bool,
    received: Vec<u8>,
    /// How many bytes of `received` were searched for the end of a request's head.
    looked_through: usize,
    fds: Vec<OwnedFd>,
    permit: Option<Arc<ConnectionPermit>>,
    welcomed: Option<Welcomed>,
}

/// The answer to a client's hello, and what the link to it will need.
#[derive(Debug)]
struct Welcomed {
    /// The part of the welcome that is not sent yet.
    unsent: Vec<u8>,
    segment: Option<Segment>,
    limits: PeerLimits,
}

#[derive(Debug)]
enum Carrier {
    Plain(Plain),
    Tls(Box<TlsWire>),
}

/// How far an encrypted connection has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No byte was looked at.
    Unknown,
    /// The client speaks nearcall or HTTP/2 without encryption.
    Plaintext,
    /// The TLS handshake is under way, or has failed.
    Shaking,
    /// Messages can be exchanged.
    Ready,
}

/// How much of an HTTP client's first message has arrived.
enum FirstRequest {
    Come,
    /// At most this many more bytes are to be read.
    Unfinished(usize),
    /// The client speaks another protocol.
    Foreign,
}

impl Handshake {
    /// Begins with a client that has just connected. `tls`: encrypts the connection.
    ///
    /// # Errors
    /// The error of TLS.
    pub(crate) fn begin(accepted: Accepted, tls: Option<&Arc<ServerConfig>>) -> io::Result<Self> {
        let Accepted { socket, url, permit, peer, stranger, memory, speaks } = accepted;
        let (carrier, stage) = match tls {
            Some(config) => {
                let wire = TlsWire::server(socket, Arc::clone(config)).map_err(io::Error::other)?;
                (Carrier::Tls(Box::new(wire)), Stage::Unknown)
            }
            None => (Carrier::Plain(Plain::new(socket)), Stage::Ready),
        };
        Ok(Self {
            carrier,
            stage,
            url,
            peer,
            stranger,
            memory,
            speaks,
            late: false,
            received: Vec::new(),
            looked_through: 0,
            fds: Vec::new(),
            permit,
            welcomed: None,
        })
    }

    /// The URL that the client has connected to.
    #[must_use]
    pub fn url(&self) -> &Arc<str> {
        &self.url
    }

    /// The descriptor to poll for reading.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        match &self.carrier {
            Carrier::Plain(wire) => wire.fd(),
            Carrier::Tls(wire) => wire.fd(),
        }
    }

    /// Whether the descriptor has to be polled for writing, too.
    #[must_use]
    pub fn wants_room(&self) -> bool {
        self.is_welcomed()
            || match &self.carrier {
                Carrier::Plain(_) => false,
                Carrier::Tls(wire) => wire.wants_room(),
            }
    }

    /// Whether the client's hello was answered. From then on the client sends nothing until it has read the answer.
    #[must_use]
    pub fn is_welcomed(&self) -> bool {
        self.welcomed.is_some()
    }

    /// The client's permit, if another process handed it over. To be kept as long as the connection.
    #[must_use]
    pub fn permit(&self) -> Option<Arc<ConnectionPermit>> {
        self.permit.clone()
    }

    /// The client.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Continues as far as the received bytes allow. Whether the handshake is [complete](Handshake::into_link).
    ///
    /// # Errors
    /// A sentence to [reject](Handshake::reject) the client with, or `None` if it hung up.
    pub fn advance(&mut self, welcome: &Welcome, options: &Options) -> Result<bool, Option<String>> {
        if self.speaks != Speaks::Nearcall {
            return self.preface();
        }
        if !self.is_welcomed() {
            let Some(hello) = self.hello()? else { return Ok(false) };
            self.welcome(&hello, welcome, options).map_err(Some)?;
        }
        self.send_welcome().map_err(Some)
    }

    /// Looks for the first bytes of an HTTP client. Whether they have arrived.
    fn preface(&mut self) -> Result<bool, Option<String>> {
        if !self.is_readable()? {
            return Ok(false);
        }
        loop {
            let wanted = match self.first_request() {
                FirstRequest::Come => return Ok(true),
                FirstRequest::Foreign => return Err(Some(self.foreign())),
                FirstRequest::Unfinished(wanted) => wanted,
            };
            if !self.read_some(wanted)? {
                return Ok(false);
            }
        }
    }

    /// How much of an HTTP client's first message has arrived: HTTP/2's preface, or the whole head of a request. The
    /// head is awaited here because no client may take longer for it than other clients for a handshake.
    fn first_request(&mut self) -> FirstRequest {
        let received = &self.received[..];
        let preface = http::PREFACE;
        if received.len() < preface.len() && preface.starts_with(received) {
            return FirstRequest::Unfinished(preface.len() - received.len());
        }
        if received.starts_with(preface) {
            return FirstRequest::Come;
        }
        if self.speaks == Speaks::Grpc || received.starts_with(&TLS_HANDSHAKE) || received.starts_with(&MAGIC) {
            return FirstRequest::Foreign;
        }
        // A head that is too long counts as arrived: the link refuses it, like any later one.
        let new = &received[self.looked_through.saturating_sub(3)..];
        if received.len() >= LONGEST_HELLO || new.windows(4).any(|four| four == b"\r\n\r\n") {
            return FirstRequest::Come;
        }
        self.looked_through = received.len();
        FirstRequest::Unfinished(4096)
    }

    /// The message for a client whose first bytes are not HTTP/2's.
    fn foreign(&self) -> String {
        match &self.received[..] {
            [first, ..] if *first == MAGIC[0] => {
                format!("gRPC is spoken there, and not nearcall's own protocol; connect with {}://", self.schemes().1)
            }
            received if received.starts_with(&TLS_HANDSHAKE) => {
                "the client speaks TLS and this port does not; connect without the 's' of grpcs:// or https://, or serve that here".into()
            }
            received if http::is_http1(received) => {
                format!("gRPC is spoken here, which needs HTTP/2, and this was HTTP/1; for browsers and curl serve {}://", self.http())
            }
            _ => "the client does not speak HTTP/2, which gRPC needs".into(),
        }
    }

    /// The schemes for this kind of connection: with nearcall's own protocol, and with gRPC.
    fn schemes(&self) -> (&'static str, &'static str) {
        match (&self.carrier, &self.peer) {
            (Carrier::Tls(_), _) => ("tls", "grpcs"),
            (Carrier::Plain(_), Peer::Local { .. }) if self.memory == SharedMemory::Always => ("shm", "grpc+unix"),
            (Carrier::Plain(_), Peer::Local { .. }) => ("unix", "grpc+unix"),
            (Carrier::Plain(_), _) => ("tcp", "grpc"),
        }
    }

    /// The scheme for this kind of connection with which HTTP/1 is spoken.
    fn http(&self) -> String {
        self.schemes().1.replacen("grpc", "http", 1)
    }

    /// The client's hello, once it has arrived completely.
    ///
    /// # Errors
    /// A sentence to [reject](Handshake::reject) the client with, or `None` if it hung up.
    pub fn hello(&mut self) -> Result<Option<Hello>, Option<String>> {
        if !self.is_readable()? {
            return Ok(None);
        }
        loop {
            match self.wanted()? {
                0 => break,
                wanted if self.read_some(wanted)? => {}
                _ => return Ok(None),
            }
        }
        Hello::decode(&self.received[Preamble::LEN..]).map(Some).map_err(Some)
    }

    /// Whether to read from the client: it is not rejected, and its encryption is settled.
    fn is_readable(&mut self) -> Result<bool, Option<String>> {
        match &self.stranger {
            Some(why) => Err(Some(why.clone())),
            None => Ok(self.stage == Stage::Ready || self.encrypt()?),
        }
    }

    /// Reads up to `wanted` bytes of what has arrived. Whether there were any.
    fn read_some(&mut self, wanted: usize) -> Result<bool, Option<String>> {
        let mut buffer = [0; 4096];
        let into = &mut buffer[..wanted.min(4096)];
        loop {
            match self.read(into) {
                Ok(Some(0)) => return Err(None),
                Ok(Some(_)) if self.fds.len() > 1 => {
                    return Err(Some("the client sent more than one descriptor with its first message".into()));
                }
                Ok(Some(got)) => self.received.extend_from_slice(&into[..got]),
                Ok(None) => return Ok(false),
                Err(LinkError::Interrupted) => continue,
                Err(LinkError::Broken(why)) if matches!(self.carrier, Carrier::Plain(_)) => return Err(Some(why)),
                Err(error @ LinkError::Exhausted(_)) => return Err(Some(format!("of the server: {error}"))),
                Err(_) => return Err(self.trouble()),
            }
            return Ok(true);
        }
    }

    fn read(&mut self, into: &mut [u8]) -> Result<Option<usize>, LinkError> {
        match &self.carrier {
            Carrier::Tls(wire) => wire.read(into, false),
            Carrier::Plain(wire) => match sys::receive_memory(wire.fd(), into, &mut self.fds, RecvFlags::DONTWAIT) {
                Ok(Received { lost_fds: true, .. }) if self.fds.is_empty() => {
                    Err(LinkError::Exhausted(NO_DESCRIPTOR.into()))
                }
                Ok(Received { foreign_fds: true, .. }) => {
                    Err(LinkError::Broken("the client sent a descriptor that is not shared memory".into()))
                }
                Ok(Received { bytes, .. }) => Ok(Some(bytes)),
                Err(rustix::io::Errno::AGAIN) => Ok(None),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// Continues the TLS handshake. Whether it is complete.
    fn encrypt(&mut self) -> Result<bool, Option<String>> {
        let Carrier::Tls(wire) = &self.carrier else { return Ok(true) };
        if self.stage == Stage::Unknown {
            let mut first = [0; 4];
            let first = match rustix::net::recv(wire.fd(), &mut first, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Err(None),
                Ok((_, got)) => &first[..got],
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(false),
                Err(_) => return Err(None),
            };
            if first[0] == MAGIC[0] || http::PREFACE.starts_with(first) || http::is_http1(first) {
                self.stage = Stage::Plaintext;
                // Only to choose the protocol of the rejection.
                self.received.extend_from_slice(first);
                let scheme = match self.speaks {
                    Speaks::Nearcall => "tls",
                    Speaks::Grpc => "grpcs",
                    Speaks::Http => "https",
                };
                return Err(Some(format!("this port is encrypted; connect with {scheme}://")));
            }
            self.stage = Stage::Shaking;
        }
        match wire.advance() {
            Ok(true) => {
                self.stage = Stage::Ready;
                self.peer = wire.identify(self.peer.clone());
                Ok(true)
            }
            Ok(false) | Err(LinkError::Interrupted) => Ok(false),
            Err(_) => Err(self.trouble()),
        }
    }

    /// What TLS complains about.
    fn trouble(&mut self) -> Option<String> {
        let Carrier::Tls(wire) = &self.carrier else { return None };
        let why = wire.trouble();
        if why.is_some() {
            // An alert has told the client, which accepts no message any more.
            self.stage = Stage::Shaking;
        }
        why
    }

    /// How many bytes are still to be read. Never more: what follows the hello belongs to the link.
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
            Err(_) if preamble.starts_with(&TLS_HANDSHAKE) => Err(Some(
                "the client speaks TLS and this port does not; connect with tcp://, or serve tls:// here".into(),
            )),
            Err(_) if http::PREFACE.starts_with(preamble) => {
                let ((own, grpc), http) = (self.schemes(), self.http());
                Err(Some(format!(
                    "nearcall's own protocol is spoken there, and neither gRPC nor HTTP; connect with {own}://, or serve {grpc}:// or {http}:// there"
                )))
            }
            Err(_) if http::is_http1(preamble) => Err(Some(format!(
                "nearcall's own protocol is spoken here, and not HTTP; for browsers and curl serve {}://",
                self.http()
            ))),
            Err(PreambleError::Version(theirs)) => Err(Some(versions_differ(theirs, PROTOCOL))),
            Err(error) => Err(Some(error.to_string())),
        }
    }

    /// Answers the client's hello. [`Handshake::send_welcome`] sends the answer.
    ///
    /// # Errors
    /// A sentence to [reject](Handshake::reject) the client with: its shared memory cannot be used.
    pub fn welcome(&mut self, hello: &Hello, welcome: &Welcome, options: &Options) -> Result<(), String> {
        let limit = hello.limits.max_message;
        let fd = self.fds.first().map(AsFd::as_fd);
        let offered = usize::try_from(hello.ring).ok().zip(fd).filter(|_| self.memory != SharedMemory::Never);
        let segment = match offered {
            Some((ring, fd)) => {
                let segment = Segment::open(fd, ring).map_err(|error| error.to_string())?;
                if !options.allows_beside(rings_beyond_all(ring)) {
                    return Err(format!(
                        "there is no memory left for two rings of {ring} bytes; connect with a smaller ring_size, or raise max_memory here"
                    ));
                }
                Some(segment)
            }
            None if self.memory == SharedMemory::Always => {
                return Err("the client sent no shared memory; connect with shm:// to this server".into());
            }
            None => None,
        };
        let buffers = if segment.is_some() { Segment::BUFFERS as u32 } else { 0 };
        let body = Welcome { memory: segment.is_some(), buffers, ..welcome.clone() }.encode();
        let mut unsent = Preamble::Welcome(body.len()).encode().to_vec();
        unsent.extend_from_slice(&body);
        let limits = PeerLimits { message: limit, buffers: hello.buffers };
        self.welcomed = Some(Welcomed { unsent, segment, limits });
        Ok(())
    }

    /// Sends as much of the welcome as there is room for. Whether all of it is out: then the handshake is
    /// [complete](Handshake::into_link).
    ///
    /// # Errors
    /// A sentence for the server's log: the client is gone.
    pub fn send_welcome(&mut self) -> Result<bool, String> {
        let Some(Welcomed { unsent, .. }) = &mut self.welcomed else { return Ok(false) };
        let sent = match &self.carrier {
            Carrier::Plain(wire) => send_some(wire, unsent),
            Carrier::Tls(wire) => send_some(&**wire, unsent),
        };
        sent.map_err(|error| error.to_string())
    }

    /// The connection to a client whose handshake is complete; `None` if it is not complete.
    #[must_use]
    pub fn into_link(mut self, options: &Options) -> Option<Arc<dyn Link>> {
        if self.speaks != Speaks::Nearcall {
            let is_greeted = matches!(self.first_request(), FirstRequest::Come);
            let is_open = self.speaks == Speaks::Http;
            return is_greeted.then(|| match self.carrier {
                Carrier::Plain(wire) => http::serve(wire, self.peer, &self.received, is_open, false, options),
                Carrier::Tls(wire) => http::serve(*wire, self.peer, &self.received, is_open, true, options),
            });
        }
        let Welcomed { segment, limits, .. } = self.welcomed?;
        let limit = limits.message;
        Some(match (self.carrier, segment) {
            (Carrier::Plain(wire), Some(segment)) => {
                Arc::new(ShmLink::new(wire.0, segment, self.peer, limits, true, options))
            }
            (Carrier::Plain(wire), None) => Arc::new(StreamLink::new(wire, self.peer, limit, true, options)),
            (Carrier::Tls(wire), _) => Arc::new(StreamLink::new(*wire, self.peer, limit, true, options)),
        })
    }

    /// Rejects the client because its time is over, and returns the sentence for the server's own log.
    pub fn reject_as_late(mut self) -> String {
        self.late = true;
        self.reject("the handshake took too long")
    }

    /// Rejects the client with a sentence, and returns the sentence for the server's own log.
    pub fn reject(self, why: &str) -> String {
        if let Some(message) = self.rejection(why) {
            self.send_rejection(message);
        }
        // Closing a socket with unread bytes resets the connection, and the client could lose the sentence: so reads
        // them first.
        let _ = rustix::net::shutdown(self.fd(), rustix::net::Shutdown::Write);
        let mut unread = [0; 4096];
        for _ in 0..=LONGEST_HELLO / unread.len() {
            match sys::receive_memory(self.fd(), &mut unread, &mut Vec::new(), RecvFlags::DONTWAIT) {
                Ok(Received { bytes: 1.., .. }) => {}
                _ => break,
            }
        }
        why.to_owned()
    }

    /// The sentence in the client's own protocol; `None` if the client could not read it.
    fn rejection(&self, why: &str) -> Option<Vec<u8>> {
        if self.is_welcomed() {
            // In the middle of a welcome, nothing else can be sent.
            return None;
        }
        if self.speaks == Speaks::Http && self.received.first() != MAGIC.first() {
            return (!self.received.is_empty()).then(|| refusal_of_http1(400, why));
        }
        if http::is_http1(&self.received) && !http::PREFACE.starts_with(&self.received) {
            let is_other_version = self.speaks == Speaks::Grpc && self.stranger.is_none() && self.stage == Stage::Ready;
            return Some(refusal_of_http1(if is_other_version { 505 } else { 400 }, why));
        }
        let by_goodbye = match &self.received[..] {
            [] => self.speaks == Speaks::Grpc,
            // A TLS client that reads anything but TLS concludes that the port is not encrypted.
            received if received.starts_with(&TLS_HANDSHAKE) => self.speaks == Speaks::Grpc,
            received => http::PREFACE.starts_with(received),
        };
        if by_goodbye {
            return Some(match &self.stranger {
                Some(_) => refusal(Code::INADEQUATE_SECURITY, why),
                None if self.late => farewell(Code::PROTOCOL_ERROR, why),
                None => refusal(Code::PROTOCOL_ERROR, why),
            });
        }
        if self.speaks == Speaks::Grpc && self.received.first() != MAGIC.first() {
            return None;
        }
        let mut message = Preamble::Reject(why.len()).encode().to_vec();
        message.extend_from_slice(why.as_bytes());
        Some(message)
    }

    fn send_rejection(&self, mut message: Vec<u8>) {
        // A new socket has room for a few words. If the client has hung up, there is no one to tell.
        let _ = match (&self.carrier, self.stage) {
            (Carrier::Plain(wire), _) => send_some(wire, &mut message),
            (Carrier::Tls(wire), Stage::Ready) => send_some(&**wire, &mut message),
            (Carrier::Tls(wire), Stage::Plaintext) => {
                let _ = sys::send_with_fds(wire.fd(), &message, &[]);
                Ok(true)
            }
            (Carrier::Tls(_), Stage::Unknown | Stage::Shaking) => Ok(true),
        };
    }
}

/// Sends as much as there is room for, and removes it from `bytes`. Whether all of it is out. Never waits.
fn send_some(wire: &impl Wire, bytes: &mut Vec<u8>) -> Result<bool, LinkError> {
    while !bytes.is_empty() {
        match wire.write(&[io::IoSlice::new(bytes)])? {
            Some(sent) => drop(bytes.drain(..sent)),
            None => return Ok(false),
        }
    }
    wire.flush()
}
