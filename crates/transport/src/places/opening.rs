//! Openings: what dialling and accepting give. An opening becomes a link once both sides have greeted each other.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use nearcall_wire::{Limits, Welcome};

use crate::errors::ConnectError;
use crate::link::Link;
use crate::link::pace::Pace;
use crate::options::Options;
use crate::peer::Peer;
use crate::signal::Signal;

/// A new connection, and what the server said of itself.
#[derive(Debug)]
pub struct Connected {
    /// The connection.
    pub link: Arc<dyn Link>,
    /// The server's welcome.
    pub welcome: Welcome,
}

impl Connected {
    /// A connection to a server that does not describe itself.
    #[must_use]
    pub fn undescribed(link: Arc<dyn Link>, version: &str) -> Self {
        let (version, limits) = (version.to_owned(), Limits { max_message: u64::MAX });
        Self { link, welcome: Welcome { version, limits, description: String::new(), memory: false, buffers: 0 } }
    }
}

/// What a client brings to its greeting.
#[derive(Debug, Clone, Copy)]
pub struct Greeting<'a> {
    /// The server's URL, for messages.
    pub url: &'a str,
    /// The version of this library.
    pub version: &'a str,
    /// The client's options.
    pub options: &'a Options,
    /// How long the greeting may take.
    pub pace: &'a Pace,
}

/// A greeting under way.
pub type Greeted<'a> = Pin<Box<dyn Future<Output = Result<Connected, ConnectError>> + Send + 'a>>;

/// A server that was reached.
pub trait Dialled: Debug + Send {
    /// Greets the server. The error is a sentence that names the URL.
    fn greet(self: Box<Self>, greeting: Greeting<'_>) -> Greeted<'_>;
}

/// What an opening at a server waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Awaits {
    /// More from the client.
    pub arrivals: bool,
    /// Room to send.
    pub room: bool,
}

/// A client that has connected. Nothing here blocks, so a slow client holds up no other.
pub trait Accepted: Debug + Send {
    /// What tells of what it [waits for](Accepted::awaits).
    fn signal(&self) -> Signal<'_>;

    /// What it waits for. Not for arrivals once the client was answered, and is to send nothing until it has read that.
    fn awaits(&self) -> Awaits;

    /// The client.
    fn peer(&self) -> &Peer;

    /// Continues as far as that is possible now. Whether the greeting is [complete](Accepted::into_link).
    ///
    /// # Errors
    /// A sentence to [reject](Accepted::reject) the client with, or `None` if it hung up.
    fn advance(&mut self, welcome: &Welcome, options: &Options) -> Result<bool, Option<String>>;

    /// The connection to a client whose greeting is complete; `None` if it is not complete.
    fn into_link(self: Box<Self>, options: &Options) -> Option<Arc<dyn Link>>;

    /// Rejects the client with a sentence. `is_late`: because its time is over.
    fn reject(self: Box<Self>, why: &str, is_late: bool);
}
