//! Reads the head of a request or a response in HTTP/1.1: its first line and its fields (RFC 9112, sections 2 to 6).
//!
//! A head that two readers could take for two different requests is refused, because request smuggling depends on that.

use crate::fields::decimal;
use crate::hpack::Fields;

/// The most fields of a head.
const MOST_FIELDS: usize = 128;

/// How the end of a body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// The body has this many bytes; none if the head names no body.
    Length(u64),
    Chunked,
}

/// What the connection needs to know of a request's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// Its length in bytes.
    pub(super) len: usize,
    pub(super) framing: Framing,
    /// HTTP/1.0: no chunks, and one request on a connection.
    pub(super) is_old: bool,
    /// The connection ends after the response, by the client's wish or because of HTTP/1.0.
    pub(super) closes: bool,
    /// The client sends the body only when it is told to.
    pub(super) waits: bool,
}

/// A head that is refused, and the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal<'a> {
    /// HTTP's status.
    pub(super) status: u16,
    pub(super) why: &'a str,
}

const fn refusal(status: u16, why: &'static str) -> Refusal<'static> {
    Refusal { status, why }
}

const fn bad(why: &'static str) -> Refusal<'static> {
    refusal(400, why)
}

/// Where the head ends in `bytes`, with the empty line, if it does. `from`: this many bytes were searched before.
pub(super) fn end_of(bytes: &[u8], from: usize) -> Option<usize> {
    let from = from.saturating_sub(3);
    bytes[from..].windows(4).position(|four| four == b"\r\n\r\n").map(|at| from + at + 4)
}

/// Reads a whole head into `fields` in the form of HTTP/2: pseudo-headers first, names in lower case.
///
/// # Errors
/// The answer. The connection ends after it, because the start of the next request is unknown.
pub(super) fn read(bytes: &[u8], is_secure: bool, fields: &mut Fields) -> Result<Head, Refusal<'static>> {
    only_whole_line_ends(bytes)?;
    let mut space = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut request = httparse::Request::new(&mut space);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(len)) if len == bytes.len() => {}
        Err(httparse::Error::TooManyHeaders) => return Err(refusal(431, "the request has too many headers")),
        Err(httparse::Error::Version) if is_other_version(bytes) => {
            return Err(refusal(505, "the version of HTTP is none that is spoken here"));
        }
        _ => return Err(bad("the head of the request is malformed")),
    }
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        return Err(bad("the head of the request is malformed"));
    };
    let (authority, path) = split(method, target)?;
    let is_old = version == 0;
    let mut seen = Seen::default();
    for header in request.headers.iter() {
        seen.note(header.name, header.value)?;
    }
    let host = match (seen.hosts, is_old) {
        (1, _) => seen.host,
        (0, true) => b"",
        (0, false) => return Err(bad("the request has no Host")),
        _ => return Err(bad("the request has more than one Host")),
    };
    let framing = match (seen.length, seen.is_chunked) {
        (Some(_), true) => return Err(bad("there are both Content-Length and Transfer-Encoding")),
        (None, true) if is_old => return Err(bad("HTTP/1.0 has no Transfer-Encoding")),
        (None, true) => Framing::Chunked,
        (length, false) => Framing::Length(length.unwrap_or(0)),
    };
    fields.clear();
    fields.push(b":method", method.as_bytes());
    fields.push(b":scheme", if is_secure { b"https" } else { b"http" });
    fields.push(b":path", path.as_bytes());
    fields.push(b":authority", authority.map_or(host, str::as_bytes));
    push_fields(fields, request.headers);
    if fields.is_over() {
        return Err(refusal(431, "the headers of the request are more than the server takes"));
    }
    let has_body = framing != Framing::Length(0);
    Ok(Head {
        len: bytes.len(),
        framing,
        is_old,
        closes: seen.closes || is_old,
        waits: seen.waits && has_body && !is_old,
    })
}

/// What the connection needs to know of a response's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ResponseHead {
    pub(super) status: u16,
    pub(super) framing: Framing,
    /// The server ends the connection after the response.
    pub(super) closes: bool,
}

