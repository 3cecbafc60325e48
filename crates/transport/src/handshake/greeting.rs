//! What all clients that greet a server over a socket have in common: encryption, and what to say of failures.

use std::io;
use std::sync::Arc;

use rustix::event::PollFlags;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use crate::errors::{ConnectError, LinkError};
use crate::link::wire::Wire;
use crate::peer::Peer;
use crate::places::opening::Greeting;
use crate::tls::{TlsWire, explain};

impl Greeting<'_> {
    /// Encrypts a socket to a server. Returns who that is, too.
    pub(super) async fn encrypt(
        &self,
        socket: std::os::fd::OwnedFd,
        (config, name): (Arc<ClientConfig>, ServerName<'static>),
    ) -> Result<(TlsWire, Peer), ConnectError> {
        let wire = TlsWire::client(socket, config, name).map_err(|error| {
            ConnectError::Options(format!("cannot connect to {}: {}", self.url, explain(&error, true, None)))
        })?;
        match self.shake(&wire).await {
            Ok(()) => {
                let peer = wire.identify(Peer::of(wire.fd()));
                Ok((wire, peer))
            }
            Err(error) => Err(self.untrusted(&wire, error)),
        }
    }

    /// The TLS handshake.
    async fn shake(&self, wire: &TlsWire) -> Result<(), ConnectError> {
        let failed = |error: LinkError| self.failure(&error);
        while !wire.advance().map_err(failed)? {
            let events = if wire.wants_room() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            if !self.pace.ready(wire.fd(), events).await.map_err(|error| failed(error.into()))? {
                return Err(self.out_of_time());
            }
        }
        Ok(())
    }

    /// The error of an encrypted connection that failed: TLS's own reason, if there is one.
    pub(super) fn untrusted(&self, wire: &TlsWire, error: ConnectError) -> ConnectError {
        // The server may have sent its reason before it hung up.
        let _ = wire.read(&mut [0], false);
        match wire.trouble() {
            Some(why) => ConnectError::Untrusted(format!("cannot connect to {}: {why}", self.url)),
            None => error,
        }
    }

    pub(super) fn unavailable(&self, error: &io::Error) -> ConnectError {
        ConnectError::Unavailable(format!("cannot connect to {}: {error}", self.url))
    }

    pub(super) fn mismatch(&self, what: &str) -> ConnectError {
        ConnectError::Mismatch(format!("cannot use {}: {what}", self.url))
    }

    pub(super) fn out_of_time(&self) -> ConnectError {
        ConnectError::TimedOut(format!("{} accepted the connection but did not finish the handshake in time", self.url))
    }

    pub(super) fn failure(&self, error: &LinkError) -> ConnectError {
        match error {
            LinkError::Closed => ConnectError::Left(format!("{} hung up during the handshake", self.url)),
            error => ConnectError::Unavailable(format!("the handshake with {} failed: {error}", self.url)),
        }
    }
}
