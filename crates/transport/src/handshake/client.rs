//! The client's half of a handshake: makes a connection from a socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use nearcall_http::{Asks, Broken, Code, Event};
use nearcall_ring::Segment;
use nearcall_wire::{Hello, Limits, PROTOCOL, Preamble, PreambleError, Welcome, shown, versions_differ};
use rustix::event::PollFlags;
use rustix::net::sockopt;

use super::mismatch::{TELLING, begins_http2, other_protocol, silent};
use crate::errors::{ConnectError, LinkError};
use crate::http;
use crate::link::pace::{Pace, Steps};
use crate::link::wire::{Plain, Wire};
use crate::link::{LONGEST_SLEEP, Link};
use crate::options::Options;
use crate::peer::Peer;
use crate::shm::{PeerLimits, ShmLink};
use crate::stream::StreamLink;
use crate::tls::{TlsWire, explain};
use crate::transports::{Dialled, SharedMemory, Speaks};
use crate::url::Url;

/// A new connection, and what the server said of itself.
#[derive(Debug)]
pub struct Connected {
    /// The connection.
    pub link: Arc<dyn Link>,
    /// The server's welcome.
    pub welcome: Welcome,
}

/// The steps of a dial: connects to `url` and shakes hands.
///
/// # Errors
/// [`ConnectError`], with a sentence that names the URL.
pub(crate) async fn establish(
    url: &Url,
    version: &str,
    options: &Options,
    pace: &Pace,
) -> Result<Connected, ConnectError> {
    let limits = Limits { max_message: options.max_message };
    let mut hello = Hello { version: version.to_owned(), limits, ring: 0, buffers: 0 };
    let Dialled { socket, memory, tls, speaks } = url.place().dial(options, pace).await?;
    if let Some((config, name)) = tls {
        let wire = TlsWire::client(socket, config, name).map_err(|error| {
            ConnectError::Options(format!("cannot connect to {url}: {}", explain(&error, true, None)))
        })?;
        if speaks != Speaks::Nearcall {
            encrypt(url, &wire, pace).await.map_err(|error| untrusted(url, &wire, error))?;
            let peer = wire.identify(Peer::of(wire.fd()));
            // A server that agrees on no protocol by ALPN does not speak HTTP/2.
            if speaks == Speaks::Http && wire.agreed().is_none_or(|protocol| protocol != b"h2") {
                return pooled(url, http1(url, wire, peer, true, options)?, version, options);
            }
            return speak_http2(url, wire, peer, true, speaks, options, pace).await?.connected(url, version);
        }
        return connect_encrypted(url, wire, &hello, options, pace).await;
    }
    if speaks != Speaks::Nearcall {
        let peer = Peer::of(socket.as_fd());
        let spoken = speak_http2(url, Plain::new(socket), peer, false, speaks, options, pace).await?;
        if matches!(spoken, Spoken::Http1) && speaks == Speaks::Http {
            // The server took the start of HTTP/2 for a bad request, and hangs up.
            let Dialled { socket, .. } = url.place().dial(options, pace).await?;
            let peer = Peer::of(socket.as_fd());
            return pooled(url, http1(url, Plain::new(socket), peer, false, options)?, version, options);
        }
        return spoken.connected(url, version);
    }
    let segment = if memory == SharedMemory::Never {
        None
    } else {
        hello.ring = options.ring_size as u64;
        hello.buffers = Segment::BUFFERS as u32;
        let made = Segment::create(options.ring_size)
            .map_err(|error| ConnectError::Unavailable(format!("cannot make shared memory for {url}: {error}")))?;
        Some(made)
    };
    let fds: Vec<_> = segment.iter().map(|(_, fd)| fd.as_fd()).collect();
    let wire = Plain::new(socket);
    let welcome = shake_hands(url, &wire, &hello, &fds, pace).await?;
    let peer = memory.peer_of(wire.fd());
    limit_sleep(wire.fd());
    let limit = welcome.limits.max_message;
    let link: Arc<dyn Link> = match segment {
        Some((segment, _)) if memory == SharedMemory::Always || welcome.memory => {
            let limits = PeerLimits { message: limit, buffers: welcome.buffers };
            Arc::new(ShmLink::new(wire.0, segment, peer, limits, false, options))
        }
        _ => Arc::new(StreamLink::new(wire, peer, limit, false, options)),
    };
    Ok(Connected { link, welcome })
}

