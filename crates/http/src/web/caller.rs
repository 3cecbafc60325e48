//! One call at a client, in gRPC or Connect: sends its request and reads its response.

use crate::envelope::envelope;
use std::borrow::Cow;

use nearcall_wire::{Failure, Metadata};

use crate::calls::Requests;
use crate::code::Code;
use crate::event::{Call, Ending, RequestHead, SendError, Sent, StreamId};
use crate::fields::Response;
use crate::grpc::{Compressing, Compressor, Encoding, Encodings};
use crate::reading::{Body, Declared, Reads};
use crate::session::Out;

use super::asked::Protocol;
use super::codec::Codec;
use super::reply::fit;
use super::{connect, ends};

/// The longest path with a query for a call by GET, in bytes: many servers and proxies accept no longer ones.
const LONGEST_QUERY: usize = 4 << 10;
/// The prefix of trailing metadata among the headers of a unary call's response.
const TRAILER: &str = "trailer-";

/// The protocol of a client's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Asks {
    /// gRPC, in Protobuf.
    #[default]
    Grpc,
    /// Connect.
    Connect {
        /// The encoding of messages.
        codec: Codec,
        /// Makes calls that change nothing by GET, so that caches may answer them.
        by_get: bool,
    },
}

/// The kind of a method's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The client sends a stream of messages.
    pub streams_in: bool,
    /// The server sends a stream of messages.
    pub streams_out: bool,
    /// The method changes nothing.
    pub is_safe: bool,
}

/// The state of one call.
#[derive(Debug)]
pub struct Caller {
    protocol: Protocol,
    codec: Codec,
    encoding: Option<Encoding>,
    /// The response is an error in HTTP's status: that status, and whether the body is JSON.
    failed: Option<(u16, bool)>,
    /// The body of the error.
    error: Vec<u8>,
    trailers: Option<Metadata>,
}

/// The head of a response.
#[derive(Debug, Default)]
pub struct Opened {
    /// Metadata that precedes all messages.
    pub metadata: Option<Metadata>,
    /// How to read the body; `None` for gRPC.
    pub reads: Option<Reads>,
}

impl Caller {
    /// Begins a call, with its `first` message if there is one. If the client sends no stream, this is the only
    /// message.
    ///
    /// # Errors
    /// Nothing was begun: those of [`Session::begin`](crate::Session::begin), [`SendError::Occupied`], and
    /// [`SendError::TooLong`].
    pub fn begin(
        to: &mut impl Requests,
        asks: Asks,
        shape: Shape,
        call: &Call<'_>,
        first: Option<&[&[u8]]>,
        compress: Compressing,
        out: Out<'_>,
    ) -> Result<(StreamId, Self), SendError> {
        let (protocol, codec) = match asks {
            Asks::Grpc => (Protocol::Grpc, Codec::Proto),
            Asks::Connect { codec, .. } if shape.streams_in || shape.streams_out => (Protocol::ConnectStream, codec),
            Asks::Connect { codec, .. } => (Protocol::Connect, codec),
        };
        let this = Self { protocol, codec, encoding: call.encoding, failed: None, error: Vec::new(), trailers: None };
        let id = match protocol {
            Protocol::Grpc => to.http2().ok_or(SendError::Gone)?.begin(call)?,
            Protocol::Connect => {
                let by_get = shape.is_safe && matches!(asks, Asks::Connect { by_get: true, .. });
                let id = this.begin_unary(to, call, first.unwrap_or_default(), by_get, compress, out)?;
                return Ok((id, this));
            }
            _ => this.begin_stream(to, call)?,
        };
        if let Some(first) = first {
            let last = !shape.streams_in;
            this.message(to, id, first, compress, last, out).inspect_err(|_| to.reset(id, Code::CANCEL))?;
        }
        Ok((id, this))
    }

