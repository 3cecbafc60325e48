//! The client's half of nearcall's own handshake.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nearcall_ring::Segment;
use nearcall_wire::{Hello, Limits, PROTOCOL, Preamble, PreambleError, Welcome, shown, versions_differ};
use rustix::net::sockopt;

use super::mismatch::{TELLING, instead_of_native, silent};
use crate::errors::{ConnectError, LinkError};
use crate::link::wire::{Plain, Wire};
use crate::link::{LONGEST_SLEEP, Link};
use crate::places::opening::{Connected, Greeting};
use crate::places::protocol::{Reached, SharedMemory};
use crate::shm::{PeerLimits, ShmLink};
use crate::stream::StreamLink;

/// Shakes hands with a server.
pub(super) async fn greet(reached: Reached, greeting: Greeting<'_>) -> Result<Connected, ConnectError> {
    let Greeting { url, options, version, .. } = greeting;
    let limits = Limits { max_message: options.max_message };
    let mut hello = Hello { version: version.to_owned(), limits, ring: 0, buffers: 0 };
    let Reached { socket, memory, peer, tls, .. } = reached;
    if let Some(tls) = tls {
        let (wire, peer) = greeting.encrypt(socket, tls).await?;
        let greeted = shake_hands(&greeting, &wire, &hello, &[]).await;
        let welcome = greeted.map_err(|error| greeting.untrusted(&wire, error))?;
        limit_sleep(wire.fd());
        let link = StreamLink::new(wire, peer, welcome.limits.max_message, false, options);
        return Ok(Connected { link: Arc::new(link), welcome });
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
    let welcome = shake_hands(&greeting, &wire, &hello, &fds).await?;
    let peer = peer.unwrap_or_else(|| memory.peer_of(wire.fd()));
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

async fn shake_hands(
    greeting: &Greeting<'_>,
    wire: &impl Wire,
    hello: &Hello,
    fds: &[BorrowedFd<'_>],
) -> Result<Welcome, ConnectError> {
    let Greeting { url, pace, .. } = *greeting;
    let failed =
        |error: Option<LinkError>| error.map_or_else(|| greeting.out_of_time(), |error| greeting.failure(&error));
    let body = hello.encode();
    let mut message = Preamble::Hello(body.len()).encode().to_vec();
    message.extend_from_slice(&body);
    match pace.send_all(wire, &message, fds).await {
        // A server that rejects this client may have said so without reading what the client sends.
        Ok(()) | Err(Some(LinkError::Closed)) => {}
        Err(error) => return Err(failed(error)),
    }

    let mut preamble = [0; Preamble::LEN];
    // A server with another protocol may send fewer bytes and wait for this client.
    let (telling, rest) = preamble.split_at_mut(TELLING);
    pace.receive_exactly(wire, telling).await.map_err(|error| match error {
        Some(LinkError::Closed) => ConnectError::Left(format!("{url} hung up during the handshake{}", silent(url))),
        error => failed(error),
    })?;
    if let Some(other) = telling.first_chunk().and_then(|first| instead_of_native(url, *first)) {
        return Err(ConnectError::Mismatch(other));
    }
    pace.receive_exactly(wire, rest).await.map_err(failed)?;
    let preamble = Preamble::decode(&preamble).map_err(|error| {
        greeting.mismatch(&match error {
            PreambleError::Version(theirs) => versions_differ(PROTOCOL, theirs),
            error => error.to_string(),
        })
    })?;
    let (Preamble::Hello(len) | Preamble::Welcome(len) | Preamble::Reject(len)) = preamble;
    let mut body = vec![0; len];
    pace.receive_exactly(wire, &mut body).await.map_err(failed)?;
    match preamble {
        Preamble::Welcome(_) => Welcome::decode(&body).map_err(|what| greeting.mismatch(&what)),
        Preamble::Reject(_) => {
            Err(ConnectError::Refused(format!("{url} refused: {}", shown(&String::from_utf8_lossy(&body)))))
        }
        Preamble::Hello(_) => Err(greeting.mismatch("the peer is a client, not a server")),
    }
}