/// Lets the socket itself end a sleep, so that reading from it needs no second system call.
fn limit_sleep(socket: BorrowedFd<'_>) {
    // On a system without this, Ctrl-C takes effect when the next bytes arrive.
    let _ = sockopt::set_socket_timeout(socket, sockopt::Timeout::Recv, Some(LONGEST_SLEEP));
}

async fn connect_encrypted(
    url: &Url,
    wire: TlsWire,
    hello: &Hello,
    options: &Options,
    pace: &Pace,
) -> Result<Connected, ConnectError> {
    let greeted = match encrypt(url, &wire, pace).await {
        Ok(()) => shake_hands(url, &wire, hello, &[], pace).await,
        Err(error) => Err(error),
    };
    let welcome = greeted.map_err(|error| untrusted(url, &wire, error))?;
    let peer = wire.identify(Peer::of(wire.fd()));
    limit_sleep(wire.fd());
    let limit = welcome.limits.max_message;
    Ok(Connected { link: Arc::new(StreamLink::new(wire, peer, limit, false, options)), welcome })
}

/// The error of an encrypted connection that failed: TLS's own reason, if there is one.
fn untrusted(url: &Url, wire: &TlsWire, error: ConnectError) -> ConnectError {
    // The server may have sent its reason before it hung up.
    let _ = wire.read(&mut [0], false);
    match wire.trouble() {
        Some(why) => ConnectError::Untrusted(format!("cannot connect to {url}: {why}")),
        None => error,
    }
}

/// The protocol that an HTTP server turned out to speak.
enum Spoken {
    Http2(Arc<dyn Link>),
    /// Not HTTP/2.
    Http1,
}

impl Spoken {
    fn connected(self, url: &Url, version: &str) -> Result<Connected, ConnectError> {
        match self {
            Self::Http2(link) => Ok(undescribed(link, version)),
            Self::Http1 => Err(handshake_failure(url, &LinkError::Closed)),
        }
    }
}

/// A connection to a server that does not describe itself.
fn undescribed(link: Arc<dyn Link>, version: &str) -> Connected {
    let limits = Limits { max_message: u64::MAX };
    let welcome =
        Welcome { version: version.to_owned(), limits, description: String::new(), memory: false, buffers: 0 };
    Connected { link, welcome }
}

/// A connection over HTTP/2 to a server of gRPC or Connect. Such servers send HTTP/2's settings, but no welcome.
async fn speak_http2(
    url: &Url,
    wire: impl Wire + 'static,
    peer: Peer,
    is_secure: bool,
    speaks: Speaks,
    options: &Options,
    pace: &Pace,
) -> Result<Spoken, ConnectError> {
    let failed = |error: &LinkError| handshake_failure(url, error);
    let may_be_http1 = speaks == Speaks::Http && !is_secure;
    let mut session = http::client_session(options);
    let mut first = Vec::with_capacity(TELLING);
    while !session.is_settled() {
        let unsent = session.unsent().to_vec();
        match pace.send_all(&wire, &unsent, &[]).await {
            // A server that rejects this client may have said so without reading what the client sends.
            Ok(()) | Err(Some(LinkError::Closed)) => session.sent(unsent.len()),
            Err(None) => return Err(out_of_time(url)),
            Err(Some(error)) => return Err(failed(&error)),
        }
        let space = session.space();
        match wire.read(space, false) {
            Ok(Some(0)) | Err(LinkError::Closed) if may_be_http1 && first.is_empty() => return Ok(Spoken::Http1),
            Ok(Some(0)) => return Err(failed(&LinkError::Closed)),
            Ok(Some(len)) => {
                first.extend(space[..len].iter().take(TELLING - first.len()));
                session.arrived(len);
            }
            Ok(None) if pace.ready(wire.fd(), PollFlags::IN).await.map_err(|error| failed(&error.into()))? => {
                continue;
            }
            Ok(None) => return Err(out_of_time(url)),
            Err(error) => return Err(failed(&error)),
        }
        if let Some(first) = first.first_chunk() {
            if let Some(other) = other_protocol(url, speaks, *first) {
                return Err(ConnectError::Mismatch(other));
            }
            if may_be_http1 && !begins_http2(*first) {
                return Ok(Spoken::Http1);
            }
        }
        let mismatch = |broken: Broken| ConnectError::Mismatch(format!("cannot use {url}: {}", broken.why));
        while let Some(event) = session.next_event().map_err(mismatch)? {
            // No call is under way yet, so no other event matters.
            if let Event::GoAway { code, why, .. } = event {
                return Err(sent_away(url, code, &why));
            }
        }
    }
    let asks = if speaks == Speaks::Grpc { Asks::Grpc } else { asks_connect(options) };
    let link = http::call(wire, peer, session, asks, authority_of(url), is_secure, options);
    Ok(Spoken::Http2(link.map_err(|error| unavailable(url, &error))?))
}

