//! What a transport is, and the places that its URLs name.

use std::fmt::{Debug, Display};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::acceptor::Acceptor;
use super::opening::Dialled;
use crate::errors::ConnectError;
use crate::link::pace::Pace;
use crate::options::Options;

/// How long an answer of the system's resolver is good: servers come and go.
const FRESH: Duration = Duration::from_secs(30);

/// The place that a URL names, or what is wrong with the URL, for the user.
pub(crate) type Parsed = Result<Arc<dyn Place>, String>;

/// A protocol over a transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    /// nearcall's own.
    Nearcall,
    /// gRPC only.
    Grpc,
    /// HTTP, by which Connect, gRPC-Web and gRPC call.
    Http,
}

impl Speaks {
    /// Its name in lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nearcall => "nearcall",
            Self::Grpc => "grpc",
            Self::Http => "http",
        }
    }
}

/// A way to reach a server.
#[derive(Debug)]
pub struct Transport {
    /// The form of its URLs, such as `shm://name`. It ends in `host:port` or `/path` if such is what they name.
    pub form: &'static str,
    /// What is spoken there.
    pub speaks: Speaks,
    /// Whether everything there is encrypted.
    pub encrypts: bool,
    /// Reads a URL, given as its scheme and what follows `scheme://`.
    pub(crate) parse: fn(scheme: &'static str, rest: &str) -> Parsed,
}

impl Transport {
    /// One of nearcall's own, without encryption.
    pub(crate) const fn new(form: &'static str, parse: fn(&'static str, &str) -> Parsed) -> Self {
        Self { form, speaks: Speaks::Nearcall, encrypts: false, parse }
    }

    /// The same, where this is spoken.
    pub(crate) const fn speaking(self, speaks: Speaks) -> Self {
        Self { speaks, ..self }
    }

    /// The same, with encryption.
    pub(crate) const fn encrypted(self) -> Self {
        Self { encrypts: true, ..self }
    }

    /// The part of the URL before the colon.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        self.form.split(':').next().unwrap_or_default()
    }
}

/// Where a server is. Displayed as its URL.
pub trait Place: Debug + Display + Send + Sync {
    /// Reaches the server there. The error is a sentence that names the URL.
    fn dial<'a>(&'a self, options: &'a Options, pace: &'a Pace) -> Dialling<'a>;

    /// The servers at this place, in the order in which to try them: a name may have several addresses, and a URL may
    /// list several hosts. Empty if the place itself is a server that can be dialled.
    fn servers<'a>(&'a self, _options: &'a Options, _each: Each, _pace: &'a Pace) -> Finding<'a> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// How long what [`Place::servers`] said is good for a client that calls all of them. The next call after that asks again.
    fn fresh(&self) -> Duration {
        FRESH
    }

    /// Tells this place from those of other servers. A name with several addresses is displayed alike for each of them.
    fn key(&self) -> String {
        self.to_string()
    }

    /// Listens there.
    ///
    /// # Errors
    /// With a sentence that names the URL: the URL is in use, the options do not allow it (`InvalidInput`), or the
    /// system refuses.
    fn bind(&self, options: &Options) -> io::Result<Bound>;

    /// What to expect of this place while no server is there.
    fn reconnect(&self) -> Reconnect;
}

/// What to expect of a place without a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reconnect {
    /// A server may come, and can be looked for at the cost of one system call.
    Cheap,
    /// A server may come, but looking for it costs the network and others something.
    Costly,
    /// No server will come: there was one connection only.
    Never,
}

/// What [`Place::servers`] counts as one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Each {
    /// Each address to connect to; behind a proxy, each address of the proxy.
    Address,
    /// Each address of a server; behind a proxy, which looks names up itself, each host.
    Server,
}

/// One of several servers.
#[derive(Debug)]
pub struct Found {
    /// Where it is.
    pub place: Arc<dyn Place>,
    /// The index of its host in the URL.
    pub host: usize,
}

/// A search for servers under way.
pub type Finding<'a> = Pin<Box<dyn Future<Output = Result<Vec<Found>, ConnectError>> + Send + 'a>>;

/// A dial under way.
pub type Dialling<'a> = Pin<Box<dyn Future<Output = Result<Box<dyn Dialled>, ConnectError>> + Send + 'a>>;

/// A listener at a place.
#[derive(Debug)]
pub struct Bound {
    /// Accepts the clients.
    pub acceptor: Box<dyn Acceptor>,
    /// The real place: the system may have chosen the port.
    pub place: Arc<dyn Place>,
}
