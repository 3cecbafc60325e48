//! Checks whether a list of fields is a valid request, response or trailers (RFC 9113, sections 8.1 to 8.3), and gives
//! views of them.

use std::time::Duration;

use nearcall_wire::Metadata;

use crate::grpc::{self, BadMetadata, BadTimeout, Encodings};
use crate::hpack::Fields;
use crate::names::is_of_connection;

/// The kind of a list of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Request,
    Response,
    Trailers,
}

/// What the connection needs to know of a list of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Checked {
    pub(crate) content_length: Option<u64>,
    /// Only of a response.
    pub(crate) status: u16,
}

/// Whether a value has an octet that no value may have. A peer can repeat a long value at the cost of one byte, so this
/// has to be fast. Without an exit in the middle of a chunk, and with numbers instead of booleans, the processor
/// compares many octets in one step: that takes a ninth of the time.
fn is_broken(value: &[u8]) -> bool {
    let count = |found, &octet: &u8| found | u8::from(octet == 0) | u8::from(octet == b'\r') | u8::from(octet == b'\n');
    value.chunks(256).any(|chunk| chunk.iter().fold(0, count) != 0)
}

/// Checks a list of fields.
///
/// # Errors
/// Why the list is malformed, as text.
pub(crate) fn check(fields: &Fields, role: Role) -> Result<Checked, &'static str> {
    const METHOD: u8 = 1;
    const SCHEME: u8 = 2;
    const PATH: u8 = 4;
    const AUTHORITY: u8 = 8;
    const STATUS: u8 = 16;
    let (mut seen, mut is_pseudo, mut is_connect) = (0, true, false);
    let mut checked = Checked::default();
    for (name, value) in fields.iter() {
        if is_broken(value) {
            return Err("a field's value has characters that it may not have");
        }
        // gRPC's C core writes status messages unchanged, and those of grpcio often end with a space. To refuse them
        // would replace every such status by an error of this library.
        if let ([b' ' | b'\t', ..] | [.., b' ' | b'\t'], true) = (value, name != b"grpc-message") {
            return Err("a field's value starts or ends with space");
        }
        if name.first() == Some(&b':') {
            if !is_pseudo {
                return Err("a pseudo-header comes after other fields");
            }
            let bit = match (role, name) {
                (Role::Request, b":method") => METHOD,
                (Role::Request, b":scheme") => SCHEME,
                (Role::Request, b":path") => PATH,
                (Role::Request, b":authority") => AUTHORITY,
                (Role::Response, b":status") => STATUS,
                _ => return Err("there is a pseudo-header that may not be here"),
            };
            if seen & bit != 0 {
                return Err("a pseudo-header comes twice");
            }
            seen |= bit;
            match bit {
                METHOD => is_connect = value == b"CONNECT",
                PATH if value.is_empty() || !value.iter().all(u8::is_ascii_graphic) => return Err("the path is none"),
                STATUS => checked.status = status(value).ok_or("the status is none")?,
                _ => {}
            }
            continue;
        }
        is_pseudo = false;
        if name.is_empty() || !name.iter().all(|&octet| is_of_name(octet)) {
            return Err("a field's name has characters that it may not have");
        }
        if is_of_connection(name) || (name == b"te" && value != b"trailers") {
            return Err("there is a field that HTTP/2 does not have");
        }
        if name == b"content-length" {
            let length = decimal(value).ok_or("the content-length is none")?;
            if checked.content_length.is_some_and(|other| other != length) {
                return Err("there are two content-lengths");
            }
            checked.content_length = Some(length);
        }
    }
    let wanted = match role {
        Role::Request if is_connect => METHOD | AUTHORITY,
        Role::Request => METHOD | SCHEME | PATH | seen & AUTHORITY,
        Role::Response => STATUS,
        Role::Trailers => 0,
    };
    if seen == wanted { Ok(checked) } else { Err("a pseudo-header is missing or too many") }
}

