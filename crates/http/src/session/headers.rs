//! Header blocks: requests, responses, trailers.

use nearcall_wire::Failure;

use crate::code::{Broken, Code};
use crate::event::{Ending, Outcome};
use crate::fields::{Request, Role, check};
use crate::frame::{FrameHead, HIGHEST, flag, kind, without_padding, wrong_size};
use crate::grpc::{self, code_of_http};

use crate::reading::{Body, Declared};

use super::partial::Block;
use super::stream::Stream;
use super::{Notice, Ready, Session, StreamId};

/// How much longer an encoded block may be than the longest list of fields.
const BLOCK_ROOM: usize = 16 << 10;

impl Session {
    /// Handles a HEADERS frame, which has been skipped in the input.
    pub(super) fn headers(&mut self, head: FrameHead) -> Result<Option<Ready>, Broken> {
        let mut bytes = without_padding(head, self.input.skipped(head.len))?;
        let mut depends_on_itself = false;
        if head.has(flag::PRIORITY) {
            let (dependency, rest) = bytes.split_first_chunk().ok_or(wrong_size())?;
            depends_on_itself = u32::from_be_bytes(*dependency) & HIGHEST == head.stream;
            (_, bytes) = rest.split_first().ok_or(wrong_size())?;
        }
        if head.stream.is_multiple_of(2) {
            return Err(Broken::new(Code::PROTOCOL_ERROR, "headers are for a stream that no client begins"));
        }
        let ended = head.has(flag::END_STREAM);
        if head.has(flag::END_HEADERS) {
            self.decoder.decode(bytes, &mut self.fields).map_err(unreadable)?;
            return self.list(head.stream, ended, depends_on_itself);
        }
        self.block = Some(Block { stream: head.stream, bytes: bytes.to_vec(), ended, depends_on_itself });
        Ok(None)
    }

    /// Handles a CONTINUATION frame, which has been skipped in the input.
    pub(super) fn continuation(&mut self, head: FrameHead) -> Result<Option<Ready>, Broken> {
        let Some(mut block) = self.block.take() else {
            return Err(Broken::new(Code::PROTOCOL_ERROR, "a header block is continued that was not begun"));
        };
        self.patience.spend("the peer divides header blocks into too many frames")?;
        let bytes = self.input.skipped(head.len);
        if block.bytes.len() + bytes.len() > self.options.max_header_list + BLOCK_ROOM {
            return Err(Broken::new(Code::ENHANCE_YOUR_CALM, "a header block is too long"));
        }
        block.bytes.extend_from_slice(bytes);
        if !head.has(flag::END_HEADERS) {
            self.block = Some(block);
            return Ok(None);
        }
        self.decoder.decode(&block.bytes, &mut self.fields).map_err(unreadable)?;
        self.list(block.stream, block.ended, block.depends_on_itself)
    }

    /// Handles a complete list of fields.
    fn list(&mut self, id: StreamId, ended: bool, depends_on_itself: bool) -> Result<Option<Ready>, Broken> {
        self.listed += self.fields.size() as u64;
        if self.streams.contains_key(&id) {
            if depends_on_itself {
                return self.fail_stream(id, Code::PROTOCOL_ERROR).map(|()| None);
            }
            return if self.is_server { self.trailers(id, ended).map(|()| None) } else { self.response(id, ended) };
        }
        if !self.is_server {
            return self.on_closed(id).map(|()| None);
        }
        if id <= self.highest {
            return self.late(id).map(|()| None);
        }
        self.new_request(id, ended, depends_on_itself)
    }

    /// Handles headers for a stream that is gone, at a server.
    fn late(&mut self, id: StreamId) -> Result<(), Broken> {
        if self.is_reset(id) {
            return self.patience.spend("the peer sends too much for streams that are closed");
        }
        Err(if self.ended.contains(&id) {
            Broken::new(Code::STREAM_CLOSED, "headers come after the end of their stream")
        } else {
            Broken::new(Code::PROTOCOL_ERROR, "a stream is begun with a number below another one's")
        })
    }

