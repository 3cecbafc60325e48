//! The client's half of what begins a connection of HTTP. Such servers send HTTP/2's settings, but no welcome.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use nearcall_http::{Asks, Broken, Code, Event};
use nearcall_wire::shown;
use rustix::event::PollFlags;

use super::mismatch::{TELLING, begins_http2, instead_of_http};
use crate::errors::{ConnectError, LinkError};
use crate::http;
use crate::link::Link;
use crate::link::pace::Steps;
use crate::link::wire::{Plain, Wire};
use crate::options::Options;
use crate::peer::Peer;
use crate::places::opening::{Connected, Greeting};
use crate::places::place::Place;
use crate::places::protocol::Reached;

/// The protocol that an HTTP server turned out to speak.
enum Spoken {
    Http2(Arc<dyn Link>),
    /// Not HTTP/2.
    Http1,
}

/// Greets a server of gRPC.
pub(super) async fn greet_grpc(reached: Reached, greeting: Greeting<'_>) -> Result<Connected, ConnectError> {
    let Reached { socket, tls, .. } = reached;
    let spoken = if let Some(tls) = tls {
        let (wire, peer) = greeting.encrypt(socket, tls).await?;
        speak_http2(&greeting, wire, peer, true, Asks::Grpc).await?
    } else {
        let peer = Peer::of(socket.as_fd());
        speak_http2(&greeting, Plain::new(socket), peer, false, Asks::Grpc).await?
    };
    connected(spoken, &greeting)
}

/// Greets a server of Connect, which may speak HTTP/2 or HTTP/1.1.
pub(super) async fn greet(reached: Reached, greeting: Greeting<'_>) -> Result<Connected, ConnectError> {
    let Greeting { options, pace, .. } = greeting;
    let Reached { socket, tls, fallback, .. } = reached;
    let unreachable = || greeting.failure(&LinkError::Closed);
    let asks = asks_connect(options);
    if let Some(tls) = tls {
        let (wire, peer) = greeting.encrypt(socket, tls).await?;
        // A server that agrees on no protocol by ALPN does not speak HTTP/2.
        if wire.agreed().is_none_or(|protocol| protocol != b"h2") {
            let first = http1(&greeting, wire, peer, true)?;
            return pooled(&greeting, first, fallback.ok_or_else(unreachable)?);
        }
        return connected(speak_http2(&greeting, wire, peer, true, asks).await?, &greeting);
    }
    let peer = Peer::of(socket.as_fd());
    match (speak_http2(&greeting, Plain::new(socket), peer, false, asks).await?, fallback) {
        (Spoken::Http1, Some(fallback)) => {
            // The server took the start of HTTP/2 for a bad request, and hangs up.
            let first = fallback.dial(options, pace).await?.greet(greeting).await?.link;
            pooled(&greeting, first, fallback)
        }
        (spoken, _) => connected(spoken, &greeting),
    }
}

/// Greets a server that has been found to speak HTTP/1.1, which sends nothing before the first request.
pub(super) async fn greet_http1(reached: Reached, greeting: Greeting<'_>) -> Result<Connected, ConnectError> {
    let Reached { socket, tls, .. } = reached;
    let link = if let Some(tls) = tls {
        let (wire, peer) = greeting.encrypt(socket, tls).await?;
        if wire.agreed().is_some_and(|protocol| protocol == b"h2") {
            // Another server answers there by now. The next dial, when this pool is gone, finds that out.
            return Err(ConnectError::Mismatch(format!("{} speaks HTTP/2 now", greeting.url)));
        }
        http1(&greeting, wire, peer, true)?
    } else {
        let peer = Peer::of(socket.as_fd());
        http1(&greeting, Plain::new(socket), peer, false)?
    };
    Ok(Connected::undescribed(link, greeting.version))
}

fn connected(spoken: Spoken, greeting: &Greeting<'_>) -> Result<Connected, ConnectError> {
    match spoken {
        Spoken::Http2(link) => Ok(Connected::undescribed(link, greeting.version)),
        Spoken::Http1 => Err(greeting.failure(&LinkError::Closed)),
    }
}