/// Reads the whole head of a response, as [`read`] does for a request. `None`: it has more headers than this side
/// accepts.
///
/// # Errors
/// Why the head cannot be read, as text. The position of the next head is then unknown.
pub(super) fn read_response(bytes: &[u8], fields: &mut Fields) -> Result<Option<ResponseHead>, &'static str> {
    only_whole_line_ends(bytes).map_err(|refusal| refusal.why)?;
    let mut space = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut response = httparse::Response::new(&mut space);
    match response.parse(bytes) {
        Ok(httparse::Status::Complete(len)) if len == bytes.len() => {}
        Err(httparse::Error::TooManyHeaders) => return Ok(None),
        _ => return Err("the head of the response is malformed"),
    }
    let (Some(status), Some(version)) = (response.code, response.version) else {
        return Err("the head of the response is malformed");
    };
    let mut seen = Seen::default();
    for header in response.headers.iter() {
        seen.note(header.name, header.value).map_err(|refusal| refusal.why)?;
    }
    // These have no body, whatever their fields say of one.
    let is_bodiless = status < 200 || matches!(status, 204 | 304);
    let framing = match (seen.length, seen.is_chunked) {
        _ if is_bodiless => Framing::Length(0),
        (Some(_), true) => return Err("there are both Content-Length and Transfer-Encoding"),
        (None, true) if version == 0 => return Err("HTTP/1.0 has no Transfer-Encoding"),
        (None, true) => Framing::Chunked,
        (Some(length), false) => Framing::Length(length),
        // The body would end with the connection, and a body that is cut off would look the same.
        (None, false) => return Err("the response says neither how long it is nor that it comes in chunks"),
    };
    fields.clear();
    let digits = [status / 100, status / 10 % 10, status % 10].map(|digit| b'0' + digit as u8);
    fields.push(b":status", &digits);
    push_fields(fields, response.headers);
    Ok((!fields.is_over()).then_some(ResponseHead { status, framing, closes: seen.closes || version == 0 }))
}

/// Appends the fields that are not about the connection, with names in lower case.
fn push_fields(fields: &mut Fields, headers: &[httparse::Header<'_>]) {
    let mut name = Vec::new();
    for header in headers {
        name.clear();
        name.extend(header.name.bytes().map(|octet| octet.to_ascii_lowercase()));
        // Fields about the connection are not for the application, and `host` has become the authority.
        if !crate::names::is_of_connection(&name) && !matches!(&name[..], b"host" | b"te" | b"trailer" | b"expect") {
            fields.push(&name, header.value.trim_ascii());
        }
    }
}

/// Whether the first line ends with a version of HTTP that is neither 1.0 nor 1.1.
fn is_other_version(bytes: &[u8]) -> bool {
    let line = bytes.split(|&octet| octet == b'\r').next().unwrap_or_default();
    let last = line.rsplit(|&octet| octet == b' ').next().unwrap_or_default();
    last.starts_with(b"HTTP/") && !last.starts_with(b"HTTP/1.")
}

/// Checks that every line ends with CR and LF, and that neither occurs elsewhere: some readers end a line at one of
/// them.
fn only_whole_line_ends(bytes: &[u8]) -> Result<(), Refusal<'static>> {
    let mut before = 0;
    for &octet in bytes {
        if (octet == b'\n') != (before == b'\r') {
            return Err(bad("a line of the head ends with half of CR LF"));
        }
        if octet == 0 {
            return Err(bad("the head has a zero byte"));
        }
        before = octet;
    }
    Ok(())
}

/// Splits a request's target into its authority, if it names one, and its path.
fn split<'a>(method: &str, target: &'a str) -> Result<(Option<&'a str>, &'a str), Refusal<'static>> {
    if !target.bytes().all(|octet| octet.is_ascii_graphic()) {
        return Err(bad("the target of the request has characters that it may not have"));
    }
    if target.starts_with('/') || (target == "*" && method == "OPTIONS") {
        return Ok((None, target));
    }
    let rest = ["http://", "https://"].into_iter().find_map(|scheme| {
        let (start, rest) = target.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    });
    let rest = rest.ok_or(bad("the target of the request is neither a path nor a URL of HTTP"))?;
    let at = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(at);
    if authority.is_empty() || authority.contains('@') || path.starts_with('?') {
        return Err(bad("the URL of the request is malformed"));
    }
    Ok((Some(authority), if path.is_empty() { "/" } else { path }))
}

/// The values of the fields that are about the connection.
#[derive(Debug, Default)]
struct Seen<'a> {
    hosts: usize,
    host: &'a [u8],
    length: Option<u64>,
    is_chunked: bool,
    closes: bool,
    waits: bool,
}

