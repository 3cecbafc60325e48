//! What HTTP carries over a socket: gRPC, or all that browsers and others speak. Its clients begin with HTTP's own first
//! bytes: there is no handshake of nearcall.

use std::io;
use std::sync::Arc;

use nearcall_http::refusal_of_http1;
use nearcall_wire::{MAGIC, Welcome};

use super::arrival::{Arrival, Carrier, LONGEST_HELLO, TLS_HANDSHAKE, own_rejection};
use super::web_client;
use crate::http;
use crate::link::Link;
use crate::options::Options;
use crate::peer::Peer;
use crate::places::opening::{Accepted, Awaits};
use crate::places::protocol::{Client, Protocol};
use crate::signal::Signal;

/// gRPC over HTTP/2.
pub(crate) static GRPC: Protocol = Protocol {
    alpn: &[b"h2"],
    fallback: None,
    greet: |reached, greeting| Box::pin(web_client::greet_grpc(reached, greeting)),
    accept: |client| WebOpening::begin(client, "grpcs", false),
};

/// gRPC, gRPC-Web, Connect and JSON, over HTTP/2 or HTTP/1.1. nearcall's clients speak Connect.
pub(crate) static WEB: Protocol = Protocol {
    alpn: &[b"h2", b"http/1.1"],
    fallback: Some(&HTTP1),
    greet: |reached, greeting| Box::pin(web_client::greet(reached, greeting)),
    accept: |client| WebOpening::begin(client, "https", true),
};

/// The same, for clients that have found HTTP/1.1. A server that has learned HTTP/2 meanwhile is to say so.
static HTTP1: Protocol =
    Protocol { fallback: None, greet: |reached, greeting| Box::pin(web_client::greet_http1(reached, greeting)), ..WEB };

/// A client of HTTP whose first message has not arrived.
#[derive(Debug)]
struct WebOpening {
    arrival: Arrival,
    /// How many bytes of what was received were searched for the end of a request's head.
    looked_through: usize,
    /// The client may speak every protocol over HTTP, not only gRPC.
    is_open: bool,
}

/// How much of an HTTP client's first message has arrived.
enum FirstRequest {
    Come,
    /// At most this many more bytes are to be read.
    Unfinished(usize),
    /// The client speaks another protocol.
    Foreign,
}

impl WebOpening {
    /// Begins with a client that has just connected; `encrypted` is the scheme with which this is spoken over encrypted TCP.
    fn begin(client: Client, encrypted: &'static str, is_open: bool) -> io::Result<Box<dyn Accepted>> {
        let arrival = Arrival::begin(client, encrypted)?;
        Ok(Box::new(Self { arrival, looked_through: 0, is_open }))
    }

    /// How much of an HTTP client's first message has arrived: HTTP/2's preface, or the whole head of a request. The
    /// head is awaited here because no client may take longer for it than other clients for a handshake.
    fn first_request(&mut self) -> FirstRequest {
        let received = &self.arrival.received[..];
        let preface = http::PREFACE;
        if received.len() < preface.len() && preface.starts_with(received) {
            return FirstRequest::Unfinished(preface.len() - received.len());
        }
        if received.starts_with(preface) {
            return FirstRequest::Come;
        }
        if !self.is_open || received.starts_with(&TLS_HANDSHAKE) || received.starts_with(&MAGIC) {
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
        match &self.arrival.received[..] {
            [first, ..] if *first == MAGIC[0] => {
                let (_, grpc) = self.arrival.schemes();
                format!("gRPC is spoken there, and not nearcall's own protocol; connect with {grpc}://")
            }
            received if received.starts_with(&TLS_HANDSHAKE) => {
                "the client speaks TLS and this port does not; connect without the 's' of grpcs:// or https://, or serve that here".into()
            }
            received if http::is_http1(received) => {
                format!("gRPC is spoken here, which needs HTTP/2, and this was HTTP/1; for browsers and curl serve {}://", self.arrival.http())
            }
            _ => "the client does not speak HTTP/2, which gRPC needs".into(),
        }
    }

    /// The rejection in the client's own protocol; `None` if the client could not read it.
    fn rejection(&self, why: &str, is_late: bool) -> Option<Vec<u8>> {
        let arrival = &self.arrival;
        match &arrival.received[..] {
            [first, ..] if *first == MAGIC[0] => Some(own_rejection(why)),
            received if self.is_open => (!received.is_empty()).then(|| refusal_of_http1(400, why)),
            received if http::is_http1(received) && !http::PREFACE.starts_with(received) => {
                let is_other_version = arrival.stranger.is_none() && arrival.is_ready();
                Some(refusal_of_http1(if is_other_version { 505 } else { 400 }, why))
            }
            received if http::PREFACE.starts_with(received) || received.starts_with(&TLS_HANDSHAKE) => {
                Some(arrival.http2_rejection(why, is_late))
            }
            _ => None,
        }
    }
}

impl Accepted for WebOpening {
    fn signal(&self) -> Signal<'_> {
        Signal::Descriptor(self.arrival.fd())
    }

    fn awaits(&self) -> Awaits {
        self.arrival.awaits()
    }

    fn peer(&self) -> &Peer {
        &self.arrival.peer
    }

    fn advance(&mut self, _: &Welcome, _: &Options) -> Result<bool, Option<String>> {
        if !self.arrival.is_readable()? {
            return Ok(false);
        }
        loop {
            let wanted = match self.first_request() {
                FirstRequest::Come => return Ok(true),
                FirstRequest::Foreign => return Err(Some(self.foreign())),
                FirstRequest::Unfinished(wanted) => wanted,
            };
            if !self.arrival.read_some(wanted)? {
                return Ok(false);
            }
        }
    }

    fn into_link(mut self: Box<Self>, options: &Options) -> Option<Arc<dyn Link>> {
        if !matches!(self.first_request(), FirstRequest::Come) {
            return None;
        }
        let Self { arrival: Arrival { carrier, peer, received, .. }, is_open, .. } = *self;
        Some(match carrier {
            Carrier::Plain(wire) => http::serve(wire, peer, &received, is_open, false, options),
            Carrier::Tls(wire) => http::serve(*wire, peer, &received, is_open, true, options),
        })
    }

    fn reject(self: Box<Self>, why: &str, is_late: bool) {
        let message = self.rejection(why, is_late);
        self.arrival.reject(message);
    }
}
