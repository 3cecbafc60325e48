//! Who this process is to a NATS server.

use std::fmt;

use crate::tls::Credentials;

/// Who this process is to a NATS server, and whom it trusts there. Shown without its secrets.
#[derive(Clone)]
pub struct Login {
    /// By what the server knows this process.
    pub proof: Proof,
    /// For `nats+tls://`: the authorities to trust, and a certificate to show.
    pub tls: Option<Credentials>,
    /// The prefix of the subjects on which answers come, `_INBOX` or one that begins so.
    pub inbox: String,
}

/// By what a NATS server knows who connects.
#[derive(Clone)]
pub enum Proof {
    /// The server asks for nothing.
    Nothing,
    /// A name and a password.
    Password(String, String),
    /// A word that the server knows.
    Token(String),
    /// The seed of a key pair of NATS.
    Nkey(String),
    /// The contents of a file of credentials: a token and a seed.
    Credentials(String),
}

impl Default for Login {
    fn default() -> Self {
        Self { proof: Proof::Nothing, tls: None, inbox: "_INBOX".into() }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("inbox", &self.inbox).finish_non_exhaustive()
    }
}
