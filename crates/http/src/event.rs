//! What a session tells its owner, and what the owner tells it.

use std::borrow::Cow;
use std::time::Duration;

use nearcall_wire::Metadata;

use crate::code::Code;
use crate::fields::{Request, Response};
use crate::grpc::Encoding;

/// The number of a stream.
pub type StreamId = u32;

/// Something that the peer did.
#[derive(Debug)]
pub enum Event<'a> {
    /// Server: a request has begun.
    Request {
        /// Its stream.
        stream: StreamId,
        /// Its headers.
        request: Request<'a>,
        /// Nothing follows: no message, no [`Event::Ended`].
        ended: bool,
    },
    /// Client: the response has begun. Not for a response that is nothing but a status.
    Response {
        /// Its stream.
        stream: StreamId,
        /// Its headers.
        response: Response<'a>,
    },
    /// A message of gRPC's, decompressed.
    Message {
        /// Its stream.
        stream: StreamId,
        /// Owned if it came in parts or compressed.
        message: Cow<'a, [u8]>,
        /// What to [release](crate::Session::release) when the application has taken it, bytes.
        cost: usize,
        /// It came compressed.
        compressed: bool,
        /// Server: it is the last one; no [`Event::Ended`] follows.
        ended: bool,
    },
    /// A part of a body that is not gRPC's.
    Data {
        /// Its stream.
        stream: StreamId,
        /// Any part of it.
        data: &'a [u8],
        /// As of a message.
        cost: usize,
        /// It is the last one; no [`Event::Ended`] follows.
        ended: bool,
    },
    /// The peer sends no more on this stream.
    Ended {
        /// The stream.
        stream: StreamId,
        /// How.
        ending: Ending,
    },
    /// A call whose messages this side cannot take; the rest of its body is thrown away. A server answers it with
    /// [`send_status`](crate::Session::send_status), at a client its stream has been reset.
    Refused {
        /// Its stream.
        stream: StreamId,
        /// gRPC's status.
        code: u8,
        /// In words.
        why: Cow<'static, str>,
    },
    /// A stream is gone: the peer has reset it, or broke a rule on it so that this side did. A server says
    /// [`forget`](crate::Session::forget) when nobody works for it any more. There is none for a stream whose status was sent.
    Reset {
        /// The stream.
        stream: StreamId,
        /// Why.
        code: Code,
        /// Client: the server has certainly not begun with it, so it may be sent again.
        unprocessed: bool,
    },
    /// A stream that had no room for messages has some again.
    Room {
        /// The stream.
        stream: StreamId,
    },
    /// Client: streams can be begun again, after [`SendError::TooManyStreams`].
    StreamsFree,
    /// The peer is about to end the connection. At a client, streams above `last` are [reset](Event::Reset), one event each.
    GoAway {
        /// The last stream that the peer will work on.
        last: StreamId,
        /// Why.
        code: Code,
        /// The same in the peer's own words, if it says any: as they came, but not longer than a few lines.
        why: String,
    },
    /// The answer to a [ping](crate::Session::ping).
    Pong([u8; 8]),
}

/// How the peer's side of a stream ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// Server: there are no more messages. Client: there is no more of a body that is not gRPC's.
    Plain,
    /// Client: the message that has ended a stream of Connect's.
    Stream(Vec<u8>),
    /// Client: the call's status. The stream is gone.
    Status {
        /// gRPC's status, 0 to 16.
        code: u8,
        /// In words.
        message: String,
        /// `grpc-status-details-bin`; empty if there is none.
        details: Vec<u8>,
        /// Trailing metadata.
        metadata: Option<Metadata>,
    },
}

/// The headers of a response.
#[derive(Debug, Clone, Copy, Default)]
pub struct Head<'a> {
    /// Initial metadata.
    pub metadata: Option<&'a Metadata>,
    /// Whether messages may be compressed, if the client can decompress them.
    pub compress: bool,
}

/// The status of a call.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outcome<'a> {
    /// gRPC's status, 0 to 16.
    pub code: u8,
    /// In words.
    pub message: &'a str,
    /// `google.rpc.Status`, encoded; empty if there is none.
    pub details: &'a [u8],
    /// Trailing metadata.
    pub metadata: Option<&'a Metadata>,
}

/// The headers of a request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Call<'a> {
    /// `/package.Service/Method`.
    pub path: &'a str,
    /// The server's name, and its port if that is not the usual one.
    pub authority: &'a str,
    /// Whether the connection is encrypted.
    pub is_secure: bool,
    /// What follows `application/grpc+`; nothing if empty.
    pub codec: &'a str,
    /// How long the caller waits.
    pub timeout: Option<Duration>,
    /// How messages may be compressed.
    pub encoding: Option<Encoding>,
    /// Metadata.
    pub metadata: Option<&'a Metadata>,
    /// Who this is; nothing if empty.
    pub user_agent: &'a str,
}

/// The head of a request that is not gRPC's. What it says must be good to be sent: names in lower case, values printable.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'a> {
    /// `POST` or `GET`.
    pub method: &'a str,
    /// What is asked for, its query included.
    pub path: &'a str,
    /// The server's name, and its port if that is not the usual one.
    pub authority: &'a str,
    /// Whether the connection is encrypted.
    pub is_secure: bool,
    /// Further headers. If there is a `content-length`, so many bytes follow.
    pub headers: &'a [(&'a str, &'a [u8])],
}

/// What became of a message, which was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// Little of the stream waits.
    Ready,
    /// As much of the stream waits as should: [`Event::Room`] comes when there is less.
    Full,
}

/// Why nothing was sent. The connection goes on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The stream has ended or was reset.
    #[error("the stream is closed")]
    Gone,
    /// The connection carries one call at a time, and the one under way may last: it is a stream.
    #[error(
        "over HTTP/1.1 a connection carries one call at a time, and a stream is under way on this one: end it first, or \
         call on another channel; over HTTP/2 there is no such limit"
    )]
    Occupied,
    /// The server takes no more streams at a time: [`Event::StreamsFree`] comes.
    #[error("as many calls are under way as the server allows")]
    TooManyStreams,
    /// This connection has no numbers left for streams: a new one is needed.
    #[error("the connection has no stream numbers left")]
    NoMoreIds,
    /// The server is about to end the connection: a new one is needed.
    #[error("the server ends the connection")]
    GoingAway,
    /// Something that HTTP cannot carry, in words.
    #[error("{0}")]
    Unfit(String),
    /// Metadata that is more than the peer takes.
    #[error("the metadata has {len} bytes, the peer takes {limit}")]
    TooMuchMetadata {
        /// As HTTP/2 counts it, bytes.
        len: usize,
        /// The most that the peer takes, bytes.
        limit: usize,
    },
    /// A message longer than gRPC's framing can say.
    #[error("the message has {len} bytes, gRPC's framing allows 4 GiB")]
    TooLong {
        /// Its length, bytes.
        len: usize,
    },
}
