//! Recognizes a server's protocol by its first bytes, when it is not the one that the client expected.

use nearcall_wire::MAGIC;

use crate::transports::Speaks;
use crate::url::Url;

/// How many bytes are enough to recognize a protocol.
pub(crate) const TELLING: usize = 4;

/// Schemes for the same place: nearcall's own protocol, and gRPC or Connect.
const COUNTERPARTS: [(&str, &str); 6] = [
    ("tcp", "grpc"),
    ("tls", "grpcs"),
    ("unix", "grpc+unix"),
    ("tcp", "http"),
    ("tls", "https"),
    ("unix", "http+unix"),
];
/// Schemes for the same protocol: without encryption, and with it.
const ENCRYPTED: [(&str, &str); 3] = [("tcp", "tls"), ("grpc", "grpcs"), ("http", "https")];

/// What is wrong with `url` for a client that speaks `ours`, and which URL to use. `None` if these bytes show nothing
/// wrong.
pub(crate) fn other_protocol(url: &Url, ours: Speaks, first: [u8; TELLING]) -> Option<String> {
    let (what, schemes) = match (first, ours) {
        (MAGIC, Speaks::Grpc | Speaks::Http) => ("the server there speaks nearcall's own protocol", &COUNTERPARTS[..]),
        // The first frame of an HTTP/2 server is SETTINGS: three bytes of length, and the frame type.
        ([0, 0, _, 4], Speaks::Nearcall) => ("the server there speaks HTTP/2, as gRPC's servers do", &COUNTERPARTS[..]),
        (first, Speaks::Grpc) if first == *b"HTTP" => {
            ("the server there speaks HTTP/1, and gRPC needs HTTP/2", &[][..])
        }
        // The head of a TLS record: an alert or a handshake, and the version.
        ([21 | 22, 3, ..], _) => ("the server there speaks TLS", &ENCRYPTED[..]),
        (first, Speaks::Grpc) if !begins_http2(first) => {
            ("the server there does not speak HTTP/2, which gRPC needs", &[][..])
        }
        _ => return None,
    };
    Some(match other_url(url, schemes) {
        Some(other) => format!("cannot use {url}: {what}; connect with {other}"),
        None => format!("cannot use {url}: {what}"),
    })
}

/// Whether an HTTP/2 server may begin like this: with the head of SETTINGS or GOAWAY.
pub(crate) fn begins_http2(first: [u8; TELLING]) -> bool {
    matches!(first, [.., 4 | 7])
}

/// What may be wrong with `url` when a client speaks nearcall's own protocol and the server hangs up without a byte, as
/// some gRPC servers do. Empty if there is nothing to say.
pub(crate) fn silent(url: &Url) -> String {
    let other = other_url(url, &COUNTERPARTS);
    other
        .map_or(String::new(), |other| format!(" without a word; if a gRPC server listens there, connect with {other}"))
}

/// The same place with another scheme.
fn other_url(url: &Url, schemes: &[(&str, &str)]) -> Option<String> {
    let shown = url.to_string();
    let (scheme, place) = shown.split_once("://")?;
    let other = schemes.iter().find_map(|&(one, other)| match scheme {
        _ if scheme == one => Some(other),
        _ if scheme == other => Some(one),
        _ => None,
    })?;
    Some(format!("{other}://{place}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(url: &str, ours: Speaks, first: [u8; TELLING]) -> Option<String> {
        other_protocol(&url.parse().expect("a URL"), ours, first)
    }

    #[test]
    fn the_url_to_use_is_named() {
        for (url, ours, first, other) in [
            ("grpc://127.0.0.1:7001", Speaks::Grpc, MAGIC, "tcp://127.0.0.1:7001"),
            ("grpcs://localhost:7001", Speaks::Grpc, MAGIC, "tls://localhost:7001"),
            ("grpc+unix:///run/calc", Speaks::Grpc, MAGIC, "unix:///run/calc"),
            ("tcp://127.0.0.1:7001", Speaks::Nearcall, [0, 0, 18, 4], "grpc://127.0.0.1:7001"),
            ("unix:///run/calc", Speaks::Nearcall, [0, 0, 0, 4], "grpc+unix:///run/calc"),
            ("http://127.0.0.1:7001", Speaks::Http, MAGIC, "tcp://127.0.0.1:7001"),
            ("http+unix:///run/calc", Speaks::Http, MAGIC, "unix:///run/calc"),
            ("http://127.0.0.1:7001", Speaks::Http, [21, 3, 3, 0], "https://127.0.0.1:7001"),
            ("tcp://127.0.0.1:7001", Speaks::Nearcall, [21, 3, 3, 0], "tls://127.0.0.1:7001"),
            ("grpc://127.0.0.1:7001", Speaks::Grpc, [21, 3, 3, 0], "grpcs://127.0.0.1:7001"),
        ] {
            let said = said(url, ours, first).expect("it is known");
            assert!(said.ends_with(&format!("; connect with {other}")), "{said}");
        }
    }

    #[test]
    fn who_says_nothing_may_speak_grpc() {
        let url = |text: &str| text.parse::<Url>().expect("a URL");
        assert!(silent(&url("tcp://127.0.0.1:7001")).ends_with("connect with grpc://127.0.0.1:7001"));
        assert_eq!(silent(&url("shm://calc")), "");
    }

    #[test]
    fn what_is_expected_or_unknown_is_nothing_to_say() {
        for (ours, first) in [(Speaks::Nearcall, MAGIC), (Speaks::Grpc, [0, 0, 18, 4]), (Speaks::Nearcall, *b"SSH-")] {
            assert_eq!(said("tcp://127.0.0.1:1", ours, first), None);
        }
        let plain = said("grpc://127.0.0.1:1", Speaks::Grpc, *b"HTTP").expect("it is known");
        assert!(plain.ends_with("needs HTTP/2"), "{plain}");
    }
}
