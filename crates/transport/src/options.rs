//! What the user may choose about a connection.

use std::sync::Arc;
use std::time::Duration;

use nearcall_http::{Codec, Encoding, Origins};
use nearcall_ring::SpinPolicy;

use crate::budget::{Account, Budget};
use crate::paths::Paths;
use crate::peer::Admission;
use crate::proxy::Proxy;
use crate::tls::Credentials;

/// What the user may choose about a connection.
#[derive(Debug, Clone)]
pub struct Options {
    /// How to wait.
    pub spin: SpinPolicy,
    /// Size of each ring on shared memory, bytes, a power of two. The client's choice counts.
    pub ring_size: usize,
    /// Longest message this side is willing to receive, bytes.
    pub max_message: u64,
    /// How long connecting and shaking hands may take.
    pub handshake: Duration,
    /// Whether `tcp://` may be used beyond this machine, where others can read along and pretend to be the peer.
    pub allow_plaintext: bool,
    /// What `tls://` needs.
    pub tls: Option<Credentials>,
    /// What all connections together may keep, if that is limited.
    pub budget: Option<Arc<Budget>>,
    /// Whom a `unix://` server lets in besides its own user; whose servers a client uses.
    pub admission: Admission,
    /// The methods that clients may call by their paths, over HTTP.
    pub paths: Arc<Paths>,
    /// How clients ask for calls at `http://`, where they speak Connect.
    pub codec: Codec,
    /// Whether they ask by GET for what changes nothing.
    pub by_get: bool,
    /// How messages are compressed over HTTP, if they are.
    pub compression: Option<Encoding>,
    /// Where the web pages are from that may call.
    pub origins: Arc<Origins>,
    /// The proxy that a client connects through, if there is one.
    pub proxy: Option<Arc<Proxy>>,
}

impl Options {
    /// The account of a new connection.
    pub(crate) fn account(&self) -> Arc<Account> {
        let budget = self.budget.clone().unwrap_or_else(|| Budget::new(usize::MAX));
        Account::of(&budget, self.max_message)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            spin: SpinPolicy::Auto,
            ring_size: 1 << 18,
            max_message: 64 << 20,
            handshake: Duration::from_secs(5),
            allow_plaintext: false,
            tls: None,
            budget: None,
            admission: Admission::default(),
            paths: Arc::default(),
            codec: Codec::Proto,
            by_get: false,
            compression: None,
            origins: Arc::default(),
            proxy: None,
        }
    }
}
