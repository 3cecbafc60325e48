//! Answers a call, at a server.

use crate::envelope::envelope;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nearcall_wire::Metadata;

use crate::calls::Calls;
use crate::event::{Head, Outcome, SendError, Sent, StreamId};
use crate::grpc::{self, Compressing, Compressor, END_OF_STREAM, Encoding, Encodings};
use crate::session::Out;

use super::answer::Answer;
use super::asked::{Asked, Protocol};
use super::codec::Codec;
use super::connect;

/// The flag of gRPC-Web's trailers.
const TRAILERS: u8 = 0x80;

/// The state of the reply to one call.
#[derive(Debug)]
pub struct Reply {
    protocol: Protocol,
    codec: Codec,
    origin: Option<Vec<u8>>,
    /// How messages may be compressed, if the client reads it. Not used for gRPC, where the session knows.
    encoding: Option<Encoding>,
    /// The encodings that the client reads.
    accepts: Encodings,
    /// The reply depends on the encodings that the client accepts. Caches have to know that.
    varies: bool,
    /// For unary calls of Connect: what is kept until the call is over, because HTTP's status comes first.
    later: Option<Box<Later>>,
    has_head: bool,
    /// The HTTP status for a failed unary call, if it differs from the one for its code.
    http_status: Option<u16>,
}

#[derive(Debug, Default)]
struct Later {
    metadata: Vec<(String, Vec<u8>)>,
    message: Vec<u8>,
    /// The compressed message, in place of `message`.
    compressed: Option<Vec<u8>>,
}

pub(super) type Pairs = Vec<(String, Vec<u8>)>;

impl Reply {
    /// The reply to a call. `encoding`: how to compress its messages if the client reads that.
    #[must_use]
    pub fn to(asked: &Asked, encoding: Option<Encoding>) -> Self {
        let varies = encoding.is_some() && asked.protocol == Protocol::Connect;
        let encoding = encoding.filter(|&encoding| asked.accepts.has(encoding));
        let later = (asked.protocol == Protocol::Connect).then(Box::default);
        let origin = asked.origin.clone();
        Self {
            protocol: asked.protocol,
            codec: asked.codec,
            origin,
            encoding,
            accepts: asked.accepts,
            varies,
            later,
            has_head: false,
            http_status: None,
        }
    }

    /// Uses this HTTP status instead of the one for the failure's code.
    #[must_use]
    pub fn with_http_status(self, status: u16) -> Self {
        Self { http_status: Some(status), ..self }
    }

    /// A refusal in place of the reply.
    #[must_use]
    pub fn refusal(&self, status: u16, why: &str) -> Answer {
        let mut answer = Answer::refusal(status, why);
        if let Some(origin) = &self.origin {
            answer.allow(origin);
        }
        answer
    }

    /// Sends, or keeps, the metadata that precedes all messages.
    ///
    /// # Errors
    /// [`SendError::Gone`], also if it was sent already; [`SendError::Unfit`].
    pub fn head(&mut self, to: &mut impl Calls, id: StreamId, head: &Head<'_>) -> Result<(), SendError> {
        if self.protocol == Protocol::Grpc {
            return to.http2().ok_or(SendError::Gone)?.send_head(id, head);
        }
        if std::mem::replace(&mut self.has_head, true) {
            return Err(SendError::Gone);
        }
        let mut pairs = fit(head.metadata)?;
        if let Some(later) = &mut self.later {
            later.metadata = pairs;
            return Ok(());
        }
        self.choose(head.compress);
        pairs.extend(self.encoding.map(|encoding| named(self.protocol, encoding)));
        self.respond(to, id, 200, self.content_type(), &pairs, false)
    }

