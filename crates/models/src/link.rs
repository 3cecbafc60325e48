//! Stand-ins for `crate::link` of `crates/transport`: what the outgoing queue uses, without a system behind it.
#![allow(missing_docs, reason = "the real ones are documented where they are")]

#[path = "../../transport/src/link/outbox/mod.rs"]
pub mod outbox;

use crate::errors::LinkError;

/// So that all payloads of the models are long.
pub const PART: usize = 1;
pub const TOGETHER_NS: u64 = 100_000;
pub const TOGETHER_BYTES: usize = 32 << 10;

/// What to do with a frame when there is no room.
pub enum Room<'a> {
    Later,
    Together,
    Now,
    Wait(&'a mut dyn FnMut() -> Result<(), LinkError>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    Out,
    Queued,
    LookAgain,
    KeptBack,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flushed {
    All,
    Part,
    Full,
}