/// A connection over HTTP/1.1 to a server of Connect, which sends nothing before the first request.
fn http1(
    url: &Url,
    wire: impl Wire + 'static,
    peer: Peer,
    is_secure: bool,
    options: &Options,
) -> Result<Arc<dyn Link>, ConnectError> {
    let session = http::http1_client_session(options);
    let link = http::call(wire, peer, session, asks_connect(options), authority_of(url), is_secure, options);
    link.map_err(|error| unavailable(url, &error))
}

/// A pool that begins with this connection, and dials more to the same server when all are busy.
fn pooled(url: &Url, first: Arc<dyn Link>, version: &str, options: &Options) -> Result<Connected, ConnectError> {
    let (to, more) = (url.clone(), options.clone());
    let pool = http::Pool::new(first, options, Box::new(move || one_more(&to, &more)));
    Ok(undescribed(pool.map_err(|error| unavailable(url, &error))?, version))
}

/// Dials one more connection to a server at one address that speaks HTTP/1.1, within `options.handshake`.
fn one_more(url: &Url, options: &Options) -> Result<Arc<dyn Link>, ConnectError> {
    let deadline = Instant::now() + options.handshake;
    let (url, options) = (url.clone(), options.clone());
    Steps::new(deadline, |pace| async move { establish_http1(&url, &options, &pace).await }).finish()
}

/// The steps of one more connection to a server that speaks HTTP/1.1.
async fn establish_http1(url: &Url, options: &Options, pace: &Pace) -> Result<Arc<dyn Link>, ConnectError> {
    let Dialled { socket, tls, .. } = url.place().dial(options, pace).await?;
    let Some((config, name)) = tls else {
        let peer = Peer::of(socket.as_fd());
        return http1(url, Plain::new(socket), peer, false, options);
    };
    let wire = TlsWire::client(socket, config, name)
        .map_err(|error| ConnectError::Options(format!("cannot connect to {url}: {}", explain(&error, true, None))))?;
    encrypt(url, &wire, pace).await.map_err(|error| untrusted(url, &wire, error))?;
    if wire.agreed().is_some_and(|protocol| protocol == b"h2") {
        // Another server answers there by now. The next dial, when this pool is gone, finds that out.
        return Err(ConnectError::Mismatch(format!("{url} speaks HTTP/2 now")));
    }
    let peer = wire.identify(Peer::of(wire.fd()));
    http1(url, wire, peer, true, options)
}

fn asks_connect(options: &Options) -> Asks {
    Asks::Connect { codec: options.codec, by_get: options.by_get }
}

fn unavailable(url: &Url, error: &io::Error) -> ConnectError {
    ConnectError::Unavailable(format!("cannot connect to {url}: {error}"))
}

