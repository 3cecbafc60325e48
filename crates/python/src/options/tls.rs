//! Certificates and keys, as Python gives them.

use nearcall_core::{Credentials, Pem};
use pyo3::prelude::*;

use crate::gil::errors::invalid;

/// The credentials that one side of `tls://` needs, read and checked.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct Tls(pub(crate) Credentials);

/// The name of a text in error messages, and the text.
type Named = (String, Vec<u8>);

fn pem((name, text): Named) -> Pem {
    Pem { name, text }
}

#[pymethods]
impl Tls {
    /// Credentials of a client. Without `ca` the system's authorities are trusted.
    #[staticmethod]
    #[pyo3(signature = (*, ca, cert, key, server_name))]
    fn client(
        py: Python<'_>,
        ca: Option<Named>,
        cert: Option<Named>,
        key: Option<Named>,
        server_name: Option<&str>,
    ) -> PyResult<Self> {
        let (ca, own) = (ca.map(pem), cert.map(pem).zip(key.map(pem)));
        let own = own.as_ref().map(|(cert, key)| (cert, key));
        Credentials::client(ca.as_ref(), own, server_name).map(Self).map_err(|why| invalid(py, why))
    }

    /// Credentials of a server. With `client_ca` every client must show a certificate.
    #[staticmethod]
    #[pyo3(signature = (*, cert, key, client_ca))]
    fn server(py: Python<'_>, cert: Named, key: Named, client_ca: Option<Named>) -> PyResult<Self> {
        let client_ca = client_ca.map(pem);
        Credentials::server(&pem(cert), &pem(key), client_ca.as_ref()).map(Self).map_err(|why| invalid(py, why))
    }
}

/// Certificates for trying TLS out: the authority's, the server's and its key, the client's and its key.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "the binding makes it of a list")]
pub(crate) fn dev_certs(
    py: Python<'_>,
    names: Vec<String>,
    days: i32,
) -> PyResult<(String, String, String, String, String)> {
    let made = nearcall_core::dev_certs(&names, days).map_err(|why| invalid(py, why))?;
    Ok((made.ca, made.server.0, made.server.1, made.client.0, made.client.1))
}
