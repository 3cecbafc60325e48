//! What accepts a server's clients.

use std::fmt::Debug;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::clients::ConnectionPermit;
use super::opening::Accepted;
use crate::signal::Signal;

/// A client that was accepted.
#[derive(Debug)]
pub struct Arrived {
    /// Becomes a link.
    pub opening: Box<dyn Accepted>,
    /// The client's permit, if another process handed it over. To be kept as long as the connection.
    pub permit: Option<Arc<ConnectionPermit>>,
}

/// Accepts a server's clients.
pub trait Acceptor: Debug + Send + Sync {
    /// What tells of clients.
    fn signal(&self) -> Signal<'_>;

    /// The next client, if one is there.
    ///
    /// # Errors
    /// The system's error, mostly that there are no descriptors left. [`is_end_of_clients`](crate::is_end_of_clients)
    /// tells whether no more clients will come.
    fn accept(&self) -> io::Result<Option<Arrived>>;

    /// The same for another process, if clients come by sockets.
    fn by_sockets(&self) -> Option<&dyn HandsOver> {
        None
    }
}

/// What another process needs that is to accept the clients, or to serve some of them.
pub trait HandsOver {
    /// The descriptor to poll for clients.
    fn fd(&self) -> BorrowedFd<'_>;

    /// The next client's bare socket, if one is there.
    ///
    /// # Errors
    /// As [`Acceptor::accept`].
    fn accept_socket(&self) -> io::Result<Option<OwnedFd>>;

    /// Accepts the sockets that come through `channel`, each as a descriptor beside one byte, as if they were its own. It counts
    /// finished connections in the eventfd `returned`.
    fn through(&self, channel: OwnedFd, returned: Arc<OwnedFd>) -> Box<dyn Acceptor>;
}
