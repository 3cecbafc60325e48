//! `google.rpc.Status`: the encoding of a failure with details over gRPC, in the trailer `grpc-status-details-bin`.
//!
//! Details are msgpack, whatever the codec of the method. A list of maps with the keys `type` and `value` is sent as
//! one `google.protobuf.Any` for each map, as all gRPC clients know them, and arrives as that list. All other details
//! are sent as one `Any` of the type [`DETAILS`], so that nothing is lost between two sides that use nearcall. Behind
//! it follow parts that others can read: the name of an application's exception as the reason of a
//! `google.rpc.ErrorInfo`.

use crate::error::{CODE_NAMES, Failure};
use crate::malformed::Malformed;
use crate::msgpack::{Shape, binary, entry, extension, split, step, text};
use crate::protobuf::{Fields, Number, Scalar, Wire, Writer};

/// The type of nearcall's details: `message Details { bytes msgpack = 1; }`.
pub const DETAILS: &str = "type.googleapis.com/nearcall.Details";

/// The type of a reason that programs can distinguish, one of [Google's own
/// types](https://github.com/googleapis/googleapis/blob/master/google/rpc/error_details.proto).
const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";

/// The msgpack extension around details that have more beside them: see `docs/protocol.md`.
const ENVELOPE: u8 = 3;

/// The most foreign details that are kept.
const MAX_DETAILS: usize = 1000;

/// Encodes the status of a failure; `None` if code and message say everything.
#[must_use]
pub fn encode(failure: &Failure) -> Option<Vec<u8>> {
    if failure.details.is_empty() {
        return None;
    }
    let mut out = Writer::with_capacity(failure.details.len() + failure.message.len() + DETAILS.len() + 32);
    out.varint_tag(1);
    out.varint(failure.code.into());
    out.bytes_tag(2);
    out.bytes(failure.message.as_bytes());
    if let Some(details) = anys(&failure.details) {
        for (kind, value) in details {
            put(&mut out, kind, |out| out.raw(value));
        }
        return Some(out.into_bytes());
    }
    put(&mut out, DETAILS.as_bytes(), |out| {
        out.bytes_tag(1);
        out.bytes(&failure.details);
    });
    let envelope = extension(&failure.details).filter(|&(kind, _)| kind == ENVELOPE).map(|(_, envelope)| envelope);
    if let Some(reason) = envelope.and_then(|envelope| text(entry(entry(envelope, b"error")?, b"name")?)) {
        put(&mut out, ERROR_INFO.as_bytes(), |out| {
            out.bytes_tag(1);
            out.bytes(reason);
        });
    }
    for (kind, value) in envelope.and_then(|envelope| anys(entry(envelope, b"details")?)).into_iter().flatten() {
        put(&mut out, kind, |out| out.raw(value));
    }
    Some(out.into_bytes())
}

/// Appends a detail.
fn put(out: &mut Writer, kind: &[u8], value: impl FnOnce(&mut Writer)) {
    out.bytes_tag(3);
    let any = out.open();
    out.bytes_tag(1);
    out.bytes(kind);
    out.bytes_tag(2);
    let begin = out.open();
    value(out);
    out.close(begin);
    out.close(any);
}

/// The types and values of the details, if they are a list of maps with exactly the keys `type` and `value`.
fn anys(details: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let list = step(details).filter(|list| list.shape == Shape::List && list.inside > 0)?;
    let mut rest = &details[list.skip..];
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (any, behind) = split(rest)?;
        step(any).filter(|map| map.shape == Shape::Map && map.inside == 4)?;
        let kind = text(entry(any, b"type")?).filter(|kind| kind.contains(&b'/'))?;
        found.push((kind, binary(entry(any, b"value")?)?));
        rest = behind;
    }
    Some(found)
}

/// Decodes the failure in a status.
///
/// # Errors
///
/// The bytes are not a status.
pub fn decode(bytes: &[u8]) -> Result<Failure, Malformed> {
    let mut failure = Failure::new(Failure::UNKNOWN, "");
    let mut others: Vec<(&[u8], &[u8])> = Vec::new();
    let mut fields = Fields::of(bytes);
    while let Some((number, wire)) = fields.next()? {
        match (number, wire) {
            (1, wire) => {
                if let Some(Number::Int(code)) = Scalar::Int32.number(wire)? {
                    let known = (1..CODE_NAMES.len() as i128).contains(&code);
                    failure.code = if known { code as u8 } else { Failure::UNKNOWN };
                }
            }
            (2, Wire::Bytes(message)) => failure.message = String::from_utf8_lossy(message).into_owned(),
            (3, Wire::Bytes(any)) => {
                let (kind, value) = (field(any, 1)?, field(any, 2)?);
                if kind == DETAILS.as_bytes() {
                    failure.details = field(value, 1)?.to_vec();
                } else if others.len() < MAX_DETAILS {
                    others.push((kind, value));
                }
            }
            _ => {}
        }
    }
    if failure.details.is_empty() && !others.is_empty() {
        failure.details = listed(&others);
    }
    Ok(failure)
}