/// A connection over HTTP/2.
async fn speak_http2(
    greeting: &Greeting<'_>,
    wire: impl Wire + 'static,
    peer: Peer,
    is_secure: bool,
    asks: Asks,
) -> Result<Spoken, ConnectError> {
    let Greeting { url, options, pace, .. } = *greeting;
    let failed = |error: &LinkError| greeting.failure(error);
    let needs_http2 = matches!(asks, Asks::Grpc);
    let may_be_http1 = !needs_http2 && !is_secure;
    let mut session = http::client_session(options);
    let mut first = Vec::with_capacity(TELLING);
    while !session.is_settled() {
        let unsent = session.unsent().to_vec();
        match pace.send_all(&wire, &unsent, &[]).await {
            // A server that rejects this client may have said so without reading what the client sends.
            Ok(()) | Err(Some(LinkError::Closed)) => session.sent(unsent.len()),
            Err(None) => return Err(greeting.out_of_time()),
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
            Ok(None) => return Err(greeting.out_of_time()),
            Err(error) => return Err(failed(&error)),
        }
        if let Some(first) = first.first_chunk() {
            if let Some(other) = instead_of_http(url, needs_http2, *first) {
                return Err(ConnectError::Mismatch(other));
            }
            if may_be_http1 && !begins_http2(*first) {
                return Ok(Spoken::Http1);
            }
        }
        let mismatch = |broken: Broken| greeting.mismatch(broken.why);
        while let Some(event) = session.next_event().map_err(mismatch)? {
            // No call is under way yet, so no other event matters.
            if let Event::GoAway { code, why, .. } = event {
                return Err(sent_away(url, code, &why));
            }
        }
    }
    let link = http::call(wire, peer, session, asks, authority_of(url), is_secure, options);
    Ok(Spoken::Http2(link.map_err(|error| greeting.unavailable(&error))?))
}

/// A connection over HTTP/1.1 to a server of Connect.
fn http1(
    greeting: &Greeting<'_>,
    wire: impl Wire + 'static,
    peer: Peer,
    is_secure: bool,
) -> Result<Arc<dyn Link>, ConnectError> {
    let (options, authority) = (greeting.options, authority_of(greeting.url));
    let session = http::http1_client_session(options);
    let link = http::call(wire, peer, session, asks_connect(options), authority, is_secure, options);
    link.map_err(|error| greeting.unavailable(&error))
}

/// A pool that begins with this connection, and dials more to the same server when all are busy.
fn pooled(greeting: &Greeting<'_>, first: Arc<dyn Link>, place: Arc<dyn Place>) -> Result<Connected, ConnectError> {
    let (url, version, options) = (greeting.url.to_owned(), greeting.version, greeting.options.clone());
    let pool = http::Pool::new(first, greeting.options, Box::new(move || one_more(&place, &url, &options)));
    Ok(Connected::undescribed(pool.map_err(|error| greeting.unavailable(&error))?, version))
}

/// Dials one more connection to a server at one address that speaks HTTP/1.1, within `options.handshake`.
fn one_more(place: &Arc<dyn Place>, url: &str, options: &Options) -> Result<Arc<dyn Link>, ConnectError> {
    let deadline = Instant::now() + options.handshake;
    let (place, url, options) = (Arc::clone(place), url.to_owned(), options.clone());
    let steps = Steps::new(deadline, |pace| async move {
        let greeting = Greeting { url: &url, version: "", options: &options, pace: &pace };
        Ok(place.dial(&options, &pace).await?.greet(greeting).await?.link)
    });
    steps.finish()
}

fn asks_connect(options: &Options) -> Asks {
    Asks::Connect { codec: options.codec, by_get: options.by_get }
}

/// The server's name in requests.
fn authority_of(url: &str) -> String {
    // The path of a Unix socket is no server name.
    let authority = url.split_once("://").map_or("", |(_, place)| place);
    if authority.starts_with('/') { "localhost".to_owned() } else { authority.to_owned() }
}

/// The error for a server's GOAWAY before the first call.
fn sent_away(url: &str, code: Code, why: &str) -> ConnectError {
    let why = if why.is_empty() { code.name().to_owned() } else { shown(why) };
    match code {
        Code::NO_ERROR => ConnectError::Left(format!("{url} takes no more calls: {why}")),
        _ => ConnectError::Refused(format!("{url} refused: {why}")),
    }
}
