//! The parts that only Connect has: errors as JSON, its codes and their HTTP statuses, timeouts, calls by GET.

use std::fmt::Write as _;
use std::time::Duration;

use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use nearcall_wire::protobuf::{Fields, Wire};
use nearcall_wire::{CODE_NAMES, Failure};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode, percent_encode};

use crate::event::Outcome;
use crate::fields::decimal;

use super::codec::Codec;

const WITHOUT_PADDING: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_encode_padding(false).with_decode_padding_mode(DecodePaddingMode::Indifferent);
const BASE64: GeneralPurpose = GeneralPurpose::new(&STANDARD, WITHOUT_PADDING);
const BASE64_OF_URLS: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, WITHOUT_PADDING);

/// The most digits of a timeout.
const MOST_DIGITS: usize = 10;

/// Connect's name for a code.
fn name(code: u8) -> String {
    match code {
        // Only this name is spelt differently from gRPC's.
        Failure::CANCELLED => "canceled".to_owned(),
        _ => CODE_NAMES.get(usize::from(code)).unwrap_or(&"UNKNOWN").to_ascii_lowercase(),
    }
}

/// The code with this name.
pub(super) fn code(name: &str) -> Option<u8> {
    (1..CODE_NAMES.len() as u8).find(|&code| self::name(code) == name)
}

/// HTTP's status for a unary call that ends with this code.
pub(super) fn http_status(code: u8) -> u16 {
    match code {
        0 => 200,
        Failure::CANCELLED => 499,
        Failure::INVALID_ARGUMENT | Failure::FAILED_PRECONDITION | Failure::OUT_OF_RANGE => 400,
        Failure::DEADLINE_EXCEEDED => 504,
        Failure::NOT_FOUND => 404,
        Failure::ALREADY_EXISTS | Failure::ABORTED => 409,
        Failure::PERMISSION_DENIED => 403,
        Failure::RESOURCE_EXHAUSTED => 429,
        Failure::UNIMPLEMENTED => 501,
        Failure::UNAVAILABLE => 503,
        Failure::UNAUTHENTICATED => 401,
        _ => 500,
    }
}

/// Reads a timeout: up to ten digits, in milliseconds.
pub(super) fn timeout(value: &[u8]) -> Option<Duration> {
    let number = decimal(value).filter(|_| value.len() <= MOST_DIGITS)?;
    Some(Duration::from_millis(number))
}

/// Writes a timeout, rounded up: the deadline must not pass at the server before it passes here.
pub(super) fn write_timeout(timeout: Duration) -> String {
    let most = 10u128.pow(MOST_DIGITS as u32) - 1;
    timeout.as_nanos().div_ceil(1_000_000).clamp(1, most).to_string()
}

/// Decodes the value of a detail.
pub(super) fn decode_detail(value: &str) -> Option<Vec<u8>> {
    BASE64.decode(value).ok()
}

/// Writes the query of a call by GET.
pub(super) fn write_query(codec: Codec, message: &[u8]) -> String {
    let name = codec.name();
    if codec == Codec::Proto {
        let message = BASE64_OF_URLS.encode(message);
        return format!("?connect=v1&encoding={name}&base64=1&message={message}");
    }
    format!("?connect=v1&encoding={name}&message={}", percent_encode(message, NON_ALPHANUMERIC))
}

/// Writes an error as JSON.
pub(super) fn error(outcome: &Outcome<'_>) -> String {
    let mut json = format!("{{\"code\":\"{}\"", name(outcome.code));
    if !outcome.message.is_empty() {
        let _ = write!(json, ",\"message\":{}", quoted(outcome.message));
    }
    let mut between = ",\"details\":[";
    let mut fields = Fields::of(outcome.details);
    // This side has encoded the details. A malformed one would only be left out.
    while let Ok(Some((number, wire))) = fields.next() {
        if let (3, Wire::Bytes(any)) = (number, wire) {
            let (kind, value) = type_and_value(any);
            let kind = String::from_utf8_lossy(kind);
            let kind = quoted(kind.rsplit('/').next().unwrap_or_default());
            let _ = write!(json, "{between}{{\"type\":{kind},\"value\":\"{}\"}}", BASE64.encode(value));
            between = ",";
        }
    }
    json.push_str(if between == "," { "]}" } else { "}" });
    json
}

