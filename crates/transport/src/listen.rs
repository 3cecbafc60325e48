//! Where a server listens, and accepts clients.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::options::Options;
use crate::places::acceptor::{Acceptor, Arrived, HandsOver};
use crate::places::place::Bound;
use crate::signal::Signal;
use crate::url::Url;

/// Accepts a server's clients.
#[derive(Debug)]
pub struct Listener {
    url: Url,
    acceptor: Box<dyn Acceptor>,
}

impl Listener {
    /// Listens at `url`.
    ///
    /// # Errors
    /// With a sentence that names the URL: the URL is in use, the options do not allow it (`InvalidInput`), or the
    /// system refuses.
    pub fn bind(url: &Url, options: &Options) -> io::Result<Self> {
        let Bound { acceptor, place } = url.place().bind(options)?;
        Ok(Self { url: Url::of(place), acceptor })
    }

    /// A listener for the same URL in another process. The sockets that `self` [accepts](Listener::accept_socket) come
    /// to it through `channel`, each as a descriptor beside one byte. It counts finished connections in the eventfd
    /// `returned`.
    ///
    /// # Errors
    /// Clients of this URL do not come by sockets.
    pub fn through(&self, channel: OwnedFd, returned: Arc<OwnedFd>) -> io::Result<Self> {
        let acceptor = self.by_sockets()?.through(channel, returned);
        Ok(Self { url: self.url.clone(), acceptor })
    }

    /// The URL that this listens at, with the real port in place of 0.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// What tells of clients.
    #[must_use]
    pub fn signal(&self) -> Signal<'_> {
        self.acceptor.signal()
    }

    /// The next client, if one is there.
    ///
    /// # Errors
    /// The system's error, mostly that there are no descriptors left. [`is_end_of_clients`](crate::is_end_of_clients)
    /// tells whether no more clients will come.
    pub fn accept(&self) -> io::Result<Option<Arrived>> {
        self.acceptor.accept()
    }

    /// The next client's bare socket, if one is there, for another process to serve.
    ///
    /// # Errors
    /// As [`Listener::accept`]; clients of this URL do not come by sockets.
    pub fn accept_socket(&self) -> io::Result<Option<OwnedFd>> {
        self.by_sockets()?.accept_socket()
    }

    /// The descriptor to poll for clients, for another process to serve.
    ///
    /// # Errors
    /// Clients of this URL do not come by sockets.
    pub fn socket_fd(&self) -> io::Result<BorrowedFd<'_>> {
        Ok(self.by_sockets()?.fd())
    }

    fn by_sockets(&self) -> io::Result<&dyn HandsOver> {
        let why = || format!("{} can be served by one process only: its clients come by no sockets", self.url);
        self.acceptor.by_sockets().ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, why()))
    }
}
