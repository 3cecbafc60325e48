//! The common part of the transports over Unix sockets of this machine: a place where both sides meet.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::place::{Bound, Comeback, Dialled, Dialling, Place, SharedMemory, Speaks};
use super::rendezvous::{self, Brings, Rendezvous};
use crate::link::pace::Pace;
use crate::options::Options;
use crate::peer::Admission;

#[derive(Debug, Clone)]
pub(super) struct Local {
    pub(super) url: String,
    pub(super) found: Found,
    pub(super) memory: SharedMemory,
    pub(super) speaks: Speaks,
}

/// How both sides find the place.
#[derive(Debug, Clone)]
pub(super) enum Found {
    /// By a name that is known to all processes of this user.
    ByUser(String),
    /// By a name that is known in this process only.
    InProcess(String),
    /// At a path, where other users may be admitted.
    At(PathBuf),
}

impl Local {
    fn meeting(&self) -> io::Result<Rendezvous> {
        match &self.found {
            Found::ByUser(name) => Rendezvous::named(name),
            Found::InProcess(name) => Ok(Rendezvous::in_process(name)),
            Found::At(path) => Ok(Rendezvous::File(path.clone())),
        }
    }

    /// What connections bring besides bytes.
    fn brings(&self) -> Brings {
        if self.memory == SharedMemory::Never { Brings::Bytes } else { Brings::Descriptors }
    }

    /// The users and groups that the options admit besides this user.
    fn admission(&self, options: &Options) -> Admission {
        if matches!(self.found, Found::At(_)) { options.admission.clone() } else { Admission::default() }
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
            Ok(Dialled { socket, memory: self.memory, tls: None, speaks: self.speaks })
        })
    }

    fn bind(&self, options: &Options) -> io::Result<Bound> {
        let admission = self.admission(options);
        let clients = rendezvous::Listening::bind(
            self,
            self.meeting(),
            &options.passed,
            !admission.is_closed(),
            self.brings(),
        )?;
        Ok(Bound {
            clients: Box::new(clients),
            place: Arc::new(self.clone()),
            memory: self.memory,
            tls: None,
            admission,
            speaks: self.speaks,
        })
    }

    fn comeback(&self) -> Comeback {
        Comeback::Near
    }
}

/// The longest name of a shared memory or in-process server: it must fit into a socket's path.
const LONGEST_NAME: usize = 64;

/// The name behind `scheme://`, if it is a valid one.
pub(super) fn name_of(scheme: &str, rest: &str) -> Result<String, String> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if rest.is_empty() || rest.len() > LONGEST_NAME || !rest.chars().all(fine) || rest.starts_with('.') {
        return Err(format!(
            "the name after {scheme}:// must be 1 to {LONGEST_NAME} letters, digits, '.', '_' or '-', not starting with '.'"
        ));
    }
    Ok(rest.to_owned())
}
