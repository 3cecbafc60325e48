//! Encryption over a TCP socket: [`TlsWire`] carries a stream link's bytes in TLS 1.2 or 1.3.
//!
//! The handshake is a state machine that advances whenever the socket is ready. Nothing here waits unless asked to.

use std::fmt;
use std::io::{self, BufRead as _, IoSlice, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use nearcall_platform::lock::{InnerMutex, InnerMutexGuard};
use nearcall_platform::sys;
use rustix::event::PollFlags;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};

use super::credentials::names_in;
use super::trouble::explain;
use crate::errors::LinkError;
use crate::limits::arrived::Arrived;
use crate::link::LONGEST_SLEEP;
use crate::link::wire::Wire;
use crate::peer::Peer;

/// A socket with TLS on top, for either side.
pub(crate) struct TlsWire {
    socket: OwnedFd,
    /// Locked only while bytes are moved and encrypted, never while waiting.
    state: InnerMutex<WireState>,
}

struct WireState {
    session: rustls::Connection,
    /// Bytes from the socket that are not decrypted yet.
    arrived: Arrived,
    /// The first byte that arrived.
    first: Option<u8>,
    /// Why the connection cannot go on, for the user.
    trouble: Option<String>,
}

/// What looking for decrypted bytes found.
#[derive(PartialEq, Eq)]
enum Pulled {
    Bytes,
    Nothing,
    End,
}

impl fmt::Debug for TlsWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsWire").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl TlsWire {
    pub(crate) fn client(
        socket: OwnedFd,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, rustls::Error> {
        Ok(Self::new(socket, ClientConnection::new(config, name)?.into()))
    }

    pub(crate) fn server(socket: OwnedFd, config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        Ok(Self::new(socket, ServerConnection::new(config)?.into()))
    }

    fn new(socket: OwnedFd, session: rustls::Connection) -> Self {
        let state = WireState { session, arrived: Arrived::default(), first: None, trouble: None };
        Self { socket, state: InnerMutex::new(state) }
    }

    /// Continues the handshake as far as the socket allows. Whether the handshake is complete.
    pub(crate) fn advance(&self) -> Result<bool, LinkError> {
        let mut state = self.state.lock();
        loop {
            let flushed = state.push(&self.socket)?;
            if !state.session.is_handshaking() {
                return Ok(flushed);
            }
            if !flushed || !state.pull_some(&self.socket)? {
                return Ok(false);
            }
        }
    }

    /// Whether encrypted bytes wait for room in the socket.
    pub(crate) fn wants_room(&self) -> bool {
        self.state.lock().session.wants_write()
    }

    /// The protocol that both sides have agreed on by ALPN, if they have.
    pub(crate) fn agreed(&self) -> Option<Vec<u8>> {
        self.state.lock().session.alpn_protocol().map(<[u8]>::to_vec)
    }

    /// Why the connection cannot go on, if TLS is the reason.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.state.lock().trouble.clone()
    }

    /// Adds the names in the peer's certificate to `peer`. A complete handshake has verified the certificate.
    pub(crate) fn identify(&self, peer: Peer) -> Peer {
        match (peer, self.peer_certificate()) {
            (Peer::Remote(address), Some(certificate)) => {
                let (subject, names) = names_in(&certificate);
                Peer::Certified { address, subject, names }
            }
            (peer, _) => peer,
        }
    }

    /// The peer's own certificate, as DER.
    fn peer_certificate(&self) -> Option<Vec<u8>> {
        self.state.lock().session.peer_certificates()?.first().map(|certificate| certificate.to_vec())
    }

    /// Gives decrypted bytes to `take`. Returns how many it took; 0 at the end of the stream; `None` if there are none
    /// yet.
    fn take(&self, wait: bool, mut take: impl FnMut(&[u8]) -> usize) -> Result<Option<usize>, LinkError> {
        let mut waited = !wait;
        loop {
            let mut state = self.state.lock();
            match state.pull(&self.socket)? {
                Pulled::End => return Ok(Some(0)),
                Pulled::Bytes => {
                    let mut reader = state.session.reader();
                    let taken = take(reader.fill_buf()?);
                    reader.consume(taken);
                    return Ok(Some(taken));
                }
                Pulled::Nothing if waited => return Ok(None),
                Pulled::Nothing => {}
            }
            drop(state);
            sys::wait_for(self.socket.as_fd(), PollFlags::IN, Some(Instant::now() + LONGEST_SLEEP))?;
            waited = true;
        }
    }
}

