//! What accepts a server's clients.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nearcall_platform::sys::own_uid;
use rustls::ServerConfig;

use super::clients::{Clients, ConnectionPermit, Handed};
use super::opening::Accepted;
use super::protocol::{Client, Protocol, SharedMemory};
use crate::peer::{Admission, Peer};
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

    /// The sockets below, if clients come by such: another process may accept them.
    fn sockets(&self) -> Option<&Sockets>;
}

/// Accepts clients who come by sockets.
#[derive(Debug)]
pub struct Sockets {
    pub(crate) clients: Box<dyn Clients>,
    pub(crate) memory: SharedMemory,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) admission: Admission,
    pub(crate) protocol: &'static dyn Protocol,
}

impl Sockets {
    /// The same in another process: the sockets come to it through `channel`, each as a descriptor beside one byte. It counts
    /// finished connections in the eventfd `returned`.
    pub(crate) fn through(&self, channel: OwnedFd, returned: Arc<OwnedFd>) -> Self {
        Self {
            clients: Box::new(Handed { channel, returned }),
            memory: self.memory,
            tls: self.tls.clone(),
            admission: self.admission.clone(),
            protocol: self.protocol,
        }
    }

    /// The next client's bare socket, and its permit.
    pub(crate) fn next(&self) -> io::Result<Option<(OwnedFd, Option<Arc<ConnectionPermit>>)>> {
        loop {
            match self.clients.accept() {
                Ok(client) => return Ok(Some(client)),
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The message for a client that may not connect.
    fn refusal(&self, peer: &Peer) -> String {
        let Peer::Local { uid, .. } = peer else { return "you may not connect".into() };
        if self.admission.is_closed() {
            return format!("this server serves user {} only, you are user {uid}", own_uid());
        }
        format!("you are user {uid}, whom neither allow_users nor allow_groups of this server name")
    }
}

impl Acceptor for Sockets {
    fn signal(&self) -> Signal<'_> {
        Signal::Descriptor(self.clients.fd())
    }

    fn accept(&self) -> io::Result<Option<Arrived>> {
        let Some((socket, permit)) = self.next()? else { return Ok(None) };
        let peer = self.memory.peer_of(socket.as_fd());
        let stranger = (!self.admission.admits(&peer, socket.as_fd())).then(|| self.refusal(&peer));
        let client = Client { socket, peer, stranger, memory: self.memory, tls: self.tls.clone() };
        Ok(Some(Arrived { opening: self.protocol.accept(client)?, permit }))
    }

    fn sockets(&self) -> Option<&Sockets> {
        Some(self)
    }
}
