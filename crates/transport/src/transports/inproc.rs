//! `inproc://name`: inside one process, for tests.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::{Bound, Dialled, Dialling, Memory, Place, Transport, name_of};
use crate::dial::Pace;
use crate::link::Options;
use crate::peer::Admission;
use crate::rendezvous::{self, Meeting};

#[derive(Debug)]
pub(super) struct Inproc;

impl Transport for Inproc {
    fn form(&self) -> &'static str {
        "inproc://name"
    }

    fn parse(&self, rest: &str) -> Result<Arc<dyn Place>, String> {
        Ok(Arc::new(Name(name_of(self.scheme(), rest)?)))
    }
}

/// A name that only this process knows.
#[derive(Debug, Clone)]
struct Name(String);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inproc://{}", self.0)
    }
}

impl Place for Name {
    fn dial<'a>(&'a self, _: &'a Options, pace: &'a Pace) -> Dialling<'a> {
        Box::pin(async move {
            let meeting = Ok(Meeting::in_process(&self.0));
            let socket = rendezvous::dial(self, meeting, &Admission::default(), pace).await?;
            Ok(Dialled { socket, memory: Memory::Always, tls: None })
        })
    }

    fn bind(&self, _: &Options) -> io::Result<Bound> {
        let clients = rendezvous::Listening::bind(self, Ok(Meeting::in_process(&self.0)), false)?;
        Ok(Bound {
            clients: Box::new(clients),
            place: Arc::new(self.clone()),
            memory: Memory::Always,
            tls: None,
            admission: Admission::default(),
        })
    }
}
