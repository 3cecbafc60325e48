//! `unix:///path`: a Unix socket.

use std::path::PathBuf;
use std::sync::Arc;

use super::local::{Found, Local};
use super::{Memory, Place, Transport};

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
        let found = Found::At(PathBuf::from(rest));
        Ok(Arc::new(Local { url: format!("unix://{rest}"), found, memory: Memory::Never }))
    }
}