/// The characters of a field's name: those of a token, without capital letters.
fn is_of_name(octet: u8) -> bool {
    matches!(octet, b'a'..=b'z' | b'0'..=b'9' | b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
}

fn status(value: &[u8]) -> Option<u16> {
    (value.len() == 3).then(|| decimal(value)).flatten().filter(|number| *number >= 100).map(|number| number as u16)
}

/// A number of at most 18 digits.
pub(crate) fn decimal(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 18 || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(value.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

/// The headers of a request, already checked.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a>(pub(crate) &'a Fields);

/// The headers of a response, already checked.
#[derive(Debug, Clone, Copy)]
pub struct Response<'a>(pub(crate) &'a Fields, pub(crate) u16);

/// A value as text; empty if it is missing or not UTF-8.
fn text(value: Option<&[u8]>) -> &str {
    value.and_then(|value| std::str::from_utf8(value).ok()).unwrap_or("")
}

impl<'a> Request<'a> {
    /// The path as it was sent; empty for CONNECT.
    #[must_use]
    pub fn path(&self) -> &'a str {
        text(self.0.get(":path"))
    }

    /// `POST` for gRPC.
    #[must_use]
    pub fn method(&self) -> &'a str {
        text(self.0.get(":method"))
    }

    /// The server that the client means to reach; empty if the request does not say.
    #[must_use]
    pub fn authority(&self) -> &'a str {
        text(self.0.get(":authority").or_else(|| self.0.get("host")))
    }

    /// `http` or `https`.
    #[must_use]
    pub fn scheme(&self) -> &'a str {
        text(self.0.get(":scheme"))
    }

    /// The whole content type; empty if there is none.
    #[must_use]
    pub fn content_type(&self) -> &'a str {
        text(self.0.get("content-type"))
    }

    /// The codec that gRPC's content type names: `proto` if it names none. `None` if this is no gRPC.
    #[must_use]
    pub fn codec(&self) -> Option<&'a str> {
        grpc::codec(self.content_type())
    }

    /// How long the client will wait, counted from when it sent the request.
    ///
    /// # Errors
    /// The header is malformed: `INVALID_ARGUMENT`, or 400, is the answer.
    pub fn timeout(&self) -> Result<Option<Duration>, BadTimeout> {
        self.0.get("grpc-timeout").map(grpc::read_timeout).transpose()
    }

    /// The encodings that the client can decompress.
    #[must_use]
    pub fn accepts(&self) -> Encodings {
        self.0.get("grpc-accept-encoding").map(Encodings::read).unwrap_or_default()
    }

    /// The first value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.0.get(name)
    }

    /// The headers that are neither HTTP's nor gRPC's, `-bin` ones decoded. `None` if there are none.
    ///
    /// # Errors
    /// One of them cannot be decoded.
    pub fn metadata(&self) -> Result<Option<Metadata>, BadMetadata> {
        grpc::read_metadata(self.0)
    }
}

impl<'a> Response<'a> {
    /// HTTP's status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.1
    }

    /// The first value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.0.get(name)
    }

    /// See [`Request::metadata`].
    ///
    /// # Errors
    /// One of them cannot be decoded.
    pub fn metadata(&self) -> Result<Option<Metadata>, BadMetadata> {
        grpc::read_metadata(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::{Decoder, Encoder, Keep};

    fn checked(list: &[(&str, &str)], role: Role) -> Result<Checked, &'static str> {
        let (mut block, mut fields) = (Vec::new(), Fields::new(1 << 16));
        let mut encoder = Encoder::default();
        for (name, value) in list {
            encoder.field(&mut block, name, value.as_bytes(), Keep::No);
        }
        Decoder::default().decode(&block, &mut fields).unwrap();
        check(&fields, role)
    }

    const GOOD: [(&str, &str); 3] = [(":method", "POST"), (":scheme", "http"), (":path", "/a.B/c")];

    #[test]
    fn good_lists_pass() {
        assert_eq!(checked(&GOOD, Role::Request), Ok(Checked::default()));
        let more = [&GOOD[..], &[("te", "trailers"), ("content-length", "5"), ("x-y_z", "a b")]].concat();
        assert_eq!(checked(&more, Role::Request).unwrap().content_length, Some(5));
        assert!(checked(&[(":method", "CONNECT"), (":authority", "x")], Role::Request).is_ok());
        assert_eq!(checked(&[(":status", "204")], Role::Response).unwrap().status, 204);
        assert!(checked(&[("grpc-status", "0")], Role::Trailers).is_ok());
        assert!(checked(&[("grpc-status", "2"), ("grpc-message", " what: ")], Role::Trailers).is_ok());
    }

    /// In its last chunk.
    const LONG_AND_BROKEN: &str = concat!(
        "long long long long long long long long long long long long long long long long long long long long long long ",
        "long long long long long long long long long long long long long long long long long long long long long long ",
        "long long long long long long long long long long long long long long long long long long long long\nlong",
    );

    #[test]
    fn malformed_lists_do_not() {
        let with = |name: &'static str, value: &'static str| [&GOOD[..], &[(name, value)]].concat();
        for bad in [
            with("Upper", "x"),
            with("", "x"),
            with("a b", "x"),
            with("a:b", "x"),
            with(":path", "/"),
            with(":status", "200"),
            with(":unknown", "x"),
            with("connection", "close"),
            with("transfer-encoding", "chunked"),
            with("te", "gzip"),
            with("x", "a\nb"),
            with("x", "a\rb"),
            with("x", "a\0b"),
            with("x", LONG_AND_BROKEN),
            with("x", " a"),
            with("x", "a\t"),
            with("content-length", "+1"),
            with("content-length", "1234567890123456789"),
            [&GOOD[..], &[("content-length", "1"), ("content-length", "2")]].concat(),
            [&GOOD[..], &[("x", "y"), (":authority", "z")]].concat(),
            GOOD[1..].to_vec(),
            GOOD[..2].to_vec(),
            vec![GOOD[0], GOOD[1], (":path", "")],
            vec![GOOD[0], GOOD[1], (":path", "/a b")],
            vec![GOOD[0], GOOD[1], (":path", "/ü")],
            vec![],
        ] {
            assert!(checked(&bad, Role::Request).is_err(), "{bad:?}");
        }
        assert!(checked(&[(":status", "99")], Role::Response).is_err());
        assert!(checked(&[(":status", "2000")], Role::Response).is_err());
        assert!(checked(&GOOD, Role::Trailers).is_err());
    }
}
