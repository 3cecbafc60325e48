//! nearcall's own protocol over a socket: the server's half of its handshake, and what begins the client's.

use std::os::fd::AsFd;
use std::sync::Arc;

use nearcall_http::refusal_of_http1;
use nearcall_ring::Segment;
use nearcall_wire::{Hello, PROTOCOL, Preamble, PreambleError, Welcome, versions_differ};

use super::arrival::{Arrival, Carrier, LONGEST_HELLO, TLS_HANDSHAKE, own_rejection, send_some};
use super::native_client::greet;
use crate::http;
use crate::link::Link;
use crate::options::Options;
use crate::peer::Peer;
use crate::places::opening::{Accepted, Awaits};
use crate::places::protocol::{Protocol, SharedMemory};
use crate::shm::{PeerLimits, ShmLink, rings_beyond_all};
use crate::signal::Signal;
use crate::stream::StreamLink;

/// nearcall's own protocol.
pub(crate) static NATIVE: Protocol = Protocol {
    alpn: &[],
    fallback: None,
    greet: |reached, greeting| Box::pin(greet(reached, greeting)),
    accept: |client| Ok(Box::new(NativeOpening { arrival: Arrival::begin(client, "tls")?, welcomed: None })),
};

/// A client that has connected and not finished its handshake.
#[derive(Debug)]
struct NativeOpening {
    arrival: Arrival,
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

impl NativeOpening {
    /// The client's hello, once it has arrived completely.
    fn hello(&mut self) -> Result<Option<Hello>, Option<String>> {
        if !self.arrival.is_readable()? {
            return Ok(None);
        }
        loop {
            match self.wanted()? {
                0 => break,
                wanted if self.arrival.read_some(wanted)? => {}
                _ => return Ok(None),
            }
        }
        Hello::decode(&self.arrival.received[Preamble::LEN..]).map(Some).map_err(Some)
    }

    /// How many bytes are still to be read. Never more: what follows the hello belongs to the link.
    fn wanted(&self) -> Result<usize, Option<String>> {
        let arrival = &self.arrival;
        let Some(preamble) = arrival.received.first_chunk::<{ Preamble::LEN }>() else {
            return Ok(Preamble::LEN - arrival.received.len());
        };
        match Preamble::decode(preamble) {
            Ok(Preamble::Hello(len)) if len <= LONGEST_HELLO => Ok(Preamble::LEN + len - arrival.received.len()),
            Ok(Preamble::Hello(len)) => {
                Err(Some(format!("the client's hello has {len} bytes, {LONGEST_HELLO} are too many")))
            }
            Ok(_) => Err(Some("the client's first message is no hello".into())),
            Err(_) if preamble.starts_with(&TLS_HANDSHAKE) => Err(Some(
                "the client speaks TLS and this port does not; connect with tcp://, or serve tls:// here".into(),
            )),
            Err(_) if http::PREFACE.starts_with(preamble) => {
                let ((own, grpc), http) = (arrival.schemes(), arrival.http());
                Err(Some(format!(
                    "nearcall's own protocol is spoken there, and neither gRPC nor HTTP; connect with {own}://, or serve {grpc}:// or {http}:// there"
                )))
            }
            Err(_) if http::is_http1(preamble) => Err(Some(format!(
                "nearcall's own protocol is spoken here, and not HTTP; for browsers and curl serve {}://",
                arrival.http()
            ))),
            Err(PreambleError::Version(theirs)) => Err(Some(versions_differ(theirs, PROTOCOL))),
            Err(error) => Err(Some(error.to_string())),
        }
    }

    /// The answer to the client's hello.
    ///
    /// # Errors
    /// A sentence to reject the client with: its shared memory cannot be used.
    fn welcome(&self, hello: &Hello, welcome: &Welcome, options: &Options) -> Result<Welcomed, String> {
        let memory = self.arrival.memory;
        let fd = self.arrival.fds.first().map(AsFd::as_fd);
        let offered = usize::try_from(hello.ring).ok().zip(fd).filter(|_| memory != SharedMemory::Never);
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
            None if memory == SharedMemory::Always => {
                return Err("the client sent no shared memory; connect with shm:// to this server".into());
            }
            None => None,
        };
        let buffers = if segment.is_some() { Segment::BUFFERS as u32 } else { 0 };
        let body = Welcome { memory: segment.is_some(), buffers, ..welcome.clone() }.encode();
        let mut unsent = Preamble::Welcome(body.len()).encode().to_vec();
        unsent.extend_from_slice(&body);
        let limits = PeerLimits { message: hello.limits.max_message, buffers: hello.buffers };
        Ok(Welcomed { unsent, segment, limits })
    }

    /// The rejection in the client's own protocol; `None` if the client could not read it.
    fn rejection(&self, why: &str, is_late: bool) -> Option<Vec<u8>> {
        match &self.arrival.received[..] {
            // In the middle of a welcome, nothing else can be sent.
            _ if self.welcomed.is_some() => None,
            received if !received.is_empty() && http::PREFACE.starts_with(received) => {
                Some(self.arrival.http2_rejection(why, is_late))
            }
            received if http::is_http1(received) => Some(refusal_of_http1(400, why)),
            // A TLS client that reads anything but TLS concludes that the port is not encrypted.
            _ => Some(own_rejection(why)),
        }
    }
}

impl Accepted for NativeOpening {
    fn signal(&self) -> Signal<'_> {
        Signal::Descriptor(self.arrival.fd())
    }

    fn awaits(&self) -> Awaits {
        if self.welcomed.is_some() { Awaits { arrivals: false, room: true } } else { self.arrival.awaits() }
    }

    fn peer(&self) -> &Peer {
        &self.arrival.peer
    }

    fn advance(&mut self, welcome: &Welcome, options: &Options) -> Result<bool, Option<String>> {
        if self.welcomed.is_none() {
            let Some(hello) = self.hello()? else { return Ok(false) };
            self.welcomed = Some(self.welcome(&hello, welcome, options).map_err(Some)?);
        }
        let Some(Welcomed { unsent, .. }) = &mut self.welcomed else { return Ok(false) };
        let sent = match &self.arrival.carrier {
            Carrier::Plain(wire) => send_some(wire, unsent),
            Carrier::Tls(wire) => send_some(&**wire, unsent),
        };
        // For the server's log: the client is gone.
        sent.map_err(|error| Some(error.to_string()))
    }

    fn into_link(self: Box<Self>, options: &Options) -> Option<Arc<dyn Link>> {
        let Self { arrival: Arrival { carrier, peer, .. }, welcomed } = *self;
        let Welcomed { segment, limits, unsent } = welcomed?;
        if !unsent.is_empty() {
            return None;
        }
        let limit = limits.message;
        Some(match (carrier, segment) {
            (Carrier::Plain(wire), Some(segment)) => {
                Arc::new(ShmLink::new(wire.0, segment, peer, limits, true, options))
            }
            (Carrier::Plain(wire), None) => Arc::new(StreamLink::new(wire, peer, limit, true, options)),
            (Carrier::Tls(wire), _) => Arc::new(StreamLink::new(*wire, peer, limit, true, options)),
        })
    }

    fn reject(self: Box<Self>, why: &str, is_late: bool) {
        let message = self.rejection(why, is_late);
        self.arrival.reject(message);
    }
}
