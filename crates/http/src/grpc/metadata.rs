//! Metadata as header fields: names are in lower case, and values printable unless the name ends with `-bin`.

use std::borrow::Cow;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use nearcall_wire::Metadata;

use crate::hpack::Fields;
use crate::names::{is_of_connection, is_own};

/// Metadata from a peer that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadMetadata {
    /// A name ends with `-bin`, but the value is not base64.
    #[error("the value of the metadata {0:?} is not base64")]
    NotBase64(String),
    /// More pairs than a call may have.
    #[error("the metadata has more than {} entries", Metadata::MOST_PAIRS)]
    TooMany,
}

/// Writes no padding, as most implementations do, and reads base64 with and without it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_encode_padding(false).with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Reads the fields that are the user's; `None` if there are none.
pub(crate) fn read(fields: &Fields) -> Result<Option<Metadata>, BadMetadata> {
    let mut metadata: Option<Metadata> = None;
    for (name, value) in fields.iter().filter(|(name, _)| !is_own(name)) {
        // Names were checked when they arrived.
        let key = String::from_utf8_lossy(name);
        let metadata = metadata.get_or_insert_default();
        let mut push = |value: &[u8]| {
            if metadata.pairs().len() == Metadata::MOST_PAIRS {
                return Err(BadMetadata::TooMany);
            }
            metadata.push(&key, value);
            Ok(())
        };
        if key.ends_with("-bin") {
            // Proxies may have joined several values.
            for part in value.split(|&octet| octet == b',') {
                push(&decode_value(part).ok_or_else(|| BadMetadata::NotBase64(key.clone().into_owned()))?)?;
            }
        } else {
            push(value)?;
        }
    }
    Ok(metadata)
}

/// Decodes the value of a `-bin` field.
pub(crate) fn decode_value(value: &[u8]) -> Option<Vec<u8>> {
    BASE64.decode(value.trim_ascii()).ok()
}

/// Encodes a value as a header carries it.
///
/// # Errors
/// Why HTTP cannot carry the pair, as text.
pub(crate) fn encode_value<'a>(key: &str, value: &'a [u8]) -> Result<Cow<'a, [u8]>, String> {
    let is_name = |octet: u8| matches!(octet, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
    if key.is_empty() || !key.bytes().all(is_name) {
        return Err(format!("the metadata key {key:?} has other characters than a-z, 0-9, '-', '_' and '.'"));
    }
    if is_own(key.as_bytes()) || is_of_connection(key.as_bytes()) {
        return Err(format!("the metadata key {key:?} belongs to the protocol"));
    }
    if key.ends_with("-bin") {
        return Ok(BASE64.encode(value).into_bytes().into());
    }
    if !value.iter().all(|octet| (0x20..0x7f).contains(octet)) {
        return Err(format!("the metadata {key:?} is not printable ASCII; give its key the ending '-bin'"));
    }
    if value.first() == Some(&b' ') || value.last() == Some(&b' ') {
        return Err(format!("the metadata {key:?} starts or ends with a space; give its key the ending '-bin'"));
    }
    Ok(value.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_values_are_read_with_and_without_padding() {
        assert_eq!(encode_value("x-bin", &[0, 255]).unwrap(), &b"AP8"[..]);
        assert_eq!(decode_value(b"AP8"), Some(vec![0, 255]));
        assert_eq!(decode_value(b"AP8="), Some(vec![0, 255]));
        assert_eq!(decode_value(b" AP8="), Some(vec![0, 255]));
        assert_eq!(decode_value(b"A"), None);
        assert_eq!(decode_value(b"\xff\xff"), None);
    }

    #[test]
    fn what_http_cannot_carry_is_said_in_words() {
        assert_eq!(encode_value("key.of_user-1", b"a b").unwrap(), &b"a b"[..]);
        for (key, value) in [
            ("", &b"x"[..]),
            ("Key", b"x"),
            ("k y", b"x"),
            (":path", b"x"),
            ("te", b"x"),
            ("grpc-status", b"0"),
            ("connection", b"close"),
            ("key", b"\n"),
            ("key", "ü".as_bytes()),
            ("key", b" x"),
            ("k\u{e4}", b"x"),
        ] {
            assert!(encode_value(key, value).is_err(), "{key:?}");
        }
    }
}
