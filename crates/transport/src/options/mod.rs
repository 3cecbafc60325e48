//! The options of a connection that the user may choose.

pub(crate) mod login;
pub(crate) mod passed;
pub(crate) mod proxy;

use std::sync::Arc;
use std::time::Duration;

use nearcall_http::{Codec, Encoding, Origins};
use nearcall_ring::SpinPolicy;

use crate::frame::paths::Paths;
use crate::limits::budget::{Account, Budget};
use crate::link::HEAD_ROOM;
use crate::peer::Admission;
use crate::tls::Credentials;
use login::Login;
use passed::PassedSockets;
use proxy::Proxy;

/// The options of a connection that the user may choose.
#[derive(Debug, Clone)]
pub struct Options {
    /// How to wait.
    pub spin: SpinPolicy,
    /// Size of each ring in shared memory, in bytes, a power of two. The client's choice counts.
    pub ring_size: usize,
    /// The longest message that this side accepts, in bytes.
    pub max_message: u64,
    /// How long connecting and shaking hands may take.
    pub handshake: Duration,
    /// Whether `tcp://` may be used beyond this machine, where others can read along and pretend to be the peer.
    pub allow_plaintext: bool,
    /// Certificates and keys for `tls://`.
    pub tls: Option<Credentials>,
    /// Who this process is to the NATS servers of `nats://`.
    pub nats: Option<Login>,
    /// The limit on the memory of all connections together, if there is one.
    pub budget: Option<Arc<Budget>>,
    /// Users and groups that a `unix://` server admits besides its own user, or whose servers a client uses.
    pub admission: Admission,
    /// The methods that clients may call by their paths, over HTTP.
    pub paths: Arc<Paths>,
    /// The codec of clients' calls at `http://`, which use Connect.
    pub codec: Codec,
    /// Whether clients call methods that change nothing by GET.
    pub by_get: bool,
    /// How messages are compressed over HTTP, if at all.
    pub compression: Option<Encoding>,
    /// The origins of web pages that may call.
    pub origins: Arc<Origins>,
    /// The proxy that a client connects through, if there is one.
    pub proxy: Option<Arc<Proxy>>,
    /// Sockets that a server uses in place of new ones.
    pub passed: PassedSockets,
}

impl Options {
    /// The account of a new connection. One call always fits, whose messages are the longest both in and out.
    pub(crate) fn account(&self) -> Arc<Account> {
        self.account_beside(0)
    }

    /// The same where the connection itself takes so many bytes.
    pub(crate) fn account_beside(&self, bytes: usize) -> Arc<Account> {
        let budget = self.budget.clone().unwrap_or_else(|| Budget::new(usize::MAX));
        Account::of(&budget, self.of_one_call().saturating_add(bytes))
    }

    /// Whether a connection may itself take so many bytes: now, and so that one call still fits beside them.
    pub(crate) fn allows_beside(&self, bytes: usize) -> bool {
        let Some(budget) = &self.budget else { return true };
        let all = self.of_one_call().saturating_add(bytes);
        bytes == 0 || (all <= budget.limit() && self.account_beside(bytes).allows(bytes))
    }

    /// Bytes that the longest message in and the longest one out take together, each with its head and metadata.
    fn of_one_call(&self) -> usize {
        let one = self.max_message.saturating_add(HEAD_ROOM);
        usize::try_from(one).unwrap_or(usize::MAX).saturating_mul(2)
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
            nats: None,
            budget: None,
            admission: Admission::default(),
            paths: Arc::default(),
            codec: Codec::Proto,
            by_get: false,
            compression: None,
            origins: Arc::default(),
            proxy: None,
            passed: PassedSockets::default(),
        }
    }
}
