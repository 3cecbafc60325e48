//! The common part of the transports over Unix sockets of this machine: a place where both sides meet.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::rendezvous::{self, Brings, Rendezvous};
use crate::handshake::NATIVE;
use crate::link::pace::Pace;
use crate::options::Options;
use crate::peer::Admission;
use crate::places::place::{Bound, Dialling, Parsed, Place, Reconnect};
use crate::places::protocol::{Protocol, Reached, SharedMemory};
use crate::places::sockets::Sockets;

#[derive(Debug, Clone)]
pub(super) struct Local {
    url: String,
    found: FoundBy,
    memory: SharedMemory,
    protocol: &'static Protocol,
}

/// How both sides find the place.
#[derive(Debug, Clone)]
pub(super) enum FoundBy {
    /// By a name that is known to all processes of this user.
    ByUser(String),
    /// By a name that is known in this process only.
    InProcess(String),
    /// At a path, where other users may be admitted.
    At(PathBuf),
}

impl Local {
    /// A server with a name, whose connections are shared memory.
    pub(super) fn named(scheme: &str, name: &str, found: fn(String) -> FoundBy) -> Parsed {
        let found = found(name_of(scheme, name)?);
        Ok(Arc::new(Self { url: format!("{scheme}://{name}"), found, memory: SharedMemory::Always, protocol: &NATIVE }))
    }

    /// The socket at a path.
    pub(super) fn at(scheme: &str, path: &str, protocol: &'static Protocol) -> Parsed {
        if !path.starts_with('/') || path.len() == 1 {
            return Err(format!("{scheme}:// takes an absolute path: write {scheme}:///path/to/socket"));
        }
        // sun_path holds 108 bytes with its terminator.
        if path.len() > 107 || path.contains('\0') {
            return Err("a socket's path is at most 107 bytes long".into());
        }
        let found = FoundBy::At(PathBuf::from(path));
        Ok(Arc::new(Self { url: format!("{scheme}://{path}"), found, memory: SharedMemory::Never, protocol }))
    }

    fn meeting(&self) -> io::Result<Rendezvous> {
        match &self.found {
            FoundBy::ByUser(name) => Rendezvous::named(name),
            FoundBy::InProcess(name) => Ok(Rendezvous::in_process(name)),
            FoundBy::At(path) => Ok(Rendezvous::File(path.clone())),
        }
    }

    /// What connections bring besides bytes.
    fn brings(&self) -> Brings {
        if self.memory == SharedMemory::Never { Brings::Bytes } else { Brings::Descriptors }
    }

    /// The users and groups that the options admit besides this user.
    fn admission(&self, options: &Options) -> Admission {
        if matches!(self.found, FoundBy::At(_)) { options.admission.clone() } else { Admission::default() }
    }
}

impl fmt::Display for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

impl Place for Local {
    fn dial<'a>(&'a self, options: &'a Options, pace: &'a Pace) -> Dialling<'a> {
        Box::pin(async move {
            let socket = rendezvous::dial(self, self.meeting(), &self.admission(options), self.brings(), pace).await?;
            let fallback = self.protocol.fallback.map(|protocol| Arc::new(Self { protocol, ..self.clone() }) as _);
            Ok(Box::new(Reached { fallback, ..Reached::plainly(socket, self.memory, self.protocol) }) as _)
        })
    }

    fn bind(&self, options: &Options) -> io::Result<Bound> {
        let admission = self.admission(options);
        let clients = rendezvous::LocalListening::bind(
            self,
            self.meeting(),
            &options.passed,
            !admission.is_closed(),
            self.brings(),
        )?;
        let sockets = Sockets { admission, ..Sockets::plainly(clients, self.memory, self.protocol) };
        Ok(Bound { acceptor: Box::new(sockets), place: Arc::new(self.clone()) })
    }

    fn reconnect(&self) -> Reconnect {
        Reconnect::Cheap
    }
}

/// The longest name of a shared memory or in-process server: it must fit into a socket's path.
const LONGEST_NAME: usize = 64;

/// The name behind `scheme://`, if it is a valid one.
fn name_of(scheme: &str, rest: &str) -> Result<String, String> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if rest.is_empty() || rest.len() > LONGEST_NAME || !rest.chars().all(fine) || rest.starts_with('.') {
        return Err(format!(
            "the name after {scheme}:// must be 1 to {LONGEST_NAME} letters, digits, '.', '_' or '-', not starting with '.'"
        ));
    }
    Ok(rest.to_owned())
}
