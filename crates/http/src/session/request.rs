//! Sends a client's requests.

use crate::event::{Call, RequestHead, SendError, StreamId};
use crate::frame::HIGHEST;
use crate::grpc::{self, CONTENT_TYPE, Encodings};
use crate::hpack::{Keep, OVERHEAD};
use crate::reading::Body;

use super::Session;
use super::send::put_metadata;
use super::stream::Stream;

impl Session {
    /// Client: sends the headers of a gRPC call. Its messages and its end follow.
    ///
    /// # Errors
    /// Nothing was begun: [`SendError::TooManyStreams`], [`SendError::NoMoreIds`], [`SendError::GoingAway`],
    /// [`SendError::Unfit`], [`SendError::TooMuchMetadata`].
    pub fn begin(&mut self, call: &Call<'_>) -> Result<StreamId, SendError> {
        self.check_begin()?;
        for (what, text) in [("path", call.path), ("authority", call.authority), ("codec", call.codec)] {
            check_graphic(what, text)?;
        }
        if call.path.is_empty() || !call.user_agent.bytes().all(|octet| (0x20..0x7f).contains(&octet)) {
            return Err(SendError::Unfit("the path is empty, or the user agent is not printable ASCII".to_owned()));
        }
        let metadata = self.fit(call.metadata)?;
        let id = self.open(Body::Messages)?;
        self.stream(id).outgoing.encoding = call.encoding;
        self.put_block(id, false, |encoder, out| {
            encoder.field(out, ":method", b"POST", Keep::Yes);
            encoder.field(out, ":scheme", if call.is_secure { b"https" } else { b"http" }, Keep::Yes);
            encoder.field(out, ":path", call.path.as_bytes(), Keep::Yes);
            encoder.field(out, ":authority", call.authority.as_bytes(), Keep::Yes);
            encoder.field(out, "te", b"trailers", Keep::Yes);
            if call.codec.is_empty() {
                encoder.field(out, "content-type", CONTENT_TYPE.as_bytes(), Keep::Yes);
            } else {
                encoder.field(out, "content-type", format!("{CONTENT_TYPE}+{}", call.codec).as_bytes(), Keep::Yes);
            }
            if !call.user_agent.is_empty() {
                encoder.field(out, "user-agent", call.user_agent.as_bytes(), Keep::Yes);
            }
            encoder.field(out, "grpc-accept-encoding", Encodings::ACCEPTED.as_bytes(), Keep::Yes);
            if let Some(encoding) = call.encoding {
                encoder.field(out, "grpc-encoding", encoding.name().as_bytes(), Keep::Yes);
            }
            if let Some(timeout) = call.timeout {
                encoder.field(out, "grpc-timeout", grpc::write_timeout(timeout).as_bytes(), Keep::No);
            }
            put_metadata(encoder, out, metadata.as_ref());
        });
        Ok(id)
    }

    /// Client: sends the headers of a request that is not gRPC's; the whole request if it `ends` with them. When the
    /// response has begun, [`read_as`](Self::read_as) says how to read its body.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn request(&mut self, head: &RequestHead<'_>, ends: bool) -> Result<StreamId, SendError> {
        self.check_begin()?;
        check_graphic("path", head.path)?;
        check_graphic("authority", head.authority)?;
        let len = head.headers.iter().map(|(name, value)| name.len() + value.len() + OVERHEAD).sum();
        let limit = self.peer.max_header_list_size as usize;
        if len > limit {
            return Err(SendError::TooMuchMetadata { len, limit });
        }
        let id = self.open(Body::Raw)?;
        self.put_block(id, ends, |encoder, out| {
            encoder.field(out, ":method", head.method.as_bytes(), Keep::Yes);
            encoder.field(out, ":scheme", if head.is_secure { b"https" } else { b"http" }, Keep::Yes);
            // A query differs in every request.
            let keep = if head.path.contains('?') { Keep::No } else { Keep::Yes };
            encoder.field(out, ":path", head.path.as_bytes(), keep);
            encoder.field(out, ":authority", head.authority.as_bytes(), Keep::Yes);
            for (name, value) in head.headers {
                let keep = match *name {
                    "content-type" | "user-agent" | "connect-protocol-version" | "accept-encoding" => Keep::Yes,
                    "authorization" | "cookie" | "proxy-authorization" => Keep::Never,
                    _ => Keep::No,
                };
                encoder.field(out, name, value, keep);
            }
        });
        if ends {
            self.stream(id).outgoing.is_ended = true;
        }
        Ok(id)
    }

    fn next_id(&self) -> StreamId {
        if self.highest == 0 { 1 } else { self.highest + 2 }
    }

    /// Whether requests can be begun on this connection at all.
    fn check_begin(&self) -> Result<(), SendError> {
        if self.going_away.is_some() || self.draining.is_some() || self.over.is_some() {
            return Err(SendError::GoingAway);
        }
        if self.next_id() > HIGHEST { Err(SendError::NoMoreIds) } else { Ok(()) }
    }

    /// Opens a stream of a client. Its headers follow.
    fn open(&mut self, body: Body) -> Result<StreamId, SendError> {
        if !self.has_free_streams() {
            self.wants_streams = true;
            return Err(SendError::TooManyStreams);
        }
        let id = self.next_id();
        self.highest = id;
        let mut stream = Stream::new(self.options.stream_window, self.peer.initial_window_size, body);
        stream.outgoing.has_head = true;
        self.streams.insert(id, stream);
        Ok(id)
    }

    /// Whether the peer accepts another stream.
    pub(super) fn has_free_streams(&self) -> bool {
        self.streams.len() < self.most_streams() as usize
    }

    /// How many streams the peer accepts at a time.
    #[must_use]
    pub fn most_streams(&self) -> u32 {
        // Before its settings arrive: the number that the specification recommends every server to accept at least.
        if self.is_settled { self.peer.max_concurrent_streams } else { 100 }
    }
}

fn check_graphic(what: &str, text: &str) -> Result<(), SendError> {
    if text.bytes().all(|octet| octet.is_ascii_graphic()) {
        return Ok(());
    }
    Err(SendError::Unfit(format!("the {what} {text:?} has characters that HTTP cannot carry")))
}