/// The bytes of the last field with this number; empty if there is none.
fn field(message: &[u8], wanted: u32) -> Result<&[u8], Malformed> {
    let mut found: &[u8] = &[];
    let mut fields = Fields::of(message);
    while let Some((number, wire)) = fields.next()? {
        if let (true, Wire::Bytes(bytes)) = (number == wanted, wire) {
            found = bytes;
        }
    }
    Ok(found)
}

/// Encodes the types and values as msgpack: a list of maps.
fn listed(others: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut out = vec![0xdd];
    out.extend_from_slice(&(others.len() as u32).to_be_bytes());
    for (kind, value) in others {
        let kind = String::from_utf8_lossy(kind);
        out.extend_from_slice(b"\x82\xa4type\xdb");
        out.extend_from_slice(&(kind.len() as u32).to_be_bytes());
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\xa5value\xc6");
        out.extend_from_slice(&(value.len() as u32).to_be_bytes());
        out.extend_from_slice(value);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_comes_back_with_its_details() {
        let failure = Failure { code: 5, message: "no such user".to_owned(), details: b"\x81\xa2id\x07".to_vec() };
        assert_eq!(decode(&encode(&failure).expect("details")), Ok(failure));
        assert_eq!(encode(&Failure::new(5, "plain")), None);
    }

    #[test]
    fn details_of_others_are_listed_by_their_types() {
        let status = b"\x08\x03\x12\x03bad\x1a\x09\x0a\x03a/b\x12\x02\x08\x01";
        let failure = decode(status).expect("well-formed");
        assert_eq!((failure.code, failure.message.as_str()), (3, "bad"));
        assert_eq!(failure.details, b"\xdd\0\0\0\x01\x82\xa4type\xdb\0\0\0\x03a/b\xa5value\xc6\0\0\0\x02\x08\x01");
    }

    #[test]
    fn details_that_say_their_types_travel_as_those() {
        let status = b"\x08\x03\x12\x03bad\x1a\x09\x0a\x03a/b\x12\x02\x08\x01";
        let own = b"\x91\x82\xa5value\xc4\x02\x08\x01\xa4type\xa3a/b".to_vec();
        let failure = Failure { code: 3, message: "bad".to_owned(), details: own };
        assert_eq!(encode(&failure).as_deref(), Some(&status[..]));
        for other in [
            &b"\x90"[..],
            b"\x91\x82\xa4type\xa3a/b\xa5value\xa2\x08\x01",
            b"\x91\x82\xa4type\xa2ab\xa5value\xc4\x02\x08\x01",
            b"\x91\x83\xa4type\xa3a/b\xa5value\xc4\x02\x08\x01\xa1x\x01",
            b"\x92\x82\xa4type\xa3a/b\xa5value\xc4\x02\x08\x01\x01",
            b"\x82\xa4type\xa3a/b\xa5value\xc4\x02\x08\x01",
            b"\x91\x82\xa4type\xa3a/b\xa5value\xc4\x09\x08\x01",
        ] {
            let failure = Failure { details: other.to_vec(), ..failure.clone() };
            assert_eq!(decode(&encode(&failure).expect("details")), Ok(failure));
        }
    }

    #[test]
    fn an_exception_of_the_application_has_a_reason_for_others() {
        let envelope = b"\x82\xa7details\x91\x82\xa4type\xa3a/b\xa5value\xc4\x01x\xa5error\x81\xa4name\xa4Full";
        let details = [&[0xc7, envelope.len() as u8, ENVELOPE][..], envelope].concat();
        let failure = Failure { code: 2, message: "no room".to_owned(), details };
        let status = encode(&failure).expect("details");
        let tail = b"google.rpc.ErrorInfo\x12\x06\x0a\x04Full\x1a\x08\x0a\x03a/b\x12\x01x";
        assert!(status.ends_with(tail), "{}", String::from_utf8_lossy(&status));
        assert_eq!(decode(&status), Ok(failure));
    }

    #[test]
    fn whatever_is_malformed_is_refused() {
        let whole = encode(&Failure { code: 5, message: "m".to_owned(), details: vec![0; 200] }).expect("details");
        for len in 1..whole.len() {
            let _ = decode(&whole[..len]);
        }
        assert!(decode(&whole[..whole.len() - 1]).is_err());
        assert!(decode(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02").is_err());
        assert_eq!(decode(b"\x08\x90\x4e").map(|failure| failure.code), Ok(Failure::UNKNOWN), "a code that is none");
    }
}
