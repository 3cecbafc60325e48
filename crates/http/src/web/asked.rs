//! Reads a call from a request, at a server.

use std::borrow::Cow;
use std::time::Duration;

use nearcall_wire::{Failure, Metadata};

use crate::fields::Request;
use crate::grpc::{self, Decompressor, Encoding, Encodings, TooLong};
use crate::reading::{Body, Declared, Reads};

use super::answer::{ACCEPTED, Answer};
use super::codec::Codec;
use super::connect;
use super::origins::Origins;

/// The protocol of a call in HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC, over HTTP/2.
    Grpc,
    /// gRPC-Web, which sends the status in the body.
    GrpcWeb,
    /// gRPC-Web in base64.
    GrpcWebText,
    /// Connect, with one message as the body. Posted JSON is the same.
    Connect,
    /// Connect, with a stream of messages as the body.
    ConnectStream,
}

impl Protocol {
    /// The header in which either side names the encodings that it can decompress.
    pub(super) fn accepts(self) -> &'static str {
        match self {
            Self::Connect => "accept-encoding",
            Self::ConnectStream => "connect-accept-encoding",
            Self::Grpc | Self::GrpcWeb | Self::GrpcWebText => "grpc-accept-encoding",
        }
    }

    /// The header that names the encoding of messages.
    pub(super) fn encoding(self) -> &'static str {
        match self {
            Self::Connect => "content-encoding",
            Self::ConnectStream => "connect-content-encoding",
            Self::Grpc | Self::GrpcWeb | Self::GrpcWebText => "grpc-encoding",
        }
    }
}

/// A call as its request describes it.
#[derive(Debug)]
pub struct Asked {
    /// Its protocol.
    pub protocol: Protocol,
    /// The encoding of its messages.
    pub codec: Codec,
    /// How long the client waits.
    pub timeout: Option<Duration>,
    /// The client's metadata.
    pub metadata: Option<Metadata>,
    /// The message, if the call came by GET. The method must then change nothing.
    pub by_get: Option<Vec<u8>>,
    /// Why the call cannot be served: gRPC's code, and a text.
    pub trouble: Option<(u8, Cow<'static, str>)>,
    /// How to read its body; `None` for gRPC, whose content type says it already.
    pub reads: Option<Reads>,
    /// The encodings that a reply may have.
    pub(super) accepts: Encodings,
    /// The origin of the calling page, which may see the reply.
    pub(super) origin: Option<Vec<u8>>,
}

const UNKNOWN_ENCODING: &str = "messages may be compressed with gzip or zstd, with nothing else";

impl Asked {
    /// Reads a call from a request. `most`: the longest message that a query may hold now, in bytes, after
    /// decompression.
    ///
    /// # Errors
    /// The request is no call, or must not call: the response to send.
    pub fn read(request: Request<'_>, origins: &Origins, is_http2: bool, most: usize) -> Result<Self, Answer> {
        if request.method() == "OPTIONS" {
            return Err(origins.preflight(request).unwrap_or_else(|refused| refused));
        }
        let origin = origins.check(request)?;
        let seen = |mut answer: Answer| {
            if let Some(origin) = origin {
                answer.allow(origin);
            }
            answer
        };
        let mut this = match request.method() {
            "POST" => Self::posted(request, is_http2, origin.is_some()).map_err(seen)?,
            "GET" => Self::gotten(request, most).map_err(seen)?,
            _ => return Err(seen(Answer::refusal(405, "calls are made by POST"))),
        };
        this.origin = origin.map(<[u8]>::to_vec);
        this.look_at_headers(request);
        Ok(this)
    }

    fn new(protocol: Protocol, codec: Codec, reads: Option<Reads>) -> Self {
        let (timeout, metadata, by_get, trouble, origin) = (None, None, None, None, None);
        let accepts = Encodings::default();
        Self { protocol, codec, timeout, metadata, by_get, trouble, reads, accepts, origin }
    }