    fn new_request(&mut self, id: StreamId, ended: bool, depends_on_itself: bool) -> Result<Option<Ready>, Broken> {
        self.highest = id;
        let is_late = self.draining.is_some_and(|last| id > last);
        if is_late || self.streams() >= self.options.max_concurrent_streams as usize {
            self.patience.spend("the peer begins too many streams at a time")?;
            return self.refuse(id, Code::REFUSED_STREAM).map(|()| None);
        }
        if self.fields.is_over() {
            return self.too_many_fields(id, ended).map(|()| None);
        }
        let checked = check(&self.fields, Role::Request);
        let announced = checked.ok().and_then(|checked| checked.content_length);
        if checked.is_err() || depends_on_itself || (ended && announced.is_some_and(|len| len > 0)) {
            self.patience.spend("the peer sends too many malformed requests")?;
            return self.refuse(id, Code::PROTOCOL_ERROR).map(|()| None);
        }
        let request = Request(&self.fields);
        let body = if request.codec().is_some() { Body::Messages } else { Body::Raw };
        let mut stream = Stream::new(self.options.stream_window, self.peer.initial_window_size, body);
        stream.incoming.content_left = announced;
        stream.incoming.is_ended = ended;
        if body == Body::Messages {
            stream.incoming.reader.declared = Declared::read(request.header("grpc-encoding"));
            stream.outgoing.accepts = request.accepts();
            stream.outgoing.content_type = grpc::reply_type(request.codec());
        }
        self.streams.insert(id, stream);
        Ok(Some(Ready::Request { stream: id, ended }))
    }

    /// Answers a request with more fields than this side accepts. The fields that were kept tell its protocol.
    fn too_many_fields(&mut self, id: StreamId, ended: bool) -> Result<(), Broken> {
        self.patience.spend("the peer sends too many requests with too many headers")?;
        let body = if Request(&self.fields).codec().is_some() { Body::Messages } else { Body::Raw };
        let mut stream = Stream::new(self.options.stream_window, self.peer.initial_window_size, body);
        stream.incoming.is_ended = ended;
        self.streams.insert(id, stream);
        let message = "the metadata is more than the server takes";
        let sent = if body == Body::Messages {
            self.send_status(id, &Outcome { code: Failure::RESOURCE_EXHAUSTED, message, ..Outcome::default() })
        } else {
            self.answer(id, 431, &[], b"")
        };
        debug_assert!(sent.is_ok(), "the stream is there and the headers are good");
        Ok(())
    }

    /// Handles the trailers that end a request's body.
    fn trailers(&mut self, id: StreamId, ended: bool) -> Result<(), Broken> {
        let is_good = check(&self.fields, Role::Trailers).is_ok();
        let incoming = &self.stream(id).incoming;
        if incoming.is_ended {
            return self.fail_stream(id, Code::STREAM_CLOSED);
        }
        if !ended || !is_good || incoming.content_left.is_some_and(|left| left > 0) {
            return self.fail_stream(id, Code::PROTOCOL_ERROR);
        }
        self.end_of_body(id, false);
        Ok(())
    }

    /// Handles the headers of a response, or a call's status.
    fn response(&mut self, id: StreamId, ended: bool) -> Result<Option<Ready>, Broken> {
        let is_over = self.fields.is_over();
        let incoming = &self.stream(id).incoming;
        let (is_first, body, is_ended) = (!incoming.has_head, incoming.reader.body, incoming.is_ended);
        if is_ended {
            return self.fail_stream(id, Code::STREAM_CLOSED).map(|()| None);
        }
        let role = if is_first { Role::Response } else { Role::Trailers };
        let checked = match check(&self.fields, role) {
            _ if is_over => {
                let why = "the response has more metadata than this side takes";
                self.notices.push_back(Notice::Refused(id, Failure::RESOURCE_EXHAUSTED, why.into()));
                self.reset(id, Code::CANCEL);
                return Ok(None);
            }
            Ok(checked) if is_first || ended => checked,
            _ => return self.fail_stream(id, Code::PROTOCOL_ERROR).map(|()| None),
        };
        if is_first && checked.status < 200 {
            self.patience.spend("the peer sends too many provisional responses")?;
            return if ended { self.fail_stream(id, Code::PROTOCOL_ERROR).map(|()| None) } else { Ok(None) };
        }
        if is_first {
            let declared = Declared::read(self.fields.get("grpc-encoding"));
            let incoming = &mut self.stream(id).incoming;
            (incoming.has_head, incoming.reader.declared) = (true, declared);
            incoming.content_left = checked.content_length;
        }
        if body != Body::Messages {
            if ended && self.stream(id).incoming.content_left.is_some_and(|left| left > 0) {
                return self.fail_stream(id, Code::PROTOCOL_ERROR).map(|()| None);
            }
            return Ok(self.other_response(id, ended, is_first, checked.status));
        }
        let content_type = self.fields.get("content-type").and_then(|value| std::str::from_utf8(value).ok());
        let is_grpc = content_type.and_then(grpc::codec).is_some();
        if is_first && !ended && is_grpc && checked.status == 200 {
            return Ok(Some(Ready::Response { stream: id, status: checked.status }));
        }
        let is_inside = self.stream(id).incoming.reader.is_inside();
        let ending = self.ending(is_first.then_some(checked.status), is_inside);
        self.stream(id).incoming.is_ended = ended;
        self.finish_call(id, ending);
        Ok(None)
    }