impl<'a> Seen<'a> {
    fn note(&mut self, name: &str, value: &'a [u8]) -> Result<(), Refusal<'static>> {
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
        if is("host") {
            self.hosts += 1;
            self.host = value.trim_ascii();
        } else if is("content-length") {
            // Refused even if both are equal: a proxy in between may have followed another rule.
            if self.length.is_some() {
                return Err(bad("there is more than one Content-Length"));
            }
            self.length = Some(decimal(value).ok_or(bad("the Content-Length is no number"))?);
        } else if is("transfer-encoding") {
            if self.is_chunked {
                return Err(bad("there is more than one Transfer-Encoding"));
            }
            if !value.eq_ignore_ascii_case(b"chunked") {
                return Err(refusal(501, "the Transfer-Encoding may be chunked and nothing else"));
            }
            self.is_chunked = true;
        } else if is("connection") {
            self.closes |=
                value.split(|&octet| octet == b',').any(|one| one.trim_ascii().eq_ignore_ascii_case(b"close"));
        } else if is("expect") {
            if !value.eq_ignore_ascii_case(b"100-continue") {
                return Err(refusal(417, "what the request expects is not known here"));
            }
            self.waits = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<(Head, Vec<(String, String)>), Refusal<'static>> {
        let mut fields = Fields::new(2000);
        let head = read(text.as_bytes(), false, &mut fields)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((head, fields.iter().map(|(name, value)| (text(name), text(value))).collect()))
    }

    fn status(text: &str) -> u16 {
        head(text).map_or_else(|refusal| refusal.status, |_| 0)
    }

    #[test]
    fn a_head_becomes_the_fields_that_http_2_has() {
        let text = "POST /a.B/C?x=1 HTTP/1.1\r\nHost: here:80\r\nX-One:  1 \r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n";
        let (read, fields) = head(text).expect("good");
        assert_eq!(
            read,
            Head { len: text.len(), framing: Framing::Length(5), is_old: false, closes: false, waits: false }
        );
        let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let all = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/a.B/C?x=1"),
            (":authority", "here:80"),
            ("x-one", "1"),
            ("content-length", "5"),
        ];
        assert_eq!(fields, all);
    }

    #[test]
    fn what_a_client_says_of_body_and_connection_is_heard() {
        let of = |more: &str| head(&format!("POST / HTTP/1.1\r\nHost: x\r\n{more}\r\n")).expect("good").0;
        assert_eq!(of("Transfer-Encoding: Chunked\r\n").framing, Framing::Chunked);
        assert!(of("Connection: foo, Close\r\n").closes);
        assert!(of("Expect: 100-Continue\r\nContent-Length: 1\r\n").waits);
        assert!(!of("Expect: 100-continue\r\n").waits, "there is no body to wait with");
        assert!(head("GET / HTTP/1.0\r\n\r\n").expect("good").0.closes);
        let (_, fields) = head("GET http://there/x HTTP/1.1\r\nHost: here\r\n\r\n").expect("good");
        assert_eq!(fields[2..4], [(":path".into(), "/x".into()), (":authority".into(), "there".into())]);
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        let with = |more: &str| format!("POST / HTTP/1.1\r\nHost: x\r\n{more}\r\n\r\n");
        for bad in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            "Content-Length: 5\r\nContent-Length: 5",
            "Content-Length: 5\r\nContent-Length: 6",
            "Content-Length: 5, 5",
            "Content-Length: +5",
            "Content-Length: -5",
            "Content-Length: 0x5",
            "Content-Length: 5 5",
            "Content-Length:",
            "Content-Length: 99999999999999999999",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Content-Length : 5",
            "X: a\r\n folded",
            "X: a\r\n\tfolded",
            "X: a\n Y: b",
            "X: a\nY: b",
            "X: a\rY: b",
            "X: a\0b",
            "X\0: a",
            "X y: a",
            ": a",
            "X",
            "Host: y",
            "\u{7f}: x",
        ] {
            assert_eq!(status(&with(bad)), 400, "{bad:?}");
        }
        for other in ["Transfer-Encoding: gzip, chunked", "Transfer-Encoding: xchunked", "Transfer-Encoding: identity"]
        {
            assert_eq!(status(&with(other)), 501, "{other:?}");
        }
        assert_eq!(status(&with("Expect: something")), 417);
        for bad in [
            "POST / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST  / HTTP/1.1\r\nHost: x\r\n\r\n",
            "POST /a b HTTP/1.1\r\nHost: x\r\n\r\n",
            "POST x HTTP/1.1\r\nHost: x\r\n\r\n",
            "CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n",
            "POST http://a@b/ HTTP/1.1\r\nHost: x\r\n\r\n",
            "POST http:///x HTTP/1.1\r\nHost: x\r\n\r\n",
            "POST * HTTP/1.1\r\nHost: x\r\n\r\n",
            "POST /\u{e4} HTTP/1.1\r\nHost: x\r\n\r\n",
            "P\u{0}ST / HTTP/1.1\r\nHost: x\r\n\r\n",
            "\r\n\r\n",
        ] {
            assert_eq!(status(bad), 400, "{bad:?}");
        }
        assert_eq!(status("POST / HTTP/1.1\nHost: x\n\n"), 400);
        assert_eq!(status("POST / HTTP/3.0\r\nHost: x\r\n\r\n"), 505);
        assert_eq!(status(&with(&"x: y\r\n".repeat(200))), 431);
        assert_eq!(status(&with(&format!("x: {}", "y".repeat(3000)))), 431);
    }

    #[test]
    fn the_end_of_a_head_is_found_however_it_comes() {
        let bytes = b"GET / HTTP/1.1\r\n\r\nrest";
        for from in 0..bytes.len() {
            let found = end_of(&bytes[..18.min(bytes.len())], from.min(18));
            assert_eq!(found, (from <= 17).then_some(18), "{from}");
        }
        assert_eq!(end_of(&bytes[..17], 0), None);
    }
}
