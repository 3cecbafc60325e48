//! Why TLS failed, in sentences for the user.

use std::fmt;

use nearcall_wire::shown;
use rustls::{AlertDescription as Alert, CertificateError as Bad, Error, PeerIncompatible as Differs};

/// What went wrong and how to fix it, in one line. `first` is the first byte that the peer sent.
pub(crate) fn explain(error: &Error, client: bool, first: Option<u8>) -> String {
    let there = if client { "the server" } else { "the client" };
    match error {
        Error::InvalidCertificate(bad) => certificate(bad, client),
        Error::AlertReceived(alert) => told(*alert, client),
        Error::PeerIncompatible(differs) => nothing_in_common(differs, there),
        Error::NoCertificatesPresented if client => "the server gave no certificate".into(),
        Error::NoCertificatesPresented => {
            "the client gave no certificate, which TLS(client_ca=...) asks for; give it TLS(cert=..., key=...) there"
                .into()
        }
        Error::InvalidMessage(_) if first == Some(nearcall_wire::MAGIC[0]) => {
            "the server there does not encrypt; connect with tcp://, or serve tls:// there".into()
        }
        Error::InvalidMessage(_) if first != Some(22) && client => {
            "the server there does not speak TLS; connect without the 's' of grpcs:// or https://, or serve that there"
                .into()
        }
        Error::InvalidMessage(_) if first != Some(22) => format!("{there} does not speak TLS"),
        Error::DecryptError => format!("TLS failed: what {there} sent was changed or damaged on the way"),
        Error::FailedToGetRandomBytes => "this system gives no random numbers".into(),
        Error::FailedToGetCurrentTime => "this system's clock cannot be read".into(),
        Error::General(why) => format!("TLS failed: {}", shown(why)),
        other => format!("{there} breaks the rules of TLS ({})", words(other)),
    }
}

/// Why a certificate of the peer's is not accepted.
pub(crate) fn certificate(bad: &Bad, client: bool) -> String {
    let their = if client { "the server's" } else { "the client's" };
    match bad {
        Bad::Expired | Bad::ExpiredContext { .. } => {
            format!("{their} certificate has expired; renew it, or set this machine's clock if that is wrong")
        }
        Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
            format!("{their} certificate is not valid yet; is a clock wrong?")
        }
        Bad::NotValidForNameContext { expected, presented } => {
            let names: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
            let names = if names.is_empty() { "no name at all".to_owned() } else { names.join(", ") };
            format!(
                "{their} certificate is not for {} but for {}; connect by such a name, or give one with \
                 TLS(server_name=...)",
                expected.to_str(),
                shown(&names),
            )
        }
        Bad::NotValidForName => format!("{their} certificate is for another name; give that with TLS(server_name=...)"),
        Bad::UnknownIssuer | Bad::BadSignature if client => {
            "the server's certificate is signed by nobody trusted here; give its authority's certificate with TLS(ca=...)"
                .into()
        }
        Bad::UnknownIssuer | Bad::BadSignature => {
            "the client's certificate is signed by nobody in TLS(client_ca=...)".into()
        }
        Bad::Revoked => format!("{their} certificate has been revoked; get a new one"),
        Bad::BadEncoding => format!("{their} certificate is malformed; make a new one"),
        Bad::InvalidPurpose | Bad::InvalidPurposeContext { .. } => {
            let side = if client { "server" } else { "client" };
            format!("{their} certificate is not meant for a {side}; its extended key usage must say {side}Auth")
        }
        Bad::UnhandledCriticalExtension => {
            format!("{their} certificate has a critical extension that is unknown here; make one without it")
        }
        #[expect(deprecated, reason = "an older verifier may still say so")]
        Bad::UnsupportedSignatureAlgorithm
        | Bad::UnsupportedSignatureAlgorithmContext { .. }
        | Bad::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            format!("{their} certificate is signed in a way that is not accepted; use ECDSA, Ed25519, or RSA with SHA-2")
        }
        // The verifier's own error: mostly an authority's certificate that is used as one's own.
        Bad::Other(other) if words(other).contains("ca used as end entity") => format!(
            "{their} certificate is an authority's, and so no server's or client's own; make one that it signs, without \
             CA:TRUE"
        ),
        other => format!("{their} certificate is not accepted ({})", words(other)),
    }
}

/// The bare name in the library's way to write it: `DnsName("localhost")`, `IpAddress(127.0.0.1)`.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    inner.strip_prefix('"').and_then(|inner| inner.strip_suffix('"')).unwrap_or(inner)
}

