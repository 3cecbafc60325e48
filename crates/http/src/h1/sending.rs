//! Fields and bodies as HTTP/1.1 writes them, in requests and responses alike.

use std::io::Write as _;

/// Appends a field.
pub(super) fn put_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends a part of a body, of which `pieces` are the parts end to end: in a chunk of its own, if it is divided into chunks.
/// How many bytes it had.
pub(super) fn put_body(out: &mut Vec<u8>, pieces: &[&[u8]], is_chunked: bool) -> usize {
    let len: usize = pieces.iter().map(|piece| piece.len()).sum();
    if len == 0 {
        // A chunk of no length would be the last one.
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

/// What follows the last chunk.
pub(super) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
