//! Certificates for trying TLS out, signed by an authority that exists only for them.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::ServerName;

/// Certificates and keys as PEM texts.
#[derive(Debug, Clone)]
pub struct DevCerts {
    /// The authority's certificate. Its key is thrown away, so it cannot sign anything more.
    pub ca: String,
    /// The server's certificate and key.
    pub server: (String, String),
    /// The client's certificate and key.
    pub client: (String, String),
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Makes an authority, and a certificate for a server and for a client. The server's is for `names`: host names and
/// addresses. The certificates expire in `days` days, or have expired if `days` is negative.
///
/// # Errors
/// A sentence for the user: a name cannot be in a certificate.
pub fn dev_certs(names: &[String], days: i32) -> Result<DevCerts, String> {
    for name in names {
        if ServerName::try_from(name.strip_prefix("*.").unwrap_or(name)).is_err() {
            return Err(format!("{name:?} is neither a host name nor an address: no client could ask for it"));
        }
    }
    let failed = |error: rcgen::Error| format!("cannot make certificates: {error}");
    let now = SystemTime::now();
    let span = DAY * days.unsigned_abs();
    let end = if days < 0 { now - span } else { now + span };
    // The clock of the other side may be behind.
    let begin = end.min(now) - DAY;
    let prepare = |name: &str, names: &[String]| {
        let mut params = CertificateParams::new(names.to_vec())
            .map_err(|error| format!("{} cannot all be names in a certificate: {error}", names.join(", ")))?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = begin.into();
        params.not_after = end.into();
        Ok::<_, String>(params)
    };
    let mut ca = prepare("nearcall development authority", &[])?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let ca_key = KeyPair::generate().map_err(failed)?;
    let ca_pem = ca.self_signed(&ca_key).map_err(failed)?.pem();
    let issuer = Issuer::new(ca, ca_key);
    let sign = |name: &str, names: &[String], usage| {
        let mut params = prepare(name, names)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(failed)?;
        let pem = params.signed_by(&key, &issuer).map_err(failed)?.pem();
        Ok::<_, String>((pem, key.serialize_pem()))
    };
    Ok(DevCerts {
        ca: ca_pem,
        server: sign("nearcall development server", names, ExtendedKeyUsagePurpose::ServerAuth)?,
        client: sign("nearcall development client", &["client".to_owned()], ExtendedKeyUsagePurpose::ClientAuth)?,
    })
}
