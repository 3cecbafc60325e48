//! `tls://host:port`: TCP with encryption. At least the server shows a certificate.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;

use super::address::Address;
use super::place::{Bound, Comeback, Dialled, Dialling, Each, Finding, Place, SharedMemory, Speaks, Transport};
use crate::errors::ConnectError;
use crate::link::pace::Pace;
use crate::options::Options;
use crate::peer::Admission;
use crate::tls::{ClientSide, Credentials};

#[derive(Debug)]
pub(super) struct Tls;

impl Transport for Tls {
    fn form(&self) -> &'static str {
        "tls://host:port"
    }

    fn parse(&self, rest: &str) -> Result<Arc<dyn Place>, String> {
        let (scheme, speaks) = (self.scheme(), Speaks::Nearcall);
        Ok(Arc::new(Encrypted { scheme, address: Address::parse(scheme, rest)?, speaks }))
    }
}

#[derive(Debug, Clone)]
pub(super) struct Encrypted {
    pub(super) scheme: &'static str,
    pub(super) address: Address,
    pub(super) speaks: Speaks,
}

impl fmt::Display for Encrypted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.address)
    }
}

impl Place for Encrypted {
    fn dial<'a>(&'a self, options: &'a Options, pace: &'a Pace) -> Dialling<'a> {
        Box::pin(async move {
            let side = self.client_side(options)?;
            let name = if let Some(name) = &side.server_name {
                name.clone()
            } else {
                let host = self.address.name();
                ServerName::try_from(host.to_owned()).map_err(|_| {
                    ConnectError::Options(format!("cannot connect to {self}: {host:?} is no name of a server"))
                })?
            };
            let mut config = side.config;
            if self.speaks != Speaks::Nearcall {
                Arc::make_mut(&mut config).alpn_protocols = self.speaks.alpn();
            }
            let socket = self.address.dial(self, pace).await?;
            Ok(Dialled { socket, memory: SharedMemory::Never, tls: Some((config, name)), speaks: self.speaks })
        })
    }

    fn servers<'a>(&'a self, options: &'a Options, each: Each, pace: &'a Pace) -> Finding<'a> {
        self.address.find(self, options, each, true, pace, |address| Arc::new(Self { address, ..self.clone() }))
    }

    fn key(&self) -> String {
        format!("{self}{}", self.address.place())
    }

    fn bind(&self, options: &Options) -> io::Result<Bound> {
        let certificate = options.tls.as_ref().and_then(|tls| tls.server.clone());
        let mut tls = certificate.ok_or_else(|| {
            let why = format!(
                "cannot serve {self} without a certificate: give tls=TLS(cert=..., key=...); `nearcall dev-certs DIR` makes one to try it out"
            );
            io::Error::new(io::ErrorKind::InvalidInput, why)
        })?;
        if self.speaks != Speaks::Nearcall {
            Arc::make_mut(&mut tls).alpn_protocols = self.speaks.alpn();
        }
        let (clients, address) = self.address.listen(self, options, true)?;
        Ok(Bound {
            clients: Box::new(clients),
            place: Arc::new(Self { address, ..self.clone() }),
            memory: SharedMemory::Never,
            tls: Some(tls),
            admission: Admission::default(),
            speaks: self.speaks,
        })
    }

    fn comeback(&self) -> Comeback {
        Comeback::Far
    }
}

impl Encrypted {
    /// The options for TLS. Without any, the system's authorities are trusted.
    fn client_side(&self, options: &Options) -> Result<ClientSide, ConnectError> {
        let refuse = |why: String| ConnectError::Options(format!("cannot connect to {self}: {why}"));
        let credentials = match &options.tls {
            Some(credentials) => credentials.clone(),
            None => Credentials::client(None, None, None).map_err(refuse)?,
        };
        credentials.client.ok_or_else(|| refuse("the credentials given are a server's".into()))
    }
}
