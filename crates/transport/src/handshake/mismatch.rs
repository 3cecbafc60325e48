//! Recognizes a server's protocol by its first bytes, when it is not the one that the client expected.

use nearcall_wire::MAGIC;

/// How many bytes are enough to recognize a protocol.
pub(super) const TELLING: usize = 4;

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

/// What is wrong with `url` for a client that speaks nearcall's own protocol, and which URL to use. `None` if these bytes show
/// nothing wrong.
pub(super) fn instead_of_native(url: &str, first: [u8; TELLING]) -> Option<String> {
    match first {
        // The first frame of an HTTP/2 server is SETTINGS: three bytes of length, and the frame type.
        [0, 0, _, 4] => Some(use_other(url, "the server there speaks HTTP/2, as gRPC's servers do", &COUNTERPARTS)),
        _ => encrypted(url, first),
    }
}

/// The same for a client that speaks HTTP. `needs_http2`: only HTTP/2.
pub(super) fn instead_of_http(url: &str, needs_http2: bool, first: [u8; TELLING]) -> Option<String> {
    if first == MAGIC {
        return Some(use_other(url, "the server there speaks nearcall's own protocol", &COUNTERPARTS));
    }
    let other = encrypted(url, first);
    if other.is_some() || !needs_http2 || begins_http2(first) {
        return other;
    }
    let speaks_http1 = first == *b"HTTP";
    let what =
        if speaks_http1 { "speaks HTTP/1, and gRPC needs HTTP/2" } else { "does not speak HTTP/2, which gRPC needs" };
    Some(use_other(url, &format!("the server there {what}"), &[]))
}

/// What is wrong if the server begins with the head of a TLS record: an alert or a handshake, and the version.
fn encrypted(url: &str, first: [u8; TELLING]) -> Option<String> {
    matches!(first, [21 | 22, 3, ..]).then(|| use_other(url, "the server there speaks TLS", &ENCRYPTED))
}

fn use_other(url: &str, what: &str, schemes: &[(&str, &str)]) -> String {
    match other_url(url, schemes) {
        Some(other) => format!("cannot use {url}: {what}; connect with {other}"),
        None => format!("cannot use {url}: {what}"),
    }
}

/// Whether an HTTP/2 server may begin like this: with the head of SETTINGS or GOAWAY.
pub(super) fn begins_http2(first: [u8; TELLING]) -> bool {
    matches!(first, [.., 4 | 7])
}

/// What may be wrong with `url` when a client speaks nearcall's own protocol and the server hangs up without a byte, as
/// some gRPC servers do. Empty if there is nothing to say.
pub(super) fn silent(url: &str) -> String {
    let other = other_url(url, &COUNTERPARTS);
    other
        .map_or(String::new(), |other| format!(" without a word; if a gRPC server listens there, connect with {other}"))
}

/// The same place with another scheme.
fn other_url(url: &str, schemes: &[(&str, &str)]) -> Option<String> {
    let (scheme, place) = url.split_once("://")?;
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

    #[derive(Clone, Copy)]
    enum Ours {
        Native,
        Grpc,
        Http,
    }

    fn said(url: &str, ours: Ours, first: [u8; TELLING]) -> Option<String> {
        match ours {
            Ours::Native => instead_of_native(url, first),
            Ours::Grpc => instead_of_http(url, true, first),
            Ours::Http => instead_of_http(url, false, first),
        }
    }

    #[test]
    fn the_url_to_use_is_named() {
        for (url, ours, first, other) in [
            ("grpc://127.0.0.1:7001", Ours::Grpc, MAGIC, "tcp://127.0.0.1:7001"),
            ("grpcs://localhost:7001", Ours::Grpc, MAGIC, "tls://localhost:7001"),
            ("grpc+unix:///run/calc", Ours::Grpc, MAGIC, "unix:///run/calc"),
            ("tcp://127.0.0.1:7001", Ours::Native, [0, 0, 18, 4], "grpc://127.0.0.1:7001"),
            ("unix:///run/calc", Ours::Native, [0, 0, 0, 4], "grpc+unix:///run/calc"),
            ("http://127.0.0.1:7001", Ours::Http, MAGIC, "tcp://127.0.0.1:7001"),
            ("http+unix:///run/calc", Ours::Http, MAGIC, "unix:///run/calc"),
            ("http://127.0.0.1:7001", Ours::Http, [21, 3, 3, 0], "https://127.0.0.1:7001"),
            ("tcp://127.0.0.1:7001", Ours::Native, [21, 3, 3, 0], "tls://127.0.0.1:7001"),
            ("grpc://127.0.0.1:7001", Ours::Grpc, [21, 3, 3, 0], "grpcs://127.0.0.1:7001"),
        ] {
            let said = said(url, ours, first).expect("it is known");
            assert!(said.ends_with(&format!("; connect with {other}")), "{said}");
        }
    }

    #[test]
    fn who_says_nothing_may_speak_grpc() {
        assert!(silent("tcp://127.0.0.1:7001").ends_with("connect with grpc://127.0.0.1:7001"));
        assert_eq!(silent("shm://calc"), "");
    }

    #[test]
    fn what_is_expected_or_unknown_is_nothing_to_say() {
        for (ours, first) in [(Ours::Native, MAGIC), (Ours::Grpc, [0, 0, 18, 4]), (Ours::Native, *b"SSH-")] {
            assert_eq!(said("tcp://127.0.0.1:1", ours, first), None);
        }
        let plain = said("grpc://127.0.0.1:1", Ours::Grpc, *b"HTTP").expect("it is known");
        assert!(plain.ends_with("needs HTTP/2"), "{plain}");
    }
}
