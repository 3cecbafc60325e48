//! `google.rpc.Status`: how a failure with details travels over gRPC, in the trailer `grpc-status-details-bin`.
//!
//! nearcall's details are msgpack, whatever the codec of the method. They travel as one `google.protobuf.Any` of a type of
//! their own, [`DETAILS`], so that nothing of them is lost between two of us, and others see code and message. Details of
//! others arrive as a list of maps with the keys `type` and `value`, one for each `Any`.

use crate::error::{CODE_NAMES, Failure};
use crate::malformed::Malformed;
use crate::protobuf::{Fields, Number, Scalar, Wire, Writer};

/// The type of nearcall's details: `message Details { bytes msgpack = 1; }`.
pub const DETAILS: &str = "type.googleapis.com/nearcall.Details";

/// Details of others that are kept, at most.
const MOST: usize = 1000;

/// The status of a failure; `None` if code and message say all.
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
    out.bytes_tag(3);
    let any = out.open();
    out.bytes_tag(1);
    out.bytes(DETAILS.as_bytes());
    out.bytes_tag(2);
    let value = out.open();
    out.bytes_tag(1);
    out.bytes(&failure.details);
    out.close(value);
    out.close(any);
    Some(out.as_bytes().to_vec())
}

/// The failure of a status.
///
/// # Errors
///
/// The bytes are no status.
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
                } else if others.len() < MOST {
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

/// The last field of that number that holds bytes; empty if there is none.
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

/// msgpack: a list of maps.
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