    fn begin_unary(
        &self,
        to: &mut impl Requests,
        call: &Call<'_>,
        message: &[&[u8]],
        by_get: bool,
        compress: Compressing,
        out: Out<'_>,
    ) -> Result<StreamId, SendError> {
        if by_get {
            let path = format!("{}{}", call.path, connect::write_query(self.codec, &message.concat()));
            if path.len() <= LONGEST_QUERY {
                return ask(to, call, "GET", &path, &[("accept-encoding", Encodings::COMPRESSED.as_bytes())], true);
            }
        }
        let compressed = Compressor::compressed(self.encoding, compress, message);
        let encoding = self.encoding.filter(|_| compressed.is_some());
        let whole = compressed.as_ref().map(|compressed| [&compressed[..]]);
        let message = whole.as_ref().map_or(message, |whole| &whole[..]);
        let len: usize = message.iter().map(|piece| piece.len()).sum();
        let (digits, content_type) = (len.to_string(), self.content_type());
        let mut headers = vec![
            ("content-type", content_type.as_bytes()),
            ("content-length", digits.as_bytes()),
            ("connect-protocol-version", b"1"),
            ("accept-encoding", Encodings::COMPRESSED.as_bytes()),
        ];
        headers.extend(encoding.map(|encoding| ("content-encoding", encoding.name().as_bytes())));
        let id = ask(to, call, "POST", call.path, &headers, len == 0)?;
        if len > 0 {
            to.send_data(id, message, true, out)?;
        }
        Ok(id)
    }

    fn begin_stream(&self, to: &mut impl Requests, call: &Call<'_>) -> Result<StreamId, SendError> {
        let content_type = self.content_type();
        let mut headers = vec![
            ("content-type", content_type.as_bytes()),
            ("connect-protocol-version", &b"1"[..]),
            ("connect-accept-encoding", Encodings::COMPRESSED.as_bytes()),
        ];
        headers.extend(self.encoding.map(|encoding| ("connect-content-encoding", encoding.name().as_bytes())));
        ask(to, call, "POST", call.path, &headers, false)
    }

    /// Sends a message of a call's stream, whose bytes are `pieces` end to end.
    ///
    /// # Errors
    /// [`SendError::Gone`], [`SendError::TooLong`].
    pub fn message(
        &self,
        to: &mut impl Requests,
        id: StreamId,
        pieces: &[&[u8]],
        compress: Compressing,
        last: bool,
        out: Out<'_>,
    ) -> Result<Sent, SendError> {
        if self.protocol == Protocol::Grpc {
            return to.http2().ok_or(SendError::Gone)?.send_message_through(id, pieces, compress, last, out);
        }
        envelope(0, (self.encoding, compress), pieces, |pieces| to.send_data(id, pieces, last, out))
    }

    /// Reads the head of the response.
    ///
    /// # Errors
    /// The call cannot go on: gRPC's status, and the reason.
    pub fn opened(&mut self, response: Response<'_>) -> Result<Opened, (u8, Cow<'static, str>)> {
        let malformed = |_| (Failure::INTERNAL, "the server's metadata is malformed".into());
        let metadata = response.metadata().map_err(malformed)?;
        if self.protocol == Protocol::Grpc {
            return Ok(Opened { metadata, reads: None });
        }
        let whole = response.header("content-type").and_then(|value| std::str::from_utf8(value).ok()).unwrap_or("");
        let kind = whole.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let declared = |header| Declared::read(response.header(header));
        let is_unary = self.protocol == Protocol::Connect;
        let metadata = if is_unary { self.divide(metadata.as_ref()) } else { metadata };
        if response.status() != 200 {
            self.failed = Some((response.status(), kind == "application/json"));
            // A longer body is no error of Connect, and only its beginning is shown.
            let reads =
                Reads { most: ends::MAX_END_BYTES + 1, ..Reads::new(Body::Whole, declared("content-encoding")) };
            return Ok(Opened { metadata, reads: Some(reads) });
        }
        let expected = self.content_type();
        if kind != expected {
            // A server of Connect that answers in another codec gets another code than a server of something else.
            let is_connects =
                matches!(&*kind, "application/proto" | "application/json") || kind.starts_with("application/connect+");
            let shown: String = whole.chars().take(100).collect();
            let why = format!("the server answers with the type {shown:?} where {expected} is expected");
            return Err((if is_connects { Failure::INTERNAL } else { Failure::UNKNOWN }, why.into()));
        }
        let reads = if is_unary {
            Reads::new(Body::Whole, declared("content-encoding"))
        } else {
            Reads::new(Body::Stream, declared("connect-content-encoding"))
        };
        Ok(Opened { metadata, reads: Some(reads) })
    }

