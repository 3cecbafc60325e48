//! Reads at a client how calls of Connect end: errors, and the message that ends a stream, both JSON.

use std::collections::BTreeMap;

use nearcall_wire::protobuf::Writer;
use nearcall_wire::{Failure, Metadata};
use serde::{Deserialize, Deserializer};

use crate::event::Ending;
use crate::grpc::{code_of_http, decode_value};
use crate::names::is_own;

use super::connect;

/// The longest error, and the longest end of a stream, that is read, in bytes. JSON takes many times that in memory.
pub(super) const MAX_END_BYTES: usize = 1 << 20;
/// Characters that are shown of a body that is not an error of Connect, but may say what is wrong.
const MOST_SHOWN: usize = 200;
/// The most details that are kept of an error.
const MOST_DETAILS: usize = 1000;
/// The prefix of types of details in gRPC.
const TYPES: &str = "type.googleapis.com/";

/// An error, with the fields that are known here. In Protobuf's JSON a field that is `null` is absent.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Error {
    #[serde(deserialize_with = "unless_null")]
    code: String,
    #[serde(deserialize_with = "unless_null")]
    message: String,
    #[serde(deserialize_with = "unless_null")]
    details: Vec<Detail>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Detail {
    #[serde(rename = "type", deserialize_with = "unless_null")]
    kind: String,
    /// Base64.
    #[serde(deserialize_with = "unless_null")]
    value: String,
}

/// The message that ends a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct End {
    error: Option<Error>,
    #[serde(deserialize_with = "unless_null")]
    metadata: BTreeMap<String, Vec<String>>,
}

fn unless_null<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

/// How a call ended that failed with this HTTP status and this body.
pub(super) fn of_failure(status: u16, is_json: bool, body: &[u8], metadata: Option<Metadata>) -> Ending {
    let read = (is_json && body.len() <= MAX_END_BYTES).then(|| serde_json::from_slice::<Error>(body).ok()).flatten();
    let mut failure = read.unwrap_or_default();
    let known = connect::code(&failure.code);
    let code = known.unwrap_or(code_of_http(status));
    if known.is_some() || !failure.message.is_empty() {
        return ending(code, failure, metadata);
    }
    // Whoever reads the error has to be told something.
    let shown: String = String::from_utf8_lossy(&body[..body.len().min(4 * MOST_SHOWN)])
        .chars()
        .map(|one| if one.is_control() { ' ' } else { one })
        .take(MOST_SHOWN)
        .collect();
    let between = if shown.trim().is_empty() { "" } else { ": " };
    failure.message = format!("the server answers with HTTP status {status}{between}{}", shown.trim());
    ending(code, failure, metadata)
}

/// How a stream ended, by its last message.
pub(super) fn of_stream(json: &[u8]) -> Ending {
    let failed =
        |message: String| Ending::Status { code: Failure::INTERNAL, message, details: Vec::new(), metadata: None };
    if json.len() > MAX_END_BYTES {
        return failed(format!("what ends the stream has {} bytes, the limit is {MAX_END_BYTES}", json.len()));
    }
    // `serde_json` would take a list for the fields in order.
    let read = json.trim_ascii_start().starts_with(b"{").then(|| serde_json::from_slice::<End>(json));
    let Some(Ok(end)) = read else {
        return failed("what ends the stream is not JSON as Connect has it".to_owned());
    };
    let metadata = match metadata(end.metadata) {
        Ok(metadata) => metadata,
        // The call has failed anyway, and its error says why.
        Err(why) if end.error.is_none() => return failed(why.to_owned()),
        Err(_) => None,
    };
    match end.error {
        None => Ending::Status { code: 0, message: String::new(), details: Vec::new(), metadata },
        Some(failure) => ending(connect::code(&failure.code).unwrap_or(Failure::UNKNOWN), failure, metadata),
    }
}

fn metadata(pairs: BTreeMap<String, Vec<String>>) -> Result<Option<Metadata>, &'static str> {
    const MALFORMED: &str = "the metadata that ends the stream is malformed";
    let mut found: Option<Metadata> = None;
    for (name, values) in pairs {
        let name = name.to_ascii_lowercase();
        let is_name = |octet: u8| octet.is_ascii_graphic() && octet != b':';
        if name.is_empty() || !name.bytes().all(is_name) {
            return Err(MALFORMED);
        }
        if is_own(name.as_bytes()) {
            continue;
        }
        for value in values {
            let found = found.get_or_insert_default();
            if found.pairs().len() == Metadata::MOST_PAIRS {
                return Err("the stream ends with more metadata than this side takes");
            }
            if !name.ends_with("-bin") {
                if value.bytes().any(|octet| octet.is_ascii_control()) {
                    return Err(MALFORMED);
                }
                found.push(&name, value.as_bytes());
                continue;
            }
            // Proxies may have joined several values.
            for part in value.split(',') {
                found.push(&name, &decode_value(part.as_bytes()).ok_or(MALFORMED)?);
            }
        }
    }
    Ok(found)
}

/// A failure, with its details as gRPC's `google.rpc.Status` has them. Details that cannot be read are left out: code
/// and message matter more.
fn ending(code: u8, failure: Error, metadata: Option<Metadata>) -> Ending {
    let Error { message, details, .. } = failure;
    let mut out = Writer::with_capacity(0);
    for Detail { kind, value } in details.into_iter().take(MOST_DETAILS) {
        let Some(value) = connect::decode_detail(&value).filter(|_| !kind.is_empty()) else { continue };
        let kind = if kind.contains('/') { kind } else { format!("{TYPES}{kind}") };
        out.bytes_tag(3);
        let any = out.open();
        out.bytes_tag(1);
        out.bytes(kind.as_bytes());
        out.bytes_tag(2);
        out.bytes(&value);
        out.close(any);
    }
    Ending::Status { code, message, details: out.into_bytes(), metadata }
}

