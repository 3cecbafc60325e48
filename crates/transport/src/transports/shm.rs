//! `shm://name`: shared memory between processes of one user on one machine.

use std::sync::Arc;

use super::local::{Found, Local, name_of};
use crate::handshake::Native;
use crate::places::place::{Place, Transport};
use crate::places::protocol::SharedMemory;

#[derive(Debug)]
pub(super) struct Shm;

impl Transport for Shm {
    fn form(&self) -> &'static str {
        "shm://name"
    }

    fn parse(&self, rest: &str) -> Result<Arc<dyn Place>, String> {
        let found = Found::ByUser(name_of(self.scheme(), rest)?);
        Ok(Arc::new(Local { url: format!("shm://{rest}"), found, memory: SharedMemory::Always, protocol: &Native }))
    }
}
