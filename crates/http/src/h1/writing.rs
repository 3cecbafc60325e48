//! Writes responses of HTTP/1.1.

use std::io::Write as _;

use crate::event::{SendError, Sent, StreamId};
use crate::reading::Body;

use super::head::Refusal;
use super::sending::{LAST_CHUNK, put_body, put_field};
use super::server::{Http1, MOST_UNWANTED, Reading, Written};

/// The longest rest of a request's body that is read after its response, so that the connection can go on.
const WORTH_READING: u64 = MOST_UNWANTED as u64;

impl Http1 {
    /// Writes the head of a response; the whole response if it `ends` with that. If `headers` have a `content-length`,
    /// that many bytes must follow. Names must be in lower case, values printable.
    ///
    /// # Errors
    /// [`SendError::Gone`], also if there was a head already.
    pub(super) fn put_response(
        &mut self,
        id: StreamId,
        status: u16,
        headers: &[(&str, &[u8])],
        ends: bool,
    ) -> Result<(), SendError> {
        let rest = match self.reading {
            Reading::Length(left) => left,
            _ => 0,
        };
        let draining = self.draining;
        let Some(exchange) = self.endpoint.of(id).filter(|exchange| exchange.own.written == Written::Nothing) else {
            return Err(SendError::Gone);
        };
        // A client that waits for permission to send its body may send it or not, so the start of its next request is
        // unknown.
        exchange.closes |= exchange.own.waits || draining || rest > WORTH_READING;
        let has_length = headers.iter().any(|(name, _)| *name == "content-length");
        exchange.own.written = match (ends, has_length) {
            (true, _) => Written::All,
            (false, _) if exchange.own.is_bodiless => Written::Nowhere,
            (false, true) => Written::Length,
            (false, false) if exchange.own.is_old => Written::UntilEnd,
            (false, false) => Written::Chunks,
        };
        let (written, closes, is_bodiless) = (exchange.own.written, exchange.closes, exchange.own.is_bodiless);
        let out = self.endpoint.output.buffer();
        let _ = write!(out, "HTTP/1.1 {status} {}\r\n", reason(status));
        for (name, value) in headers {
            put_field(out, name, value);
        }
        match written {
            Written::All if !has_length && status != 204 && !is_bodiless => put_field(out, "content-length", b"0"),
            Written::Chunks => put_field(out, "transfer-encoding", b"chunked"),
            _ => {}
        }
        if closes {
            put_field(out, "connection", b"close");
        }
        out.extend_from_slice(b"\r\n");
        if written == Written::All {
            self.response_is_out();
        }
        Ok(())
    }

    /// Writes a part of the body of a response, whose bytes are `pieces` end to end. It is accepted however much waits,
    /// so the owner has to look at the result.
    ///
    /// # Errors
    /// [`SendError::Gone`].
    pub(super) fn put_data(&mut self, id: StreamId, pieces: &[&[u8]], last: bool) -> Result<Sent, SendError> {
        let Some(exchange) = self.endpoint.of(id) else { return Err(SendError::Gone) };
        let written = exchange.own.written;
        if matches!(written, Written::Nothing | Written::All) {
            return Err(SendError::Gone);
        }
        let is_chunked = written == Written::Chunks;
        let out = self.endpoint.output.buffer();
        if written != Written::Nowhere {
            put_body(out, pieces, is_chunked);
        }
        if last {
            if is_chunked {
                out.extend_from_slice(LAST_CHUNK);
            }
            self.response_is_out();
            return Ok(Sent::Ready);
        }
        Ok(self.endpoint.has_sent_part())
    }

    /// The response is completely written to the output.
    fn response_is_out(&mut self) {
        self.endpoint.patience.earn(1);
        let Some(exchange) = &mut self.endpoint.exchange else { return };
        exchange.closes |= exchange.own.written == Written::UntilEnd;
        exchange.own.written = Written::All;
        if exchange.reader.body != Body::Discarded {
            exchange.reader.discard();
        }
        exchange.unreleased = 0;
        // If the connection closes, the rest of a long body is not awaited.
        if exchange.closes && !matches!(self.reading, Reading::Answered) {
            self.stop_reading();
        } else {
            self.next_request();
        }
    }

    /// Answers bytes that are no request, and ends the connection.
    pub(super) fn refuse(&mut self, refusal: Refusal<'_>) {
        put_refusal(self.endpoint.output.buffer(), &refusal);
        self.endpoint.input.skip(self.endpoint.input.len());
        self.stop_reading();
    }
}

/// Everything that a server sends to a client that it rejects.
#[must_use]
pub fn refusal_of_http1(status: u16, why: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put_refusal(&mut out, &Refusal { status, why });
    out
}

fn put_refusal(out: &mut Vec<u8>, refusal: &Refusal<'_>) {
    let Refusal { status, why } = refusal;
    let (reason, len) = (reason(*status), why.len() + 1);
    let _ = write!(
        out,
        "HTTP/1.1 {status} {reason}\r\ncontent-type: text/plain\r\ncontent-length: {len}\r\nconnection: close\r\n\r\n{why}\n"
    );
}

/// The reason phrase of a status.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        499 => "Client Closed Request",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}