    fn posted(request: Request<'_>, is_http2: bool, is_page: bool) -> Result<Self, Answer> {
        let whole = request.content_type();
        let kind = whole.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let declared = |header| Declared::read(request.header(header));
        let of_connect = || Reads::new(Body::Whole, declared("content-encoding"));
        // The content types that curl and fetch send by default. Any page can send some of these without being asked
        // for its origin, so pages must declare JSON.
        if matches!(&*kind, "" | "application/x-www-form-urlencoded") && !is_page {
            return Ok(Self::new(Protocol::Connect, Codec::PlainJson, Some(of_connect())));
        }
        if kind == "application/json" && request.header("connect-protocol-version").is_none() {
            return Ok(Self::new(Protocol::Connect, Codec::PlainJson, Some(of_connect())));
        }
        let Some(rest) = kind.strip_prefix("application/") else { return Err(unknown(whole)) };
        let (format, codec) = rest.split_once('+').unwrap_or((rest, ""));
        let web = |body| Reads::new(body, declared("grpc-encoding"));
        let (protocol, name, reads) = match (format, codec) {
            ("proto" | "json", "") => (Protocol::Connect, format, Some(of_connect())),
            ("connect", name) => {
                let reads = Reads::new(Body::Messages, declared("connect-content-encoding"));
                (Protocol::ConnectStream, name, Some(reads))
            }
            ("grpc-web", name) => (Protocol::GrpcWeb, name, Some(web(Body::Messages))),
            ("grpc-web-text", name) => (Protocol::GrpcWebText, name, Some(web(Body::Text))),
            ("grpc", _) if !is_http2 => {
                return Err(Answer::refusal(505, "gRPC needs HTTP/2; over HTTP/1.1 there is gRPC-Web"));
            }
            ("grpc", name) => (Protocol::Grpc, name, None),
            _ => return Err(unknown(whole)),
        };
        let name = if name.is_empty() && protocol != Protocol::ConnectStream { "proto" } else { name };
        let codec = Codec::named(name).ok_or_else(|| unknown(whole))?;
        Ok(Self::new(protocol, codec, reads))
    }

    fn gotten(request: Request<'_>, most: usize) -> Result<Self, Answer> {
        let (_, query) = request.path().split_once('?').unwrap_or_default();
        let query = connect::query(query).map_err(|why| Answer::refusal(400, why))?;
        let codec = match Codec::named(&query.encoding).ok_or_else(|| unknown(&query.encoding))? {
            // As of what is posted: people write it, and misspell names.
            Codec::Json if !query.of_connect => Codec::PlainJson,
            codec => codec,
        };
        let reads = Reads::new(Body::Discarded, Declared::Nothing);
        let mut this = Self::new(Protocol::Connect, codec, Some(reads));
        let message = match Encoding::named(&query.compression) {
            Some(encoding) => Decompressor::run(encoding, &query.message, most),
            None if query.message.len() > most => Err(TooLong::Yes),
            None => Ok(query.message),
        };
        if !query.compression.is_empty() && Encoding::named(&query.compression).is_none() {
            this.trouble = Some((Failure::UNIMPLEMENTED, UNKNOWN_ENCODING.into()));
        } else if let Err(error) = message {
            this.trouble = Some(match error {
                TooLong::Yes => (
                    Failure::RESOURCE_EXHAUSTED,
                    format!("the message has more than {most} bytes, and no more are kept now").into(),
                ),
                TooLong::Broken => (Failure::INVALID_ARGUMENT, "the message is not what its compression makes".into()),
            });
        }
        this.by_get = Some(message.unwrap_or_default());
        Ok(this)
    }

    /// Reads the headers that calls of all protocols have.
    fn look_at_headers(&mut self, request: Request<'_>) {
        self.accepts = request.header(self.protocol.accepts()).map(Encodings::read).unwrap_or_default();
        let mut trouble = |why: &'static str| {
            self.trouble.get_or_insert((Failure::INVALID_ARGUMENT, why.into()));
        };
        if matches!(self.protocol, Protocol::Connect | Protocol::ConnectStream) {
            if request.header("connect-protocol-version").is_some_and(|version| version != b"1") {
                trouble("the connect-protocol-version is none that is spoken here: 1 is");
            }
            if let Some(value) = request.header("connect-timeout-ms") {
                self.timeout = connect::timeout(value);
                if self.timeout.is_none() {
                    trouble("the connect-timeout-ms is malformed");
                }
            }
        } else {
            match request.timeout() {
                Ok(timeout) => self.timeout = timeout,
                Err(_) => trouble("the grpc-timeout is malformed"),
            }
        }
        match grpc::read_metadata(request.0) {
            Ok(metadata) => self.metadata = metadata,
            Err(_) => trouble("the metadata is malformed"),
        }
        // Whether or not a message is compressed by it.
        if self.by_get.is_none() && Declared::read(request.header(self.protocol.encoding())) == Declared::Unknown {
            self.trouble.get_or_insert((Failure::UNIMPLEMENTED, UNKNOWN_ENCODING.into()));
        }
    }
}

fn unknown(what: &str) -> Answer {
    let shown: String = what.chars().take(100).collect();
    Answer::refusal(415, &format!("messages of the type {shown:?} are not known here; those that are: {ACCEPTED}"))
}
