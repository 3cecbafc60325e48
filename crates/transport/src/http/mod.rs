//! gRPC, Connect, and what browsers speak, as one more [`Link`](crate::Link): calls, items and ends of `nearcall_wire` on one side, the
//! messages, headers and statuses of `nearcall_http` on the other.
//!
//! A call's number at the server is the stream's. Credit becomes HTTP/2's windows. What these cannot say is refused in words:
//! one-way calls, named arguments, buffers beside a message, calls of objects.

mod bell;
mod client;
mod held;
mod inflow;
mod link;
mod paths;
mod pool;
mod receiving;
mod server;
mod waiting;

use std::collections::VecDeque;
use std::sync::Arc;

use nearcall_http::{
    Asks, Connection, Http1, Http1Client, Options as SessionOptions, Out, Requests, SendError, Session,
};
use nearcall_wire::flow::WINDOW;
use nearcall_wire::{FrameHead, Kind, Metadata};
use smallvec::SmallVec;

use crate::budget::Account;
use crate::incoming::{Incoming, is_free};
use crate::link::{LinkError, Options};
use crate::outgoing::{Body, CallKey, Compress, Outgoing};
use crate::peer::Peer;
use crate::stream::Wire;

use client::{Client, Origin};
use link::HttpLink;
pub use paths::{Messages, MethodPath, Path, Paths};
pub(crate) use pool::Pool;
use server::Server;

/// What a client's first bytes must be.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Frames for the core that wait to be received.
type Frames = VecDeque<Incoming>;

/// What differs between the two ends of a connection.
pub(crate) trait Role: Send + std::fmt::Debug {
    /// What it speaks.
    type Session: Connection;

    /// Takes in the next thing that the peer did; what the core is to know goes to `frames`. Whether there was one.
    ///
    /// # Errors
    /// The peer broke the protocol.
    fn take_in(&mut self, session: &mut Self::Session, frames: &mut Frames) -> Result<bool, LinkError>;

    /// Why a frame may find no room, if that is not that the peer does not read.
    fn why_no_room(&self, _session: &mut Self::Session) -> Option<String> {
        None
    }

    /// Encodes a frame into the session.
    ///
    /// # Errors
    /// One that spares the connection: nothing was sent.
    fn put(
        &mut self,
        session: &mut Self::Session,
        frames: &mut Frames,
        call: CallKey,
        frame: &Outgoing<'_>,
        out: Out<'_>,
    ) -> Result<(), LinkError>;

    /// Keeps a call for which [`put`](Self::put) has found no room, until there is some.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    fn wait(&mut self, _call: CallKey, _frame: &Outgoing<'_>) -> Result<(), LinkError> {
        Err(LinkError::Full)
    }

    /// Calls of this side, by number, that wait until the peer takes more of them at a time.
    fn unbegun(&self) -> impl Iterator<Item = u32> {
        std::iter::empty()
    }

    /// Whether the peer knows that this side has said goodbye, if it has: what comes from it now was begun after that. It has
    /// a moment to say so if this side `waits`.
    fn has_parted(&mut self, _session: &mut Self::Session, _waits: bool) -> bool {
        true
    }

    /// Refuses the call whose message keeps most and has not come completely. Whether there was one.
    fn make_room(&mut self, session: &mut Self::Session, frames: &mut Frames) -> bool;

    /// Nobody works for a call any more.
    fn finished(&mut self, session: &mut Self::Session, call: u32);

    /// Calls that the peer has given up and somebody still works for.
    fn given_up(&self) -> usize;
}

/// A connection to a client, of which `arrived` was read already. `is_open`: it may speak anything that goes over HTTP, and
/// not only gRPC; `is_secure`: it is encrypted.
pub(crate) fn serve<W: Wire + 'static>(
    wire: W,
    peer: Peer,
    arrived: &[u8],
    is_open: bool,
    is_secure: bool,
    options: &Options,
) -> Arc<dyn crate::link::Link> {
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
) -> std::io::Result<Arc<dyn crate::link::Link>> {
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

/// A frame for the core with a message in it, charged to the peer's account whatever that says: a peer that is over its
/// budget gets no more credit.
fn with_message(head: FrameHead, message: SmallVec<[u8; crate::INLINE]>, account: &Arc<Account>) -> Incoming {
    let cost = message.len() + head.metadata().map_or(0, Metadata::held);
    let charge = (!is_free(cost)).then(|| account.charge_anyway(cost));
    Incoming::charged(head, message, charge)
}

/// A frame for the core without a payload.
fn bare(kind: Kind, call: u32) -> Incoming {
    Incoming::new(FrameHead::new(kind, call), &[])
}

/// A frame that gives the core credit.
fn credit(call: u32, bytes: i64) -> Incoming {
    Incoming::new(FrameHead::new(Kind::Credit, call), &bytes.to_le_bytes())
}

/// Messages that are shorter than this are not compressed, bytes: that would save less than it costs.
const WORTH_COMPRESSING: usize = 1024;

/// Whether a frame's message is compressed, if it can be. `usually`: messages are, if nothing is said of them.
fn compresses(frame: &Outgoing<'_>, usually: bool) -> bool {
    match frame.compress {
        Compress::AsUsual => usually && frame.len() >= WORTH_COMPRESSING,
        Compress::Yes => true,
        Compress::No | Compress::NotThis => false,
    }
}

/// The one message that a frame's payload is, end to end.
fn message<'f, 'a>(frame: &'f Outgoing<'a>) -> Result<&'f [&'a [u8]], LinkError> {
    match &frame.body {
        Body::Whole(bytes) => Ok(std::slice::from_ref(bytes)),
        Body::Pieces(pieces) => Ok(pieces),
        Body::Parts(..) => Err(LinkError::Unfit("over HTTP there are no messages with buffers beside them".into())),
    }
}

/// The payload of a frame of the core's own, which is short.
fn short<'a>(frame: &Outgoing<'a>) -> &'a [u8] {
    if let Body::Whole(bytes) = frame.body { bytes } else { &[] }
}

/// What a failure to send means to the core; `Ok` if nobody is there any more to be sent to.
fn unsent(error: SendError) -> Result<(), LinkError> {
    match error {
        SendError::Gone => Ok(()),
        SendError::Unfit(why) => Err(LinkError::Unfit(why)),
        SendError::TooMuchMetadata { len, limit } => Err(LinkError::HeadTooLong { len, limit: limit as u64 }),
        SendError::Occupied => Err(LinkError::Exhausted(error.to_string())),
        SendError::TooLong { len } => Err(LinkError::TooLong { len, limit: u64::from(u32::MAX) }),
        other @ (SendError::TooManyStreams | SendError::NoMoreIds | SendError::GoingAway) => {
            Err(LinkError::Unfit(other.to_string()))
        }
    }
}
