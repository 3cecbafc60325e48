//! Encodes status messages as header values, and maps HTTP's statuses to gRPC's.

use std::borrow::Cow;

use nearcall_wire::Failure;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, utf8_percent_encode};

/// Characters that a message must encode: all but printable ASCII, and `%` itself.
const MARKED: &AsciiSet = &CONTROLS.add(b'%');

/// Encodes a message for `grpc-message`. HTTP/2 allows no spaces at the ends of a value, so those are encoded, too.
pub(crate) fn encode_message(message: &str) -> Cow<'_, str> {
    let text = message.trim_matches(' ');
    if text.len() == message.len() {
        return utf8_percent_encode(message, MARKED).into();
    }
    let before = message.len() - message.trim_start_matches(' ').len();
    let after = message.len() - text.len() - before;
    let marks = |count| "%20".repeat(count);
    format!("{}{}{}", marks(before), utf8_percent_encode(text, MARKED), marks(after)).into()
}

/// Decodes the message in `grpc-message`. Wrong encodings are kept as they are; invalid UTF-8 is replaced.
pub(crate) fn decode_message(value: &[u8]) -> String {
    percent_decode(value).decode_utf8_lossy().into_owned()
}

/// gRPC's status for a response that has only an HTTP status ([the
/// table](https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md)).
#[must_use]
pub fn code_of_http(status: u16) -> u8 {
    match status {
        400 => Failure::INTERNAL,
        401 => Failure::UNAUTHENTICATED,
        403 => Failure::PERMISSION_DENIED,
        404 => Failure::UNIMPLEMENTED,
        429 | 502 | 503 | 504 => Failure::UNAVAILABLE,
        _ => Failure::UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_there_and_back() {
        for message in ["", "plain text", "100%", " between ", "   ", "tab\tand\nline", "Grüße, 世界 🦀", "%41"] {
            let value = encode_message(message);
            assert!(value.bytes().all(|octet| (0x20..0x7f).contains(&octet)), "{value}");
            assert!(!value.starts_with(' ') && !value.ends_with(' '), "{value:?}");
            assert_eq!(decode_message(value.as_bytes()), message);
        }
        assert_eq!(decode_message(b"50% %zz %ff"), "50% %zz \u{fffd}");
    }
}
