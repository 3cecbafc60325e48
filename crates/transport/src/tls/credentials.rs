//! Certificates and keys: the certificate that a side of TLS shows, and the authorities that it trusts.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use super::sessions::resumption;
use super::trouble::words;

/// A text with certificates or a key, and its name for messages.
#[derive(Clone)]
pub struct Pem {
    /// The file's name, or the option that gave the text.
    pub name: String,
    /// The text.
    pub text: Vec<u8>,
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text may be a key.
        f.debug_struct("Pem").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Pem {
    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.text).collect();
        match found {
            Ok(found) if !found.is_empty() => Ok(found),
            Ok(_) => Err(format!("{} has no certificate in it; it must be PEM, with BEGIN CERTIFICATE", self.name)),
            Err(_) => Err(format!(
                "{} cannot be read as PEM: it must have whole blocks from BEGIN CERTIFICATE to END CERTIFICATE",
                self.name
            )),
        }
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, String> {
        PrivateKeyDer::from_pem_slice(&self.text)
            .map_err(|_| format!("{} has no private key in it; it must be PEM, without a password", self.name))
    }

    fn roots(&self) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates()? {
            let refuse = |_| format!("{} has a certificate in it that is malformed, or no authority's", self.name);
            roots.add(certificate).map_err(refuse)?;
        }
        Ok(roots)
    }
}

/// The configuration of one side of TLS.
#[derive(Debug, Clone)]
pub struct Credentials {
    pub(crate) client: Option<ClientSide>,
    pub(crate) server: Option<Arc<ServerConfig>>,
}

#[derive(Debug, Clone)]
pub(crate) struct ClientSide {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) server_name: Option<ServerName<'static>>,
}

impl Credentials {
    /// A client that trusts the authorities in `ca`, or those of the system, and shows its `own` certificate if it has
    /// one. The server's certificate must be for `server_name`, or for the host of the URL.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn client(ca: Option<&Pem>, own: Option<(&Pem, &Pem)>, server_name: Option<&str>) -> Result<Self, String> {
        let roots = match ca {
            Some(pem) => pem.roots()?,
            None => system_roots()?,
        };
        let server_name = server_name
            .map(|name| {
                ServerName::try_from(name.to_owned())
                    .map_err(|_| format!("server_name={name:?} is no name of a server"))
            })
            .transpose()?;
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => builder
                .with_client_auth_cert(cert.certificates()?, key.key()?)
                .map_err(|error| unusable(cert, key, &error))?,
        };
        config.resumption = resumption();
        let client = Some(ClientSide { config: Arc::new(config), server_name });
        Ok(Self { client, server: None })
    }

    /// A server with a certificate. With `client_ca`, every client must show a certificate signed by an authority in
    /// it.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn server(cert: &Pem, key: &Pem, client_ca: Option<&Pem>) -> Result<Self, String> {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(pem.roots()?), provider)
                    .build()
                    .map_err(|_| format!("{} has no authority in it that can be used", pem.name))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config =
            builder.with_single_cert(cert.certificates()?, key.key()?).map_err(|error| unusable(cert, key, &error))?;
        // Connections live long: a quicker second handshake is not worth the memory for tickets.
        config.send_tls13_tickets = 0;
        // Nor for sessions of TLS 1.2; and the lock of a store would be inherited by forked children as it was.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self { client: None, server: Some(Arc::new(config)) })
    }
}

fn unusable(cert: &Pem, key: &Pem, error: &rustls::Error) -> String {
    match error {
        rustls::Error::InconsistentKeys(_) => {
            format!("the key {} does not belong to the certificate {}", key.name, cert.name)
        }
        rustls::Error::InvalidCertificate(_) => {
            format!("the certificate {} is malformed, or of a kind that cannot be used", cert.name)
        }
        error => {
            let why = words(error);
            format!("the certificate {} and the key {} cannot be used ({why})", cert.name, key.name)
        }
    }
}

/// The authorities that this machine trusts.
fn system_roots() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    // Certificates that cannot be read or parsed are left out, as in other programs.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err("this machine has no trusted authorities: install its ca-certificates, or give TLS(ca=...)".into());
    }
    Ok(roots)
}

/// The names in a certificate: its subject, and its alternative names.
pub(crate) fn names_in(certificate: &[u8]) -> (String, Vec<String>) {
    let Ok(certificate) = Certificate::from_der(certificate) else {
        return Default::default();
    };
    let certificate = certificate.tbs_certificate;
    let alternatives = certificate.get::<SubjectAltName>().ok().flatten();
    let mut names = Vec::new();
    for name in alternatives.map(|(_, found)| found.0).unwrap_or_default() {
        match name {
            GeneralName::DnsName(name)
            | GeneralName::Rfc822Name(name)
            | GeneralName::UniformResourceIdentifier(name) => names.push(name.to_string()),
            GeneralName::IpAddress(bytes) => {
                if let Ok(bytes) = <[u8; 4]>::try_from(bytes.as_bytes()) {
                    names.push(Ipv4Addr::from(bytes).to_string());
                } else if let Ok(bytes) = <[u8; 16]>::try_from(bytes.as_bytes()) {
                    names.push(Ipv6Addr::from(bytes).to_string());
                }
            }
            _ => {}
        }
    }
    (certificate.subject.to_string(), names)
}