    /// Divides the metadata of a unary call's response. Returns the leading metadata, and keeps the trailing metadata.
    fn divide(&mut self, metadata: Option<&Metadata>) -> Option<Metadata> {
        let (mut first, mut last) = (Metadata::default(), Metadata::default());
        for (key, value) in metadata.map_or(&[][..], Metadata::pairs) {
            match key.strip_prefix(TRAILER) {
                Some(key) if !key.is_empty() => last.push(key, value),
                _ => first.push(key, value),
            }
        }
        self.trailers = (!last.is_empty()).then_some(last);
        (!first.is_empty()).then_some(first)
    }

    /// Whether a message is one of the call's. The body of an error is not, and is kept here.
    pub fn takes(&mut self, message: &[u8]) -> bool {
        if self.failed.is_some() {
            message.clone_into(&mut self.error);
        }
        self.failed.is_none()
    }

    /// Whether an empty body is a message without bytes.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.protocol == Protocol::Connect && self.failed.is_none()
    }

    /// How the call has ended, from how its response has ended: always [`Ending::Status`].
    #[must_use]
    pub fn ended(&mut self, ending: Ending) -> Ending {
        let failed =
            |code, why: &str| Ending::Status { code, message: why.to_owned(), details: Vec::new(), metadata: None };
        match (ending, self.protocol) {
            (status @ Ending::Status { .. }, _) => status,
            (_, Protocol::Grpc) => failed(Failure::UNKNOWN, "the server's answer is not gRPC's"),
            (Ending::Stream(end), _) => ends::of_stream(&end),
            (Ending::Plain, _) if self.failed.is_some() => {
                let (status, is_json) = self.failed.unwrap_or_default();
                ends::of_failure(status, is_json, &self.error, self.trailers.take())
            }
            (Ending::Plain, Protocol::Connect) => {
                let metadata = self.trailers.take();
                Ending::Status { code: 0, message: String::new(), details: Vec::new(), metadata }
            }
            (Ending::Plain, _) => {
                failed(Failure::INTERNAL, "the response ended without what ends a stream of Connect's")
            }
        }
    }

    fn content_type(&self) -> &'static str {
        match (self.protocol, self.codec) {
            (Protocol::Connect, Codec::Proto) => "application/proto",
            (Protocol::Connect, _) => "application/json",
            (_, Codec::Proto) => "application/connect+proto",
            _ => "application/connect+json",
        }
    }
}

/// Sends the head of a request, with the headers that all requests have.
fn ask(
    to: &mut impl Requests,
    call: &Call<'_>,
    method: &str,
    path: &str,
    own: &[(&str, &[u8])],
    ends: bool,
) -> Result<StreamId, SendError> {
    let pairs = fit(call.metadata)?;
    let timeout = call.timeout.map(connect::write_timeout);
    let mut headers = own.to_vec();
    headers.extend(timeout.as_ref().map(|timeout| ("connect-timeout-ms", timeout.as_bytes())));
    if !call.user_agent.is_empty() {
        headers.push(("user-agent", call.user_agent.as_bytes()));
    }
    headers.extend(pairs.iter().map(|(name, value)| (name.as_str(), &value[..])));
    let head = RequestHead { method, path, authority: call.authority, is_secure: call.is_secure, headers: &headers };
    to.request(&head, ends)
}
