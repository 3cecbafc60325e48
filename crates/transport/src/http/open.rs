//! Makes links from sockets that speak HTTP: chooses the session, and the end of the calls (client or server).

use std::sync::Arc;

use nearcall_http::{Asks, Http1, Http1Client, LimitName, Options as SessionOptions, Requests, Session};
use nearcall_wire::flow::WINDOW;

use super::client::{HttpClient, Origin};
use super::link::HttpLink;
use super::server::Server;
use crate::link::Link;
use crate::link::wire::Wire;
use crate::options::Options;
use crate::peer::Peer;

/// The first bytes of a client that speaks HTTP/2.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The methods of HTTP/1.1, as they begin a request.
const METHODS: [&[u8]; 9] =
    [b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"PATCH ", b"TRACE ", b"CONNECT "];

/// Whether these first bytes of a client may be those of a request of HTTP/1.
pub(crate) fn is_http1(arrived: &[u8]) -> bool {
    !arrived.is_empty() && METHODS.iter().any(|method| arrived.starts_with(method) || method.starts_with(arrived))
}

/// A connection to a client; `arrived` is what was read from it already. `is_open`: the client may speak every protocol
/// over HTTP, not only gRPC. `is_secure`: the connection is encrypted.
pub(crate) fn serve<W: Wire + 'static>(
    wire: W,
    peer: Peer,
    arrived: &[u8],
    is_open: bool,
    is_secure: bool,
    options: &Options,
) -> Arc<dyn Link> {
    let account = options.account();
    if arrived.starts_with(PREFACE) || !is_open {
        let mut session = Session::server(session_options(options, SERVERS));
        session.feed(arrived);
        let server = Server::new(options, Arc::clone(&account), is_open);
        return Arc::new(HttpLink::new(wire, peer, session, server, account, options));
    }
    let mut session = Http1::new(session_options(options, SERVERS), is_secure);
    session.feed(arrived);
    let server = Server::new(options, Arc::clone(&account), true);
    Arc::new(HttpLink::new(wire, peer, session, server, account, options))
}

/// The state of a new connection to a server that speaks HTTP/2.
pub(crate) fn client_session(options: &Options) -> Session {
    Session::client(session_options(options, CLIENTS))
}

/// The state of a new connection to a server that speaks HTTP/1.1.
pub(crate) fn http1_client_session(options: &Options) -> Http1Client {
    Http1Client::new(session_options(options, CLIENTS))
}

/// A connection to a server, for calls in the protocol that `asks` names. The session has the server's settings
/// already.
pub(crate) fn call<W: Wire + 'static>(
    wire: W,
    peer: Peer,
    session: impl Requests + 'static,
    asks: Asks,
    authority: String,
    is_secure: bool,
    options: &Options,
) -> std::io::Result<Arc<dyn Link>> {
    let account = options.account();
    let max_message = usize::try_from(options.max_message).unwrap_or(usize::MAX);
    let origin = Origin { authority, is_secure, encoding: options.compression, asks };
    let client = HttpClient::new(origin, Arc::clone(&account), max_message);
    Ok(Arc::new(HttpLink::new(wire, peer, session, client, account, options).with_bell()?))
}

/// How the limit on messages is called. The client reads both.
const SERVERS: LimitName = LimitName { whose: "the server's", advice: "; raise it there with max_message_size" };
const CLIENTS: LimitName =
    LimitName { whose: "this client's", advice: "; raise it with connect(..., max_message_size=...)" };

fn session_options(options: &Options, limit: LimitName) -> SessionOptions {
    SessionOptions {
        max_message: usize::try_from(options.max_message).unwrap_or(usize::MAX),
        limit,
        stream_window: WINDOW as u32,
        send_queue: WINDOW as usize / 4,
        encoding: options.compression,
        ..SessionOptions::default()
    }
}
