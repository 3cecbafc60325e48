//! `inproc://name`: inside one process, for tests.

use std::sync::Arc;

use super::local::{Found, Local, name_of};
use crate::handshake::Native;
use crate::places::place::{Place, Transport};
use crate::places::protocol::SharedMemory;

#[derive(Debug)]
pub(super) struct Inproc;

impl Transport for Inproc {
    fn form(&self) -> &'static str {
        "inproc://name"
    }

    fn parse(&self, rest: &str) -> Result<Arc<dyn Place>, String> {
        let found = Found::InProcess(name_of(self.scheme(), rest)?);
        Ok(Arc::new(Local { url: format!("inproc://{rest}"), found, memory: SharedMemory::Always, protocol: &Native }))
    }
}
