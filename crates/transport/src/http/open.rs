//! Connections of HTTP, made of a socket: which session speaks on it, and which end of the calls is here.

use std::sync::Arc;

use nearcall_http::{Asks, Http1, Http1Client, Options as SessionOptions, Requests, Session};
use nearcall_wire::flow::WINDOW;

use super::client::{Client, Origin};
use super::link::HttpLink;
use super::server::Server;
use crate::link::Link;
use crate::options::Options;
use crate::peer::Peer;
use crate::wire::Wire;

/// What a client's first bytes must be.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection to a client, of which `arrived` was read already. `is_open`: it may speak anything that goes over HTTP, and
/// not only gRPC; `is_secure`: it is encrypted.
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
        let mut session = Session::server(session_options(options));
        session.feed(arrived);
        let server = Server::new(options, Arc::clone(&account), is_open);
        return Arc::new(HttpLink::new(wire, peer, session, server, account, options));
    }
    let mut session = Http1::new(session_options(options), is_secure);
    session.feed(arrived);
    let server = Server::new(options, Arc::clone(&account), true);
    Arc::new(HttpLink::new(wire, peer, session, server, account, options))
}

/// The state of a fresh connection to a server that speaks HTTP/2.
pub(crate) fn client_session(options: &Options) -> Session {
    Session::client(session_options(options))
}

/// The same of one that speaks HTTP/1.1.
pub(crate) fn http1_client_session(options: &Options) -> Http1Client {
    Http1Client::new(session_options(options))
}

/// A connection to a server, whose settings the session has, for calls that are asked for in that way.
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
    let client = Client::new(origin, Arc::clone(&account), max_message);
    Ok(Arc::new(HttpLink::new(wire, peer, session, client, account, options).with_bell()?))
}

fn session_options(options: &Options) -> SessionOptions {
    SessionOptions {
        max_message: usize::try_from(options.max_message).unwrap_or(usize::MAX),
        stream_window: WINDOW as u32,
        send_queue: WINDOW as usize / 4,
        encoding: options.compression,
        ..SessionOptions::default()
    }
}