    /// Sends, or keeps, a message, whose bytes are `pieces` end to end. It is compressed as `compress` says if
    /// the client reads the encoding. Long messages of gRPC are written by `out` directly.
    ///
    /// # Errors
    /// [`SendError::Gone`], [`SendError::TooLong`].
    pub fn message(
        &mut self,
        to: &mut impl Calls,
        id: StreamId,
        pieces: &[&[u8]],
        compress: Compressing,
        out: Out<'_>,
    ) -> Result<Sent, SendError> {
        if self.protocol == Protocol::Grpc {
            return to.http2().ok_or(SendError::Gone)?.send_message_through(id, pieces, compress, false, out);
        }
        if self.later.is_some() {
            self.choose(compress != Compressing::No);
        }
        if let Some(later) = &mut self.later {
            later.compressed = Compressor::compressed(self.encoding, compress, pieces);
            if later.compressed.is_none() {
                later.message = pieces.concat();
            }
            return Ok(Sent::Ready);
        }
        if !self.has_head {
            self.head(to, id, &Head { compress: compress != Compressing::No, ..Head::default() })?;
        }
        self.envelope(to, id, (0, compress), pieces, false)
    }

    /// Chooses an encoding for a message that is to be compressed although the server does not compress by default.
    fn choose(&mut self, compress: bool) {
        if compress && self.encoding.is_none() {
            self.encoding = self.accepts.best();
            self.varies |= self.protocol == Protocol::Connect;
        }
    }

    /// Sends the end of the call, after which nothing may follow.
    ///
    /// # Errors
    /// [`SendError::Gone`]; after [`SendError::Unfit`], another end may be sent.
    pub fn end(&mut self, to: &mut impl Calls, id: StreamId, outcome: &Outcome<'_>) -> Result<(), SendError> {
        if self.protocol == Protocol::Grpc {
            return to.http2().ok_or(SendError::Gone)?.send_status(id, outcome);
        }
        let pairs = fit(outcome.metadata)?;
        let ended = if self.later.is_some() {
            self.end_unary(to, id, outcome, pairs)
        } else {
            self.end_stream(to, id, outcome, &pairs)
        };
        if ended == Err(SendError::Gone) {
            to.forget(id);
        }
        ended
    }

    /// Ends a unary call of Connect, whose HTTP status is known now.
    fn end_unary(
        &mut self,
        to: &mut impl Calls,
        id: StreamId,
        outcome: &Outcome<'_>,
        trailers: Pairs,
    ) -> Result<(), SendError> {
        let Later { mut metadata, message, compressed } = self.later.take().map(|later| *later).unwrap_or_default();
        metadata.extend(trailers.into_iter().map(|(key, value)| (format!("trailer-{key}"), value)));
        let error;
        let (content_type, body) = if outcome.code == 0 {
            let encoding = self.encoding.filter(|_| compressed.is_some());
            metadata.extend(encoding.map(|encoding| named(self.protocol, encoding)));
            (self.content_type(), compressed.as_deref().unwrap_or(&message))
        } else {
            error = connect::error(outcome);
            ("application/json", error.as_bytes())
        };
        metadata.push(("content-length".to_owned(), body.len().to_string().into_bytes()));
        let status = self.http_status.filter(|_| outcome.code != 0).unwrap_or(connect::http_status(outcome.code));
        self.respond(to, id, status, content_type, &metadata, body.is_empty())?;
        if !body.is_empty() {
            to.send_data(id, &[body], true)?;
        }
        Ok(())
    }

