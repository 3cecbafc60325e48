//! `inproc://name`: inside one process, for tests.

use std::sync::Arc;

use super::local::{Found, Local, name_of};
use super::place::{Place, SharedMemory, Speaks, Transport};

#[derive(Debug)]
pub(super) struct Inproc;

impl Transport for Inproc {
    fn form(&self) -> &'static str {
        "inproc://name"
    }

    fn parse(&self, rest: &str) -> Result<Arc<dyn Place>, String> {
        let found = Found::InProcess(name_of(self.scheme(), rest)?);
        Ok(Arc::new(Local {
            url: format!("inproc://{rest}"),
            found,
            memory: SharedMemory::Always,
            speaks: Speaks::Nearcall,
        }))
    }
}
