//! Writes fields and bodies of HTTP/1.1, for requests and responses alike.

use std::io::Write as _;

/// Appends a field.
pub(super) fn put_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends a part of a body, whose bytes are `pieces` end to end; as a chunk of its own if the body is in chunks.
/// Returns how many bytes it had.
pub(super) fn put_body(out: &mut Vec<u8>, pieces: &[&[u8]], is_chunked: bool) -> usize {
    let len: usize = pieces.iter().map(|piece| piece.len()).sum();
    if len == 0 {
        // A chunk of length 0 would be the last one.
        return 0;
    }
    if is_chunked {
        let _ = write!(out, "{len:x}\r\n");
    }
    for piece in pieces {
        out.extend_from_slice(piece);
    }
    if is_chunked {
        out.extend_from_slice(b"\r\n");
    }
    len
}

/// The end of a body in chunks.
pub(super) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