    /// Ends a stream of Connect or a call of gRPC-Web: the status is sent in the body.
    fn end_stream(
        &mut self,
        to: &mut impl Calls,
        id: StreamId,
        outcome: &Outcome<'_>,
        trailers: &Pairs,
    ) -> Result<(), SendError> {
        if !self.has_head {
            self.head(to, id, &Head::default())?;
        }
        if self.protocol == Protocol::ConnectStream {
            let end = connect::end_of_stream(outcome, trailers);
            return self.envelope(to, id, (END_OF_STREAM, Compressing::No), &[end.as_bytes()], true).map(drop);
        }
        let mut fields = format!("grpc-status:{}\r\n", outcome.code).into_bytes();
        let mut put = |name: &str, value: &[u8]| {
            fields.extend_from_slice(name.as_bytes());
            fields.push(b':');
            fields.extend_from_slice(value);
            fields.extend_from_slice(b"\r\n");
        };
        if !outcome.message.is_empty() {
            put("grpc-message", grpc::encode_message(outcome.message).as_bytes());
        }
        if !outcome.details.is_empty() {
            let details = grpc::encode_value("details-bin", outcome.details).map_err(SendError::Unfit)?;
            put("grpc-status-details-bin", &details);
        }
        for (key, value) in trailers {
            put(key, value);
        }
        self.envelope(to, id, (TRAILERS, Compressing::No), &[&fields], true).map(drop)
    }

    /// Sends bytes with a flag and their length in front.
    fn envelope(
        &self,
        to: &mut impl Calls,
        id: StreamId,
        (flag, compress): (u8, Compressing),
        pieces: &[&[u8]],
        last: bool,
    ) -> Result<Sent, SendError> {
        envelope(flag, (self.encoding, compress), pieces, |all| {
            if self.protocol == Protocol::GrpcWebText {
                return to.send_data(id, &[STANDARD.encode(all.concat()).as_bytes()], last);
            }
            to.send_data(id, all, last)
        })
    }

    fn content_type(&self) -> &'static str {
        let is_json = self.codec.name() == "json";
        match (self.protocol, is_json) {
            (Protocol::Grpc, _) => "application/grpc",
            (Protocol::GrpcWeb, false) => "application/grpc-web+proto",
            (Protocol::GrpcWeb, true) => "application/grpc-web+json",
            (Protocol::GrpcWebText, false) => "application/grpc-web-text+proto",
            (Protocol::GrpcWebText, true) => "application/grpc-web-text+json",
            (Protocol::Connect, false) => "application/proto",
            (Protocol::Connect, true) => "application/json",
            (Protocol::ConnectStream, false) => "application/connect+proto",
            (Protocol::ConnectStream, true) => "application/connect+json",
        }
    }

    fn respond(
        &self,
        to: &mut impl Calls,
        id: StreamId,
        status: u16,
        content_type: &str,
        pairs: &Pairs,
        ends: bool,
    ) -> Result<(), SendError> {
        let mut headers: Vec<(&str, &[u8])> = vec![("content-type", content_type.as_bytes())];
        let accepts = self.protocol.accepts();
        headers.push((accepts, Encodings::ACCEPTED.as_bytes()));
        if self.varies {
            headers.push(("vary", b"accept-encoding"));
        }
        let mut exposed = String::new();
        if let Some(origin) = &self.origin {
            headers.push(("access-control-allow-origin", origin));
            headers.push(("vary", b"origin"));
            // A page sees only the headers that are named to it.
            exposed.push_str(accepts);
            for (name, _) in pairs {
                exposed.push_str(", ");
                exposed.push_str(name);
            }
            headers.push(("access-control-expose-headers", exposed.as_bytes()));
        }
        headers.extend(pairs.iter().map(|(name, value)| (name.as_str(), &value[..])));
        to.respond(id, status, &headers, ends)
    }
}

/// The header that names an encoding.
fn named(protocol: Protocol, encoding: Encoding) -> (String, Vec<u8>) {
    (protocol.encoding().to_owned(), encoding.name().as_bytes().to_vec())
}

/// Encodes metadata as headers carry it.
pub(super) fn fit(metadata: Option<&Metadata>) -> Result<Pairs, SendError> {
    let mut pairs = Pairs::new();
    for (key, value) in metadata.map_or(&[][..], Metadata::pairs) {
        let value = grpc::encode_value(key, value).map_err(SendError::Unfit)?;
        pairs.push((key.clone(), value.into_owned()));
    }
    Ok(pairs)
}