impl WireState {
    /// Sends encrypted bytes. Whether all of them are out.
    fn push(&mut self, socket: &OwnedFd) -> Result<bool, LinkError> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Socket(socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Reads encrypted bytes from the socket and decrypts them. `false` if there are none.
    fn pull_some(&mut self, socket: &OwnedFd) -> Result<bool, LinkError> {
        if self.arrived.is_empty() {
            match rustix::net::recv(socket, self.arrived.space(), RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Err(LinkError::Closed),
                Ok((_, got)) => self.arrived.add(got),
                Err(rustix::io::Errno::AGAIN) => {
                    self.arrived.rest();
                    return Ok(false);
                }
                Err(error) => return Err(error.into()),
            }
            self.first.get_or_insert(self.arrived.bytes()[0]);
        }
        let taken = self.session.read_tls(&mut self.arrived.bytes())?;
        self.arrived.consume(taken);
        if let Err(error) = self.session.process_new_packets() {
            let why = explain(&error, matches!(self.session, rustls::Connection::Client(_)), self.first);
            self.trouble = Some(why.clone());
            // Sends the alert that tells the peer why. If that fails, the peer sees the end of the stream.
            let _ = self.push(socket);
            return Err(LinkError::Broken(why));
        }
        Ok(true)
    }

    /// Looks for decrypted bytes.
    fn pull(&mut self, socket: &OwnedFd) -> Result<Pulled, LinkError> {
        loop {
            match self.session.reader().fill_buf() {
                Ok([]) => return Ok(Pulled::End),
                Ok(_) => return Ok(Pulled::Bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            if !self.pull_some(socket)? {
                return Ok(Pulled::Nothing);
            }
            // Answers what arrived, with fresh keys for example. What does not fit goes out with the next frame.
            self.push(socket)?;
        }
    }
}

impl Wire for TlsWire {
    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn write(&self, pieces: &[IoSlice<'_>]) -> Result<Option<usize>, LinkError> {
        let mut state = self.state.lock();
        if !state.push(&self.socket)? {
            return Ok(None);
        }
        let taken = state.session.writer().write_vectored(pieces)?;
        state.push(&self.socket)?;
        // A writer comes again at once with the next bytes of a long message, and readers need the session as well.
        InnerMutexGuard::unlock_fair(state);
        Ok(Some(taken))
    }

    fn flush(&self) -> Result<bool, LinkError> {
        self.state.lock().push(&self.socket)
    }

    fn read(&self, into: &mut [u8], wait: bool) -> Result<Option<usize>, LinkError> {
        self.take(wait, |bytes| {
            let taken = bytes.len().min(into.len());
            into[..taken].copy_from_slice(&bytes[..taken]);
            taken
        })
    }

    fn append(&self, into: &mut Vec<u8>, most: usize, wait: bool) -> Result<Option<usize>, LinkError> {
        self.take(wait, |bytes| {
            let taken = bytes.len().min(most);
            into.extend_from_slice(&bytes[..taken]);
            taken
        })
    }

    fn holds(&self) -> bool {
        let mut state = self.state.lock();
        !state.arrived.is_empty() || matches!(state.session.reader().fill_buf(), Ok([_, ..]))
    }

    fn say_goodbye(&self) {
        let mut state = self.state.lock();
        state.session.send_close_notify();
        // If there is no room for it, the peer still sees the end of the stream.
        let _ = state.push(&self.socket);
    }
}

/// Writes without waiting and without signals.
struct Socket<'a>(&'a OwnedFd);

impl io::Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        Ok(rustix::net::sendmsg(self.0, pieces, &mut SendAncillaryBuffer::default(), flags)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
