//! Who this process is to NATS servers, as Python says it.

use nearcall_core::Proof;
use pyo3::prelude::*;

use crate::gil::errors::invalid;
use crate::options::tls::Tls;

/// Who this process is to the servers of `nats://`.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct Login(pub(crate) nearcall_core::Login);

#[pymethods]
impl Login {
    /// `proof` is the name of one kind, with its values, or nothing.
    #[new]
    #[pyo3(signature = (proof, *, tls, inbox))]
    fn new(py: Python<'_>, proof: Vec<String>, tls: Option<Py<Tls>>, inbox: String) -> PyResult<Self> {
        let proof = match <[String; 3]>::try_from(proof) {
            Ok([_, user, password]) => Proof::Password(user, password),
            Err(proof) => match <[String; 2]>::try_from(proof) {
                Ok([kind, token]) if kind == "token" => Proof::Token(token),
                Ok([kind, seed]) if kind == "nkey" => Proof::Nkey(seed),
                Ok([kind, text]) if kind == "credentials" => Proof::Credentials(text),
                Err(proof) if proof.is_empty() => Proof::Nothing,
                _ => return Err(invalid(py, "NATS knows no such proof".into())),
            },
        };
        let tls = tls.map(|tls| tls.get().0.clone());
        Ok(Self(nearcall_core::Login { proof, tls, inbox }))
    }
}