    /// Handles the headers of a response that is not gRPC's.
    fn other_response(&mut self, id: StreamId, ended: bool, is_first: bool, status: u16) -> Option<Ready> {
        if ended {
            self.end_of_body(id, false);
        }
        is_first.then_some(Ready::Response { stream: id, status })
    }

    /// The status in the fields. `http`: the HTTP status, if the response consists of headers only.
    fn ending(&self, http: Option<u16>, is_inside: bool) -> Ending {
        let (mut code, mut message, mut details, mut metadata) = (Failure::UNKNOWN, String::new(), Vec::new(), None);
        if let Some(value) = self.fields.get("grpc-status") {
            let number = std::str::from_utf8(value).ok().and_then(|value| value.parse::<u8>().ok());
            code = number.filter(|&code| code <= 16).unwrap_or(Failure::UNKNOWN);
            message = self.fields.get("grpc-message").map(grpc::decode_message).unwrap_or_default();
            details = self.fields.get("grpc-status-details-bin").and_then(grpc::decode_value).unwrap_or_default();
            if number != Some(code) {
                message = format!("the server answers with an unknown status: {message}");
            }
        } else if let Some(status) = http {
            code = if status == 200 { Failure::UNKNOWN } else { code_of_http(status) };
            message = format!("the server does not answer as gRPC does: HTTP status {status}");
        } else {
            "the response ended without a status".clone_into(&mut message);
        }
        if code == 0 && is_inside {
            code = Failure::INTERNAL;
            "the response ends inside of a message".clone_into(&mut message);
        }
        match grpc::read_metadata(&self.fields) {
            Ok(read) => metadata = read,
            Err(bad) if code == 0 => (code, message) = (Failure::INTERNAL, bad.to_string()),
            Err(_) => {}
        }
        Ending::Status { code, message, details, metadata }
    }

    /// Appends a HEADERS frame, and CONTINUATION frames for what does not fit.
    pub(super) fn put_block(
        &mut self,
        id: StreamId,
        ended: bool,
        write: impl FnOnce(&mut crate::hpack::Encoder, &mut Vec<u8>),
    ) {
        use crate::frame::{HEAD, LONGEST, put, put_head};
        let end_stream = if ended { flag::END_STREAM } else { 0 };
        let out = self.output.buffer();
        let start = out.len();
        put_head(out, 0, kind::HEADERS, flag::END_HEADERS | end_stream, id);
        self.encoder.begin(out);
        write(&mut self.encoder, out);
        let len = out.len() - start - HEAD;
        if len <= LONGEST {
            // The length is known now.
            out[start..start + 3].copy_from_slice(&(len as u32).to_be_bytes()[1..]);
            return;
        }
        let block = out.split_off(start + HEAD);
        out.truncate(start);
        let mut parts = block.chunks(LONGEST).peekable();
        put(out, kind::HEADERS, end_stream, id, parts.next().expect("it is long"));
        while let Some(part) = parts.next() {
            let flags = if parts.peek().is_none() { flag::END_HEADERS } else { 0 };
            put(out, kind::CONTINUATION, flags, id, part);
        }
    }
}

fn unreadable(bad: crate::hpack::Malformed) -> Broken {
    Broken::new(Code::COMPRESSION_ERROR, bad.0)
}
