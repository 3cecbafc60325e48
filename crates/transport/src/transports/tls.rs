//! `tls://host:port`: TCP with encryption, and a certificate at least of the server.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;

use super::tcp::Address;
use super::{Bound, Comeback, Dialled, Dialling, Memory, Place, Transport};
use crate::credentials::{ClientSide, Credentials};
use crate::dial::Pace;
use crate::link::{ConnectError, Options};
use crate::peer::Admission;

#[derive(Debug)]
pub(super) struct Tls;

impl Transport for Tls {
    fn form(&self) -> &'static str {
        "tls://host:port"
    }

    fn parse(&self, rest: &str) -> Result<Arc<dyn Place>, String> {
        Ok(Arc::new(Encrypted(Address::parse(self.scheme(), rest)?)))
    }
}

#[derive(Debug, Clone)]
struct Encrypted(Address);

impl fmt::Display for Encrypted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tls://{}", self.0)
    }
}

impl Place for Encrypted {
    fn dial<'a>(&'a self, options: &'a Options, pace: &'a Pace) -> Dialling<'a> {
        Box::pin(async move {
            let host = &self.0.host;
            let side = self.client_side(options)?;
            let name = match &side.server_name {
                Some(name) => name.clone(),
                None => ServerName::try_from(host.clone()).map_err(|_| {
                    ConnectError::Options(format!("cannot connect to {self}: {host:?} is no name of a server"))
                })?,
            };
            let socket = self.0.dial(self, true, pace).await?;
            Ok(Dialled { socket, memory: Memory::Never, tls: Some((side.config, name)) })
        })
    }

    fn bind(&self, options: &Options) -> io::Result<Bound> {
        let certificate = options.tls.as_ref().and_then(|tls| tls.server.clone());
        let tls = certificate.ok_or_else(|| {
            let why = format!(
                "cannot serve {self} without a certificate: give tls=TLS(cert=..., key=...); `nearcall dev-certs DIR` makes one to try it out"
            );
            io::Error::new(io::ErrorKind::InvalidInput, why)
        })?;
        let (clients, address) = self.0.listen(self, true)?;
        Ok(Bound {
            clients: Box::new(clients),
            place: Arc::new(Self(address)),
            memory: Memory::Never,
            tls: Some(tls),
            admission: Admission::default(),
        })
    }

    fn comeback(&self) -> Comeback {
        Comeback::Far
    }
}

impl Encrypted {
    /// What the options say of TLS; without a word, the system's authorities are trusted.
    fn client_side(&self, options: &Options) -> Result<ClientSide, ConnectError> {
        let refuse = |why: String| ConnectError::Options(format!("cannot connect to {self}: {why}"));
        let credentials = match &options.tls {
            Some(credentials) => credentials.clone(),
            None => Credentials::client(None, None, None).map_err(refuse)?,
        };
        credentials.client.ok_or_else(|| refuse("the credentials given are a server's".into()))
    }
}
