//! `unix:///path`: a Unix socket.

use std::path::PathBuf;
use std::sync::Arc;

use super::local::{Found, Local};
use crate::handshake::Native;
use crate::places::place::{Place, Transport};
use crate::places::protocol::{Protocol, SharedMemory};

#[derive(Debug)]
pub(super) struct Unix;

impl Transport for Unix {
    fn form(&self) -> &'static str {
        "unix:///path"
    }

    fn parse(&self, rest: &str) -> Result<Arc<dyn Place>, String> {
        Ok(Arc::new(socket_at(self.scheme(), rest, &Native)?))
    }
}

/// The socket at a path.
pub(super) fn socket_at(scheme: &str, path: &str, protocol: &'static dyn Protocol) -> Result<Local, String> {
    if !path.starts_with('/') || path.len() == 1 {
        return Err(format!("{scheme}:// takes an absolute path: write {scheme}:///path/to/socket"));
    }
    // sun_path holds 108 bytes with its terminator.
    if path.len() > 107 || path.contains('\0') {
        return Err("a socket's path is at most 107 bytes long".into());
    }
    let found = Found::At(PathBuf::from(path));
    Ok(Local { url: format!("{scheme}://{path}"), found, memory: SharedMemory::Never, protocol })
}
