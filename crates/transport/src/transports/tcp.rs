//! `tcp://host:port`: TCP without encryption.

use std::fmt::{self, Display};
use std::io;
use std::sync::Arc;

use super::address::Address;
use crate::handshake::Native;
use crate::link::pace::Pace;
use crate::options::Options;
use crate::peer::Admission;
use crate::places::acceptor::Sockets;
use crate::places::place::{Bound, Comeback, Dialling, Each, Finding, Place, Transport};
use crate::places::protocol::{Protocol, Reached, SharedMemory};

#[derive(Debug)]
pub(super) struct Tcp;

impl Transport for Tcp {
    fn form(&self) -> &'static str {
        "tcp://host:port"
    }

    fn parse(&self, rest: &str) -> Result<Arc<dyn Place>, String> {
        let (scheme, protocol) = (self.scheme(), &Native);
        Ok(Arc::new(Plain { scheme, address: Address::parse(scheme, rest)?, protocol }))
    }
}

/// An address that is used without encryption.
#[derive(Debug, Clone)]
pub(super) struct Plain {
    pub(super) scheme: &'static str,
    pub(super) address: Address,
    pub(super) protocol: &'static dyn Protocol,
}

impl Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.address)
    }
}

impl Place for Plain {
    fn dial<'a>(&'a self, _: &'a Options, pace: &'a Pace) -> Dialling<'a> {
        Box::pin(async move {
            let socket = self.address.dial(self, pace).await?;
            let fallback = self.protocol.fallback().map(|protocol| Arc::new(Self { protocol, ..self.clone() }) as _);
            let (memory, protocol) = (SharedMemory::Never, self.protocol);
            Ok(Box::new(Reached { socket, memory, tls: None, protocol, fallback }) as _)
        })
    }

    fn servers<'a>(&'a self, options: &'a Options, each: Each, pace: &'a Pace) -> Finding<'a> {
        self.address.find(self, options, each, false, pace, |address| Arc::new(Self { address, ..self.clone() }))
    }

    fn key(&self) -> String {
        format!("{self}{}", self.address.place())
    }

    fn bind(&self, options: &Options) -> io::Result<Bound> {
        let (clients, address) = self.address.listen(self, options.allow_plaintext)?;
        let acceptor = Box::new(Sockets {
            clients: Box::new(clients),
            memory: SharedMemory::Never,
            tls: None,
            admission: Admission::default(),
            protocol: self.protocol,
        });
        Ok(Bound { acceptor, place: Arc::new(Self { address, ..self.clone() }) })
    }

    fn comeback(&self) -> Comeback {
        Comeback::Far
    }
}
