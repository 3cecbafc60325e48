//! A client's socket before it is a link: what has arrived, and its encryption.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use nearcall_http::{Code, farewell, refusal};
use nearcall_platform::sys::{self, Received};
use nearcall_wire::{MAGIC, Preamble};
use rustix::net::RecvFlags;

use crate::errors::{LinkError, NO_DESCRIPTOR};
use crate::http;
use crate::link::wire::{Plain, Wire};
use crate::peer::Peer;
use crate::places::opening::Awaits;
use crate::places::protocol::{Client, SharedMemory};
use crate::tls::TlsWire;

/// The most bytes of a first message that a server reads. Anyone who can connect can send one.
pub(super) const LONGEST_HELLO: usize = 64 << 10;
/// The first bytes of a TLS connection.
pub(super) const TLS_HANDSHAKE: [u8; 2] = [22, 3];

/// A client that has connected by a socket, whatever it speaks.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) carrier: Carrier,
    stage: Stage,
    pub(super) peer: Peer,
    /// Why the client is rejected, if it is.
    pub(super) stranger: Option<String>,
    pub(super) memory: SharedMemory,
    /// The scheme of what is spoken here, over encrypted TCP.
    encrypted: &'static str,
    pub(super) received: Vec<u8>,
    pub(super) fds: Vec<OwnedFd>,
}

#[derive(Debug)]
pub(super) enum Carrier {
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

impl Arrival {
    /// Begins with a client that has just connected.
    ///
    /// # Errors
    /// The error of TLS.
    pub(super) fn begin(client: Client, encrypted: &'static str) -> io::Result<Self> {
        let Client { socket, peer, stranger, memory, tls } = client;
        let (carrier, stage) = match tls {
            Some(config) => {
                let wire = TlsWire::server(socket, config).map_err(io::Error::other)?;
                (Carrier::Tls(Box::new(wire)), Stage::Unknown)
            }
            None => (Carrier::Plain(Plain::new(socket)), Stage::Ready),
        };
        Ok(Self { carrier, stage, peer, stranger, memory, encrypted, received: Vec::new(), fds: Vec::new() })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match &self.carrier {
            Carrier::Plain(wire) => wire.fd(),
            Carrier::Tls(wire) => wire.fd(),
        }
    }

    /// What to wait for before the client is answered.
    pub(super) fn awaits(&self) -> Awaits {
        let room = match &self.carrier {
            Carrier::Plain(_) => false,
            Carrier::Tls(wire) => wire.wants_room(),
        };
        Awaits { arrivals: true, room }
    }

    /// Whether messages can be exchanged.
    pub(super) fn is_ready(&self) -> bool {
        self.stage == Stage::Ready
    }

    /// The schemes for this kind of connection: with nearcall's own protocol, and with gRPC.
    pub(super) fn schemes(&self) -> (&'static str, &'static str) {
        match (&self.carrier, &self.peer) {
            (Carrier::Tls(_), _) => ("tls", "grpcs"),
            (Carrier::Plain(_), Peer::Local { .. }) if self.memory == SharedMemory::Always => ("shm", "grpc+unix"),
            (Carrier::Plain(_), Peer::Local { .. }) => ("unix", "grpc+unix"),
            (Carrier::Plain(_), _) => ("tcp", "grpc"),
        }
    }

    /// The scheme for this kind of connection with which HTTP/1 is spoken.
    pub(super) fn http(&self) -> String {
        self.schemes().1.replacen("grpc", "http", 1)
    }

    /// Whether to read from the client: it is not rejected, and its encryption is settled.
    ///
    /// # Errors
    /// A sentence to reject the client with, or `None` if it hung up.
    pub(super) fn is_readable(&mut self) -> Result<bool, Option<String>> {
        match &self.stranger {
            Some(why) => Err(Some(why.clone())),
            None => Ok(self.is_ready() || self.encrypt()?),
        }
    }

    /// Reads up to `wanted` bytes of what has arrived. Whether there were any.
    ///
    /// # Errors
    /// As `is_readable`.
    pub(super) fn read_some(&mut self, wanted: usize) -> Result<bool, Option<String>> {
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
                return Err(Some(format!("this port is encrypted; connect with {}://", self.encrypted)));
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

    /// A rejection for who has begun to speak HTTP/2.
    pub(super) fn http2_rejection(&self, why: &str, is_late: bool) -> Vec<u8> {
        match &self.stranger {
            Some(_) => refusal(Code::INADEQUATE_SECURITY, why),
            None if is_late => farewell(Code::PROTOCOL_ERROR, why),
            None => refusal(Code::PROTOCOL_ERROR, why),
        }
    }

    /// Sends a rejection, if the client can read it, and hangs up.
    pub(super) fn reject(self, message: Option<Vec<u8>>) {
        if let Some(mut message) = message {
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
    }
}

/// A rejection in nearcall's own protocol.
pub(super) fn own_rejection(why: &str) -> Vec<u8> {
    let mut message = Preamble::Reject(why.len()).encode().to_vec();
    message.extend_from_slice(why.as_bytes());
    message
}

/// Sends as much as there is room for, and removes it from `bytes`. Whether all of it is out. Never waits.
pub(super) fn send_some(wire: &impl Wire, bytes: &mut Vec<u8>) -> Result<bool, LinkError> {
    while !bytes.is_empty() {
        match wire.write(&[io::IoSlice::new(bytes)])? {
            Some(sent) => drop(bytes.drain(..sent)),
            None => return Ok(false),
        }
    }
    wire.flush()
}
