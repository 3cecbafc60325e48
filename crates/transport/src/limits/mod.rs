//! What a peer can make us keep, counted in bytes.

pub(crate) mod arrived;
pub(crate) mod budget;
pub(crate) mod spares;
