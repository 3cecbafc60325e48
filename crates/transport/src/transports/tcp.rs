//! `tcp://host:port`: TCP without encryption.

use std::fmt::{self, Display};
use std::io;
use std::sync::Arc;

use super::address::Address;
use super::place::{Bound, Comeback, Dialled, Dialling, Each, Finding, Place, SharedMemory, Speaks, Transport};
use crate::link::pace::Pace;
use crate::options::Options;
use crate::peer::Admission;

#[derive(Debug)]
pub(super) struct Tcp;

impl Transport for Tcp {
    fn form(&self) -> &'static str {
        "tcp://host:port"
    }

    fn parse(&self, rest: &str) -> Result<Arc<dyn Place>, String> {
        let (scheme, speaks) = (self.scheme(), Speaks::Nearcall);
        Ok(Arc::new(Plain { scheme, address: Address::parse(scheme, rest)?, speaks }))
    }
}

/// An address that is used without encryption.
#[derive(Debug, Clone)]
pub(super) struct Plain {
    pub(super) scheme: &'static str,
    pub(super) address: Address,
    pub(super) speaks: Speaks,
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
            Ok(Dialled { socket, memory: SharedMemory::Never, tls: None, speaks: self.speaks })
        })
    }

    fn servers<'a>(&'a self, options: &'a Options, each: Each, pace: &'a Pace) -> Finding<'a> {
        self.address.find(self, options, each, false, pace, |address| Arc::new(Self { address, ..self.clone() }))
    }

    fn key(&self) -> String {
        format!("{self}{}", self.address.place())
    }

    fn bind(&self, options: &Options) -> io::Result<Bound> {
        let (clients, address) = self.address.listen(self, options, options.allow_plaintext)?;
        Ok(Bound {
            clients: Box::new(clients),
            place: Arc::new(Self { address, ..self.clone() }),
            memory: SharedMemory::Never,
            tls: None,
            admission: Admission::default(),
            speaks: self.speaks,
        })
    }

    fn comeback(&self) -> Comeback {
        Comeback::Far
    }
}