/// What an alert from the peer means.
fn told(alert: Alert, client: bool) -> String {
    let there = if client { "the server" } else { "the client" };
    match alert {
        Alert::CertificateRequired => {
            "the server wants to see a certificate; give one with TLS(cert=..., key=...)".into()
        }
        Alert::UnknownCA | Alert::DecryptError if client => {
            "the server does not know who signed this client's certificate; its TLS(client_ca=...) must have that authority"
                .into()
        }
        Alert::UnknownCA | Alert::DecryptError => {
            "the client does not know who signed this server's certificate; it needs TLS(ca=...)".into()
        }
        Alert::CertificateExpired => format!("{there} says that the certificate it got has expired; renew it"),
        Alert::CertificateRevoked => format!("{there} says that the certificate it got was revoked; get a new one"),
        Alert::BadCertificate => {
            format!("{there} does not accept the certificate it got; it may be for another name")
        }
        Alert::UnsupportedCertificate | Alert::CertificateUnknown | Alert::AccessDenied => {
            format!("{there} does not accept the certificate it got")
        }
        Alert::HandshakeFailure | Alert::InsufficientSecurity => {
            format!("{there} has no way of encrypting in common with this side")
        }
        Alert::ProtocolVersion => format!("{there} does not speak TLS 1.2 or 1.3"),
        Alert::UnrecognisedName => format!("{there} does not know the name it was called by; see TLS(server_name=...)"),
        Alert::InternalError => format!("{there} has an error of its own"),
        other => format!("{there} ended the encryption ({})", words(other)),
    }
}

fn nothing_in_common(differs: &Differs, there: &str) -> String {
    match differs {
        Differs::ServerDoesNotSupportTls12Or13
        | Differs::ServerTlsVersionIsDisabledByOurConfig
        | Differs::SupportedVersionsExtensionRequired
        | Differs::Tls12NotOffered
        | Differs::Tls12NotOfferedOrEnabled => format!("{there} does not speak TLS 1.2 or 1.3"),
        other => format!("{there} has no way of encrypting in common with this side ({})", words(other)),
    }
}

/// The library's name for something, in lower-case words: those names say what they mean.
pub(crate) fn words(name: impl fmt::Debug) -> String {
    let mut out = String::new();
    let mut after_lower = false;
    for char in format!("{name:?}").chars() {
        if char.is_alphanumeric() {
            if char.is_uppercase() && after_lower {
                out.push(' ');
            }
            after_lower = !char.is_uppercase();
            out.extend(char.to_lowercase());
        } else {
            after_lower = false;
            if !out.ends_with(' ') {
                out.push(' ');
            }
        }
    }
    shown(out.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::{InvalidMessage, PeerMisbehaved};

    #[test]
    fn names_are_shown_bare() {
        let given = [r#"DnsName("example.org")"#, "IpAddress(127.0.0.1)", "example.org"];
        assert_eq!(given.map(bare), ["example.org", "127.0.0.1", "example.org"]);
    }

    #[test]
    fn no_name_of_the_library_is_shown() {
        let errors = [
            Error::InvalidMessage(InvalidMessage::InvalidCcs),
            Error::PeerMisbehaved(PeerMisbehaved::SelectedUnofferedCipherSuite),
            Error::PeerIncompatible(Differs::NoCipherSuitesInCommon),
            Error::AlertReceived(Alert::HandshakeFailure),
            Error::AlertReceived(Alert::Unknown(200)),
            Error::InvalidCertificate(Bad::InvalidPurpose),
            Error::InvalidCertificate(Bad::Revoked),
            Error::InvalidCertificate(Bad::UnknownRevocationStatus),
            Error::InappropriateMessage {
                expect_types: vec![rustls::ContentType::Handshake],
                got_type: rustls::ContentType::Alert,
            },
            Error::PeerSentOversizedRecord,
        ];
        for error in errors {
            for client in [true, false] {
                let text = explain(&error, client, Some(22));
                let names = text.split(|char: char| !char.is_alphanumeric()).any(|word| {
                    word.chars().skip(1).any(char::is_uppercase)
                        && word.chars().any(char::is_lowercase)
                        && !matches!(word, "serverAuth" | "clientAuth")
                });
                assert!(!names && !text.contains(['{', '[', '"']), "{error:?}: {text}");
            }
        }
    }
}