#[cfg(test)]
mod tests {
    use super::super::reply::Pairs;
    use super::*;

    /// Code, message, details and metadata of a call's end.
    fn parts(ending: Ending) -> (u8, String, Vec<u8>, Pairs) {
        let Ending::Status { code, message, details, metadata } = ending else { panic!("{ending:?}") };
        (code, message, details, metadata.map_or_else(Vec::new, |metadata| metadata.pairs().to_vec()))
    }

    fn failed(status: u16, body: &str) -> (u8, String) {
        let (code, message, ..) = parts(of_failure(status, true, body.as_bytes(), None));
        (code, message)
    }

    #[test]
    fn errors_are_read() {
        let body = br#"{"code":"not_found","message":"no \"such\"","details":[{"type":"a.B","value":"/w","debug":[]},{"type":"c","value":"*"},{}],"more":1}"#;
        let (code, message, details, _) = parts(of_failure(404, true, body, None));
        assert_eq!((code, &*message), (5, "no \"such\""));
        assert_eq!(details, b"\x1a\x1c\x0a\x17type.googleapis.com/a.B\x12\x01\xff");
        assert_eq!(failed(404, r#"{"code":"canceled"}"#), (1, String::new()));
    }

    #[test]
    fn what_is_no_error_of_connects_is_told_by_its_status() {
        for (status, code) in [(400, 13), (401, 16), (403, 7), (404, 12), (429, 14), (502, 14), (500, 2), (302, 2)] {
            for body in ["", "{}", "[", r#"{"code":"ok"}"#, r#"{"code":7}"#, r#"{"code":"NOT_FOUND"}"#] {
                let (found, message) = failed(status, body);
                assert_eq!(found, code, "{status} {body}");
                assert!(message.starts_with(&format!("the server answers with HTTP status {status}")), "{message}");
            }
        }
        let (code, message, ..) = parts(of_failure(503, false, b"no \x1b[1mroom\n", None));
        assert_eq!((code, &*message), (14, "the server answers with HTTP status 503: no  [1mroom"));
        let huge = format!("{{\"code\":\"aborted\",\"message\":\"{}\"}}", "x".repeat(MAX_END_BYTES));
        let (code, message) = failed(500, &huge);
        assert!(code == 2 && message.len() < 300, "{message}");
        let deep = format!("{{\"code\":\"aborted\",\"x\":{}", "[".repeat(100_000));
        assert_eq!(failed(409, &deep).0, 2);
    }

    #[test]
    fn an_error_without_a_known_code_has_that_of_its_status_and_keeps_the_rest() {
        let detail = br#""details":[{"type":"a.B","value":"/w"},{"type":null,"value":null}]"#;
        for code in ["", r#""code":null,"#, r#""code":"other","#] {
            let message = r#""message":"oops","#;
            let body = [b"{", code.as_bytes(), message.as_bytes(), detail, b"}"].concat();
            let (code, message, details, _) = parts(of_failure(401, true, &body, None));
            assert_eq!((code, &*message), (16, "oops"));
            assert_eq!(details, b"\x1a\x1c\x0a\x17type.googleapis.com/a.B\x12\x01\xff");
        }
        assert_eq!(failed(401, r#"{"code":"aborted","message":null,"details":null}"#), (10, String::new()));
    }

    #[test]
    fn streams_end_with_a_status_and_metadata() {
        let end = |text: &str| parts(of_stream(text.as_bytes()));
        assert_eq!(end("{}"), (0, String::new(), vec![], vec![]));
        let pairs = vec![("a".into(), b"1".to_vec()), ("a".into(), b"2".to_vec()), ("b-bin".into(), vec![0, 255])];
        let text = r#"{"metadata":{"B-bin":["AP8"],"A":["1","2"],"grpc-status":["0"]}}"#;
        let (code, .., mut found) = end(text);
        found.sort();
        assert_eq!((code, found), (0, pairs));
        let (code, message, ..) = end(r#"{"error":{"code":"aborted","message":"enough"},"metadata":{"x-bin":["*"]}}"#);
        assert_eq!((code, &*message), (10, "enough"));
        for code in ["", r#""code":null,"#, r#""code":"other","#] {
            let (code, message, ..) = end(&format!("{{\"error\":{{{code}\"message\":\"oops\"}},\"metadata\":null}}"));
            assert_eq!((code, &*message), (Failure::UNKNOWN, "oops"));
        }
        assert_eq!(end(r#"{"error":null}"#).0, 0);
        assert_eq!(end(r#"{"error":{}}"#).0, Failure::UNKNOWN);
        for bad in [
            "",
            "[]",
            "null",
            "{",
            "{} {}",
            r#"{"error":[1]}"#,
            r#"{"metadata":{"x":"y"}}"#,
            r#"{"metadata":{"x-bin":["*"]}}"#,
            r#"{"metadata":{"":["y"]}}"#,
            r#"{"metadata":{"x y":["y"]}}"#,
            r#"{"metadata":{"x":["\n"]}}"#,
        ] {
            assert_eq!(end(bad).0, Failure::INTERNAL, "{bad}");
        }
        let many = format!("{{\"metadata\":{{\"x\":[{}\"\"]}}}}", "\"\",".repeat(Metadata::MOST_PAIRS));
        assert_eq!(end(&many).0, Failure::INTERNAL);
        assert_eq!(end(&" ".repeat(MAX_END_BYTES + 1)).0, Failure::INTERNAL);
    }
}
