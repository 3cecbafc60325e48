//! What servers and clients are told before there is a call: options, certificates, URLs, the sandbox.

pub(crate) mod common;
pub(crate) mod listeners;
pub(crate) mod login;
pub(crate) mod named;
pub(crate) mod peer;
pub(crate) mod resolver;
pub(crate) mod sandbox;
pub(crate) mod tls;
