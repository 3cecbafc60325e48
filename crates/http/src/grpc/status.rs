//! Status messages as header values, and HTTP's statuses as gRPC's.

use std::borrow::Cow;

use nearcall_wire::Failure;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, utf8_percent_encode};

/// What a message may not contain as it is: anything but printable ASCII, and the mark itself.
const MARKED: &AsciiSet = &CONTROLS.add(b'%');

/// A message as `grpc-message` carries it. HTTP/2 allows no space at a value's ends: it is encoded as well.
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

/// The message that `grpc-message` carries. What is wrongly encoded is taken as it is; what is no UTF-8 is replaced.
pub(crate) fn decode_message(value: &[u8]) -> String {
    percent_decode(value).decode_utf8_lossy().into_owned()
}

/// The status of a response that has none of gRPC's, by its HTTP status
/// ([the table](https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md)).
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
