//! What gRPC adds to HTTP/2: names of headers, how values are written, messages in a body, compression.
//!
//! By the project's own description, [PROTOCOL-HTTP2](https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md).

use crate::event::SendError;

mod assembler;
mod compression;
mod metadata;
mod status;
mod timeout;

pub(crate) use assembler::{Assembler, END_OF_STREAM, PREFIX, Piece};
pub(crate) use compression::{Compressor, Decompressor, TooLong};
pub use compression::{Encoding, Encodings};
pub use metadata::BadMetadata;
pub(crate) use metadata::{decode_value, encode_value, is_own, read as read_metadata};
pub use status::code_of_http;
pub(crate) use status::{decode_message, encode_message};
pub use timeout::BadTimeout;
pub(crate) use timeout::{read as read_timeout, write as write_timeout};

/// Hands over a message as bodies have it: a flag and its length in front of it, and compressed if that makes it shorter.
///
/// # Errors
/// [`SendError::TooLong`], and those of `send`.
pub(crate) fn envelope<T>(
    flag: u8,
    encoding: Option<Encoding>,
    pieces: &[&[u8]],
    send: impl FnOnce(&[&[u8]]) -> Result<T, SendError>,
) -> Result<T, SendError> {
    let compressed = Compressor::shorter(encoding, pieces);
    let whole = compressed.as_ref().map(|compressed| [&compressed[..]]);
    let message = whole.as_ref().map_or(pieces, |whole| &whole[..]);
    let len: usize = message.iter().map(|piece| piece.len()).sum();
    let [a, b, c, d] = u32::try_from(len).map_err(|_| SendError::TooLong { len })?.to_be_bytes();
    let prefix = [flag | u8::from(compressed.is_some()), a, b, c, d];
    let mut all = Vec::with_capacity(1 + message.len());
    all.push(&prefix[..]);
    all.extend_from_slice(message);
    send(&all)
}

/// The start of gRPC's content types.
pub(crate) const CONTENT_TYPE: &str = "application/grpc";

/// The codec that a content type names: `proto` if none. `None` if it is not gRPC's.
pub(crate) fn codec(content_type: &str) -> Option<&str> {
    let rest = content_type.strip_prefix(CONTENT_TYPE)?;
    let rest = rest.split_once(';').map_or(rest, |(before, _)| before).trim_end();
    match rest.strip_prefix('+') {
        Some(codec) if !codec.is_empty() => Some(codec),
        None if rest.is_empty() => Some("proto"),
        // `application/grpc-web` among them.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::codec;

    #[test]
    fn content_types_name_codecs() {
        assert_eq!(codec("application/grpc"), Some("proto"));
        assert_eq!(codec("application/grpc+json"), Some("json"));
        assert_eq!(codec("application/grpc+proto; charset=utf-8"), Some("proto"));
        assert_eq!(codec("application/grpc;x"), Some("proto"));
        for other in ["application/grpc-web", "application/grpcx", "application/json", "", "application/grpc+"] {
            assert_eq!(codec(other), None, "{other}");
        }
    }
}
