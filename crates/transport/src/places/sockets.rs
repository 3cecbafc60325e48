//! Accepts clients who come by sockets, whatever is spoken over these.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nearcall_platform::sys::own_uid;
use rustls::ServerConfig;

use super::acceptor::{Acceptor, Arrived, HandsOver};
use super::clients::{Clients, ConnectionPermit, Handed};
use super::protocol::{Client, Protocol, SharedMemory};
use crate::peer::{Admission, Peer};
use crate::signal::Signal;

/// Accepts clients who come by sockets.
#[derive(Debug, Clone)]
pub(crate) struct Sockets {
    pub(crate) clients: Arc<dyn Clients>,
    pub(crate) memory: SharedMemory,
    /// Who all clients are, if their sockets do not say that.
    pub(crate) peer: Option<Peer>,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) admission: Admission,
    pub(crate) protocol: &'static Protocol,
}

impl Sockets {
    /// For clients of this user alone, without encryption, whose sockets say themselves who they are.
    pub(crate) fn plainly(clients: impl Clients + 'static, memory: SharedMemory, protocol: &'static Protocol) -> Self {
        let admission = Admission::default();
        Self { clients: Arc::new(clients), memory, peer: None, tls: None, admission, protocol }
    }

    /// The next client's bare socket, and its permit.
    fn next(&self) -> io::Result<Option<(OwnedFd, Option<Arc<ConnectionPermit>>)>> {
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
        let peer = self.peer.clone().unwrap_or_else(|| self.memory.peer_of(socket.as_fd()));
        let stranger = (!self.admission.admits(&peer, socket.as_fd())).then(|| self.refusal(&peer));
        let client = Client { socket, peer, stranger, memory: self.memory, tls: self.tls.clone() };
        Ok(Some(Arrived { opening: (self.protocol.accept)(client)?, permit }))
    }

    fn by_sockets(&self) -> Option<&dyn HandsOver> {
        Some(self)
    }
}

impl HandsOver for Sockets {
    fn fd(&self) -> BorrowedFd<'_> {
        self.clients.fd()
    }

    fn accept_socket(&self) -> io::Result<Option<OwnedFd>> {
        Ok(self.next()?.map(|(socket, _)| socket))
    }

    fn through(&self, channel: OwnedFd, returned: Arc<OwnedFd>) -> Box<dyn Acceptor> {
        Box::new(Self { clients: Arc::new(Handed { channel, returned }), ..self.clone() })
    }
}