/// Writes the message that ends a stream: the error, if there is one, and metadata whose values are encoded for
/// headers.
pub(super) fn end_of_stream(outcome: &Outcome<'_>, metadata: &[(String, Vec<u8>)]) -> String {
    let mut json = String::from("{");
    if outcome.code != 0 {
        json.push_str("\"error\":");
        json.push_str(&error(outcome));
    }
    let mut keys: Vec<&str> = Vec::new();
    for (key, _) in metadata {
        if !keys.contains(&key.as_str()) {
            keys.push(key);
        }
    }
    for (at, key) in keys.iter().enumerate() {
        json.push_str(match (at, outcome.code) {
            (0, 0) => "\"metadata\":{",
            (0, _) => ",\"metadata\":{",
            _ => ",",
        });
        let values = metadata.iter().filter(|(other, _)| other == key);
        let values: Vec<String> = values.map(|(_, value)| quoted(&String::from_utf8_lossy(value))).collect();
        let _ = write!(json, "{}:[{}]", quoted(key), values.join(","));
    }
    json.push_str(if keys.is_empty() { "}" } else { "}}" });
    json
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The two fields of a `google.protobuf.Any`.
fn type_and_value(any: &[u8]) -> (&[u8], &[u8]) {
    let (mut kind, mut value): (&[u8], &[u8]) = (&[], &[]);
    let mut fields = Fields::of(any);
    while let Ok(Some((number, wire))) = fields.next() {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => kind = bytes,
            (2, Wire::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    (kind, value)
}

/// The query of a call by GET.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) message: Vec<u8>,
    /// `json` or `proto`.
    pub(super) encoding: String,
    /// The encoding, such as `gzip`; empty if there is none.
    pub(super) compression: Vec<u8>,
    /// The query says that the client speaks Connect.
    pub(super) of_connect: bool,
}

/// Reads the query of a call by GET.
///
/// # Errors
/// Why the query cannot be read, as text.
pub(super) fn query(text: &str) -> Result<Query, &'static str> {
    let (mut message, mut encoding, mut compression) = (None, None, Vec::new());
    let (mut is_base64, mut of_connect) = (false, false);
    for pair in text.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decoded(value);
        match name {
            "message" if message.is_none() => message = Some(value),
            "encoding" if encoding.is_none() => encoding = String::from_utf8(value).ok(),
            "message" | "encoding" => return Err("the query has a message or an encoding twice"),
            "base64" => is_base64 = value == b"1",
            "compression" if value != b"identity" => compression = value,
            "connect" if value == b"v1" => of_connect = true,
            "connect" => return Err("the version of Connect is none that is spoken here: connect=v1"),
            _ => {}
        }
    }
    let (Some(message), Some(encoding)) = (message, encoding) else {
        return Err("calls are made by POST; by GET with ?encoding=json&message=..., of methods that change nothing");
    };
    let message = if is_base64 {
        BASE64_OF_URLS.decode(&message).or_else(|_| BASE64.decode(&message)).map_err(|_| "the message is not base64")?
    } else {
        message
    };
    Ok(Query { message, encoding, compression, of_connect })
}