/// The server's name in requests.
fn authority_of(url: &Url) -> String {
    let shown = url.to_string();
    // The path of a Unix socket is no server name.
    let authority = shown.split_once("://").map_or("", |(_, place)| place);
    if authority.starts_with('/') { "localhost".to_owned() } else { authority.to_owned() }
}

/// The error for a server's GOAWAY before the first call.
fn sent_away(url: &Url, code: Code, why: &str) -> ConnectError {
    let why = if why.is_empty() { code.name().to_owned() } else { shown(why) };
    match code {
        Code::NO_ERROR => ConnectError::Left(format!("{url} takes no more calls: {why}")),
        _ => ConnectError::Refused(format!("{url} refused: {why}")),
    }
}

/// The TLS handshake.
async fn encrypt(url: &Url, wire: &TlsWire, pace: &Pace) -> Result<(), ConnectError> {
    let failed = |error: LinkError| handshake_failure(url, &error);
    while !wire.advance().map_err(failed)? {
        let events = if wire.wants_room() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        if !pace.ready(wire.fd(), events).await.map_err(|error| failed(error.into()))? {
            return Err(out_of_time(url));
        }
    }
    Ok(())
}

fn out_of_time(url: &Url) -> ConnectError {
    ConnectError::TimedOut(format!("{url} accepted the connection but did not finish the handshake in time"))
}

fn handshake_failure(url: &Url, error: &LinkError) -> ConnectError {
    match error {
        LinkError::Closed => ConnectError::Left(format!("{url} hung up during the handshake")),
        error => ConnectError::Unavailable(format!("the handshake with {url} failed: {error}")),
    }
}

async fn shake_hands(
    url: &Url,
    wire: &impl Wire,
    hello: &Hello,
    fds: &[BorrowedFd<'_>],
    pace: &Pace,
) -> Result<Welcome, ConnectError> {
    let failed = |error: Option<LinkError>| match error {
        None => out_of_time(url),
        Some(error) => handshake_failure(url, &error),
    };
    let body = hello.encode();
    let mut message = Preamble::Hello(body.len()).encode().to_vec();
    message.extend_from_slice(&body);
    match pace.send_all(wire, &message, fds).await {
        // A server that rejects this client may have said so without reading what the client sends.
        Ok(()) | Err(Some(LinkError::Closed)) => {}
        Err(error) => return Err(failed(error)),
    }

    let mut preamble = [0; Preamble::LEN];
    let mismatch = |what: String| ConnectError::Mismatch(format!("cannot use {url}: {what}"));
    // A server with another protocol may send fewer bytes and wait for this client.
    let (telling, rest) = preamble.split_at_mut(TELLING);
    pace.receive_exactly(wire, telling).await.map_err(|error| match error {
        Some(LinkError::Closed) => ConnectError::Left(format!("{url} hung up during the handshake{}", silent(url))),
        error => failed(error),
    })?;
    if let Some(other) = telling.first_chunk().and_then(|first| other_protocol(url, Speaks::Nearcall, *first)) {
        return Err(ConnectError::Mismatch(other));
    }
    pace.receive_exactly(wire, rest).await.map_err(failed)?;
    let preamble = Preamble::decode(&preamble).map_err(|error| {
        mismatch(match error {
            PreambleError::Version(theirs) => versions_differ(PROTOCOL, theirs),
            error => error.to_string(),
        })
    })?;
    let (Preamble::Hello(len) | Preamble::Welcome(len) | Preamble::Reject(len)) = preamble;
    let mut body = vec![0; len];
    pace.receive_exactly(wire, &mut body).await.map_err(failed)?;
    match preamble {
        Preamble::Welcome(_) => Welcome::decode(&body).map_err(mismatch),
        Preamble::Reject(_) => {
            Err(ConnectError::Refused(format!("{url} refused: {}", shown(&String::from_utf8_lossy(&body)))))
        }
        Preamble::Hello(_) => Err(mismatch("the peer is a client, not a server".into())),
    }
}
