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
    #[expect(clippy::needless_pass_by_value, reason = "Python's list is copied as it comes in")]
    #[pyo3(signature = (proof, *, tls, inbox))]
    fn new(py: Python<'_>, proof: Vec<String>, tls: Option<Py<Tls>>, inbox: String) -> PyResult<Self> {
        let proof = match proof.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [] => Proof::Nothing,
            ["password", user, password] => Proof::Password(user.into(), password.into()),
            ["token", token] => Proof::Token(token.into()),
            ["nkey", seed] => Proof::Nkey(seed.into()),
            ["credentials", text] => Proof::Credentials(text.into()),
            _ => return Err(invalid(py, "NATS knows no such proof".into())),
        };
        let tls = tls.map(|tls| tls.get().0.clone());
        Ok(Self(nearcall_core::Login { proof, tls, inbox }))
    }
}