/// Decodes a value of a query.
fn decoded(value: &str) -> Vec<u8> {
    percent_decode(value.replace('+', " ").as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_json() {
        // google.rpc.Status { code: 5, message: "m", details: [Any { "x/a.B", "\xff" }, Any { "c", "" }] }
        let details = b"\x08\x05\x12\x01m\x1a\x0a\x0a\x05x/a.B\x12\x01\xff\x1a\x03\x0a\x01c";
        let outcome = Outcome { code: 5, message: "no \"such\"\n", details, metadata: None };
        assert_eq!(
            error(&outcome),
            r#"{"code":"not_found","message":"no \"such\"\n","details":[{"type":"a.B","value":"/w"},{"type":"c","value":""}]}"#
        );
        assert_eq!(error(&Outcome { code: 1, ..Outcome::default() }), r#"{"code":"canceled"}"#);
        assert_eq!(error(&Outcome { code: 200, ..Outcome::default() }), r#"{"code":"unknown"}"#);
    }

    #[test]
    fn the_end_of_a_stream_is_json() {
        let pairs = [("a".into(), b"1".to_vec()), ("b".into(), b"2".to_vec()), ("a".into(), b"3".to_vec())];
        let fine = Outcome::default();
        assert_eq!(end_of_stream(&fine, &[]), "{}");
        assert_eq!(end_of_stream(&fine, &pairs), r#"{"metadata":{"a":["1","3"],"b":["2"]}}"#);
        let bad = Outcome { code: 14, ..Outcome::default() };
        assert_eq!(end_of_stream(&bad, &[]), r#"{"error":{"code":"unavailable"}}"#);
        assert_eq!(end_of_stream(&bad, &pairs[..1]), r#"{"error":{"code":"unavailable"},"metadata":{"a":["1"]}}"#);
    }

    #[test]
    fn a_query_holds_a_message() {
        let read = |text| query(text).map(|query| (query.encoding, query.message));
        assert_eq!(read("encoding=json&message=%7B%22a%22:1+%7D"), Ok(("json".into(), b"{\"a\":1 }".to_vec())));
        assert_eq!(read("connect=v1&base64=1&encoding=proto&message=_-8"), Ok(("proto".into(), vec![255, 239])));
        assert_eq!(read("base64=1&encoding=proto&message=_-8%3D&x=y"), Ok(("proto".into(), vec![255, 239])));
        for bad in ["", "message=x", "encoding=json", "encoding=a&message=&message=", "base64=1&encoding=a&message=*"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert!(read("encoding=json&message=&connect=v2").is_err());
        for (text, of_connect) in [("encoding=json&message=&connect=v1", true), ("encoding=json&message=", false)] {
            assert_eq!(query(text).map(|query| query.of_connect), Ok(of_connect), "{text}");
        }
    }

    #[test]
    fn timeouts_have_up_to_ten_digits() {
        assert_eq!(timeout(b"1500"), Some(Duration::from_millis(1500)));
        for bad in [&b""[..], b"-1", b"1.5", b"12345678901", b"1s"] {
            assert_eq!(timeout(bad), None);
        }
        for (nanoseconds, written) in [(0, "1"), (1, "1"), (1_000_000, "1"), (1_000_001, "2"), (u64::MAX, "9999999999")]
        {
            assert_eq!(write_timeout(Duration::from_nanos(nanoseconds)), written);
        }
    }

    #[test]
    fn what_is_written_by_get_is_read() {
        for codec in [Codec::Proto, Codec::Json] {
            for message in [&b""[..], b"{\"a\": 1, \"b\": \"+&=%/\xc3\xa4\"}", &[0, 255, 62, 63]] {
                let written = write_query(codec, message);
                assert!(written.bytes().all(|octet| octet.is_ascii_graphic()));
                let read = query(&written[1..]).expect("good");
                assert_eq!((&*read.encoding, &*read.message), (codec.name(), message));
            }
        }
    }

    #[test]
    fn codes_have_names() {
        assert_eq!((code("canceled"), code("not_found"), code("unauthenticated")), (Some(1), Some(5), Some(16)));
        for other in ["ok", "cancelled", "", "NOT_FOUND"] {
            assert_eq!(code(other), None, "{other}");
        }
    }
}
