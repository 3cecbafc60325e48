//! TLS: certificates and keys, a socket with encryption on top, and sentences that say why TLS failed.

mod credentials;
mod dev_certs;
mod sessions;
mod trouble;
mod wire;

pub use credentials::{Credentials, Pem};
pub use dev_certs::{DevCerts, dev_certs};
pub(crate) use trouble::explain;
pub(crate) use wire::TlsWire;
