//! What is to be run, and what runs it.

pub(in crate::server) mod directory;
pub(in crate::server) mod loop_queue;
pub(in crate::server) mod pace;
pub(in crate::server) mod queue;
pub(in crate::server) mod work;
