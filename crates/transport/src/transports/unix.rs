//! `unix:///path`: a Unix socket.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::{Bound, Dialled, Dialling, Memory, Place, Transport};
use crate::dial::Pace;
use crate::link::Options;
use crate::rendezvous::{self, Meeting};

#[derive(Debug)]
pub(super) struct Unix;

impl Transport for Unix {
    fn form(&self) -> &'static str {
        "unix:///path"
    }

    fn parse(&self, rest: &str) -> Result<Arc<dyn Place>, String> {
        if !rest.starts_with('/') || rest.len() == 1 {
            return Err("unix:// takes an absolute path: write unix:///path/to/socket".into());
        }
        // sun_path holds 108 bytes with its terminator.
        if rest.len() > 107 || rest.contains('\0') {
            return Err("a socket's path is at most 107 bytes long".into());
        }
        Ok(Arc::new(Path(PathBuf::from(rest))))
    }
}

#[derive(Debug, Clone)]
struct Path(PathBuf);

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix://{}", self.0.display())
    }
}

impl Place for Path {
    fn dial<'a>(&'a self, options: &'a Options, pace: &'a Pace) -> Dialling<'a> {
        Box::pin(async move {
            let meeting = Ok(Meeting::File(self.0.clone()));
            let socket = rendezvous::dial(self, meeting, &options.admission, pace).await?;
            Ok(Dialled { socket, memory: Memory::Never, tls: None })
        })
    }

    fn bind(&self, options: &Options) -> io::Result<Bound> {
        let admission = options.admission.clone();
        let clients = rendezvous::Listening::bind(self, Ok(Meeting::File(self.0.clone())), !admission.is_closed())?;
        Ok(Bound {
            clients: Box::new(clients),
            place: Arc::new(self.clone()),
            memory: Memory::Never,
            tls: None,
            admission,
        })
    }
}
