//! The common part of the transports over TCP, with encryption and without it: at least the server then shows a certificate.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};

use super::address::Address;
use crate::errors::ConnectError;
use crate::link::pace::Pace;
use crate::options::Options;
use crate::places::place::{Bound, Dialling, Each, Finding, Parsed, Place, Reconnect};
use crate::places::protocol::{Protocol, Reached, SharedMemory};
use crate::places::sockets::Sockets;
use crate::tls::Credentials;

#[derive(Debug, Clone)]
pub(super) struct Hosts {
    scheme: &'static str,
    address: Address,
    is_encrypted: bool,
    protocol: &'static Protocol,
}

impl fmt::Display for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.address)
    }
}

impl Place for Hosts {
    fn dial<'a>(&'a self, options: &'a Options, pace: &'a Pace) -> Dialling<'a> {
        Box::pin(async move {
            let tls = if self.is_encrypted { Some(self.client_side(options)?) } else { None };
            let socket = self.address.dial(self, pace).await?;
            let fallback = self.protocol.fallback.map(|protocol| Arc::new(Self { protocol, ..self.clone() }) as _);
            let reached = Reached::plainly(socket, SharedMemory::Never, self.protocol);
            Ok(Box::new(Reached { tls, fallback, ..reached }) as _)
        })
    }

    fn servers<'a>(&'a self, options: &'a Options, each: Each, pace: &'a Pace) -> Finding<'a> {
        let place = |address| Arc::new(Self { address, ..self.clone() }) as _;
        self.address.find(self, options, each, self.is_encrypted, pace, place)
    }

    fn key(&self) -> String {
        format!("{self}{}", self.address.place())
    }

    fn bind(&self, options: &Options) -> io::Result<Bound> {
        let tls = if self.is_encrypted { Some(self.server_side(options)?) } else { None };
        let (clients, address) = self.address.listen(self, options, self.is_encrypted || options.allow_plaintext)?;
        let sockets = Sockets { tls, ..Sockets::plainly(clients, SharedMemory::Never, self.protocol) };
        Ok(Bound { acceptor: Box::new(sockets), place: Arc::new(Self { address, ..self.clone() }) })
    }

    fn reconnect(&self) -> Reconnect {
        Reconnect::Costly
    }
}

impl Hosts {
    /// Hosts that are reached without encryption.
    pub(super) fn plain(scheme: &'static str, rest: &str, protocol: &'static Protocol) -> Parsed {
        Ok(Arc::new(Self { scheme, address: Address::parse(scheme, rest)?, is_encrypted: false, protocol }))
    }

    /// Hosts that are reached with encryption.
    pub(super) fn encrypted(scheme: &'static str, rest: &str, protocol: &'static Protocol) -> Parsed {
        Ok(Arc::new(Self { scheme, address: Address::parse(scheme, rest)?, is_encrypted: true, protocol }))
    }

    /// What TLS may agree on.
    fn alpn(&self) -> Vec<Vec<u8>> {
        self.protocol.alpn.iter().map(|name| name.to_vec()).collect()
    }

    /// The client's configuration of TLS, and the name that the server must have. Without options, the system's authorities are
    /// trusted.
    fn client_side(&self, options: &Options) -> Result<(Arc<ClientConfig>, ServerName<'static>), ConnectError> {
        let refuse = |why: String| ConnectError::Options(format!("cannot connect to {self}: {why}"));
        let credentials = match &options.tls {
            Some(credentials) => credentials.clone(),
            None => Credentials::client(None, None, None).map_err(refuse)?,
        };
        let side = credentials.client.ok_or_else(|| refuse("the credentials given are a server's".into()))?;
        let name = if let Some(name) = side.server_name {
            name
        } else {
            let host = self.address.name();
            ServerName::try_from(host.to_owned()).map_err(|_| refuse(format!("{host:?} is no name of a server")))?
        };
        let mut config = side.config;
        if !self.protocol.alpn.is_empty() {
            Arc::make_mut(&mut config).alpn_protocols = self.alpn();
        }
        Ok((config, name))
    }

    fn server_side(&self, options: &Options) -> io::Result<Arc<ServerConfig>> {
        let certificate = options.tls.as_ref().and_then(|tls| tls.server.clone());
        let mut config = certificate.ok_or_else(|| {
            let why = format!(
                "cannot serve {self} without a certificate: give tls=TLS(cert=..., key=...); `nearcall dev-certs DIR` makes one to try it out"
            );
            io::Error::new(io::ErrorKind::InvalidInput, why)
        })?;
        if !self.protocol.alpn.is_empty() {
            Arc::make_mut(&mut config).alpn_protocols = self.alpn();
        }
        Ok(config)
    }
}
