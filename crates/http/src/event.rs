//! Events from a session to its owner, and the arguments of what the owner sends.

use std::borrow::Cow;
use std::time::Duration;

use nearcall_wire::Metadata;

use crate::code::Code;
use crate::fields::{Request, Response};
use crate::grpc::Encoding;

/// The number of a stream.
pub type StreamId = u32;

/// An action of the peer.
#[derive(Debug)]
pub enum Event<'a> {
    /// Server: a request has begun.
    Request {
        /// Its stream.
        stream: StreamId,
        /// Its headers.
        request: Request<'a>,
        /// The request is complete: neither a message nor [`Event::Ended`] follows.
        ended: bool,
    },
    /// Client: the response has begun. Not sent for a response that consists of a status only.
    Response {
        /// Its stream.
        stream: StreamId,
        /// Its headers.
        response: Response<'a>,
    },
    /// A message of gRPC, decompressed.
    Message {
        /// Its stream.
        stream: StreamId,
        /// Owned if the message arrived in parts or compressed.
        message: Cow<'a, [u8]>,
        /// Bytes to [release](crate::Session::release) when the application has taken the message.
        cost: usize,
        /// The message arrived compressed.
        compressed: bool,
        /// Server: this is the last message; no [`Event::Ended`] follows.
        ended: bool,
    },
    /// A part of a body in another protocol than gRPC.
    Data {
        /// Its stream.
        stream: StreamId,
        /// The bytes; the division into parts means nothing.
        data: &'a [u8],
        /// Bytes to [release](crate::Session::release) when the application has taken them.
        cost: usize,
        /// This is the last part; no [`Event::Ended`] follows.
        ended: bool,
    },
    /// The peer sends no more on this stream.
    Ended {
        /// The stream.
        stream: StreamId,
        /// How the peer's side ended.
        ending: Ending,
    },
    /// A call with a message that this side cannot accept. The rest of its body is dropped. A server answers the call
    /// with [`send_status`](crate::Session::send_status). A client's stream has been reset already.
    Refused {
        /// Its stream.
        stream: StreamId,
        /// gRPC's status.
        code: u8,
        /// The reason, as text.
        why: Cow<'static, str>,
    },
    /// A stream is gone: the peer has reset it, or this side has because the peer broke a rule on it. A server calls
    /// [`forget`](crate::Session::forget) when no handler works for it any more. Not sent for a stream whose status was
    /// sent.
    Reset {
        /// The stream.
        stream: StreamId,
        /// Why.
        code: Code,
        /// Client: the server has certainly not begun the call, so it may be sent again.
        unprocessed: bool,
    },
    /// A stream that had no room for messages has some again.
    Room {
        /// The stream.
        stream: StreamId,
    },
    /// Server: a message may be sent that was held up because as much was kept as may be.
    MayGoOn {
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
        /// The peer's reason as text, if it gives one: as received, but not longer than a few lines.
        why: String,
    },
    /// The answer to a [ping](crate::Session::ping).
    Pong([u8; 8]),
}

/// How the peer's side of a stream ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// Server: no more messages follow. Client: the body, which is not gRPC's, is complete.
    Plain,
    /// Client: the message that ended a stream of Connect.
    Stream(Vec<u8>),
    /// Client: the call's status. The stream is gone.
    Status {
        /// gRPC's status, 0 to 16.
        code: u8,
        /// The status as text.
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
    /// The status as text.
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
    /// The server's name, with its port unless that is the default.
    pub authority: &'a str,
    /// Whether the connection is encrypted.
    pub is_secure: bool,
    /// The codec, which follows `application/grpc+`; left out if empty.
    pub codec: &'a str,
    /// How long the caller waits.
    pub timeout: Option<Duration>,
    /// How messages may be compressed.
    pub encoding: Option<Encoding>,
    /// Metadata.
    pub metadata: Option<&'a Metadata>,
    /// The client's name and version; left out if empty.
    pub user_agent: &'a str,
}

/// The head of a request that is not gRPC's. The caller has to make sure that names are in lower case and values
/// printable.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'a> {
    /// `POST` or `GET`.
    pub method: &'a str,
    /// The path, with its query.
    pub path: &'a str,
    /// The server's name, with its port unless that is the default.
    pub authority: &'a str,
    /// Whether the connection is encrypted.
    pub is_secure: bool,
    /// Further headers. If `content-length` is among them, that many bytes must follow.
    pub headers: &'a [(&'a str, &'a [u8])],
}

/// Whether to send more after a message, which was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// Little of the stream waits to be sent.
    Ready,
    /// As much of the stream waits as should: wait for [`Event::Room`] before sending more.
    Full,
}

/// Why nothing was sent. The connection goes on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The stream has ended or was reset.
    #[error("the stream is closed")]
    Gone,
    /// The connection carries one call at a time, and the call under way may last, because it is a stream.
    #[error(
        "over HTTP/1.1 a connection carries one call at a time, and a stream is under way on this one: end it first, or \
         call on another channel; over HTTP/2 there is no such limit"
    )]
    Occupied,
    /// The server accepts no more streams at present: [`Event::StreamsFree`] tells when it does.
    #[error("as many calls are under way as the server allows")]
    TooManyStreams,
    /// This connection has no numbers left for streams: a new one is needed.
    #[error("the connection has no stream numbers left")]
    NoMoreIds,
    /// The server is about to end the connection: a new one is needed.
    #[error("the server ends the connection")]
    GoingAway,
    /// HTTP cannot carry this; the text says why.
    #[error("{0}")]
    Unfit(String),
    /// The metadata is larger than the peer accepts.
    #[error("the metadata has {len} bytes, the peer takes {limit}")]
    TooMuchMetadata {
        /// The size as HTTP/2 counts it, in bytes.
        len: usize,
        /// The most that the peer accepts, in bytes.
        limit: usize,
    },
    /// The message is longer than gRPC's framing can express.
    #[error("the message has {len} bytes, gRPC's framing allows 4 GiB")]
    TooLong {
        /// Its length, bytes.
        len: usize,
    },
}
