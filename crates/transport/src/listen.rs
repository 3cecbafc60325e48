//! Where a server listens, and accepts clients.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nearcall_platform::sys::own_uid;
use rustls::ServerConfig;

use crate::handshake::{Accepted, Handshake};
use crate::options::Options;
use crate::peer::{Admission, Peer};
use crate::transports::{Bound, Clients, ConnectionPermit, Handed, SharedMemory, Speaks};
use crate::url::Url;

/// Accepts a server's clients.
#[derive(Debug)]
pub struct Listener {
    url: Url,
    /// The same as text, for each of its clients.
    shown: Arc<str>,
    clients: Box<dyn Clients>,
    memory: SharedMemory,
    tls: Option<Arc<ServerConfig>>,
    admission: Admission,
    speaks: Speaks,
}

impl Listener {
    /// Listens at `url`.
    ///
    /// # Errors
    /// With a sentence that names the URL: the URL is in use, the options do not allow it (`InvalidInput`), or the
    /// system refuses.
    pub fn bind(url: &Url, options: &Options) -> io::Result<Self> {
        let Bound { clients, place, memory, tls, admission, speaks } = url.place().bind(options)?;
        let url = Url::of(place);
        Ok(Self { shown: url.to_string().into(), url, clients, memory, tls, admission, speaks })
    }

    /// A listener for the same URL in another process. The sockets that `self` [accepts](Listener::accept_socket) come
    /// to it through `channel`, each as a descriptor beside one byte. It counts finished connections in the eventfd
    /// `returned`.
    #[must_use]
    pub fn through(&self, channel: OwnedFd, returned: Arc<OwnedFd>) -> Self {
        Self {
            url: self.url.clone(),
            shown: Arc::clone(&self.shown),
            clients: Box::new(Handed { channel, returned }),
            memory: self.memory,
            tls: self.tls.clone(),
            admission: self.admission.clone(),
            speaks: self.speaks,
        }
    }

    /// The URL that this listens at, with the real port in place of 0.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The descriptor to poll for reading.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.clients.fd()
    }

    /// The message for a client that may not connect.
    fn refusal(&self, peer: &Peer) -> String {
        let Peer::Local { uid, .. } = peer else { return "you may not connect".into() };
        if self.admission.is_closed() {
            return format!("this server serves user {} only, you are user {uid}", own_uid());
        }
        format!("you are user {uid}, whom neither allow_users nor allow_groups of this server name")
    }

    /// The next client, if one is there.
    ///
    /// # Errors
    /// The system's error, mostly that there are no descriptors left. [`is_end_of_clients`](crate::is_end_of_clients)
    /// tells whether no more clients will come.
    pub fn accept(&self) -> io::Result<Option<Handshake>> {
        let Some((socket, permit)) = self.next_socket()? else { return Ok(None) };
        let peer = self.memory.peer_of(socket.as_fd());
        let stranger = (!self.admission.admits(&peer, socket.as_fd())).then(|| self.refusal(&peer));
        let url = Arc::clone(&self.shown);
        let accepted = Accepted { socket, url, permit, peer, stranger, memory: self.memory, speaks: self.speaks };
        Handshake::begin(accepted, self.tls.as_ref()).map(Some)
    }

    /// The next client's bare socket, if one is there, for another process to serve.
    ///
    /// # Errors
    /// As [`Listener::accept`].
    pub fn accept_socket(&self) -> io::Result<Option<OwnedFd>> {
        Ok(self.next_socket()?.map(|(socket, _)| socket))
    }

    fn next_socket(&self) -> io::Result<Option<(OwnedFd, Option<Arc<ConnectionPermit>>)>> {
        loop {
            match self.clients.accept() {
                Ok(client) => return Ok(Some(client)),
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
