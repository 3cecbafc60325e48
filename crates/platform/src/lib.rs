//! What the operating system gives, in one place: every other crate may use it, and it knows none of them.
//!
//! - [`lock`]: locks and conditions that a fork does no harm;
//! - [`fork`]: whether this process still is the one that made something;
//! - [`per_process`]: what threads share, and a child by fork makes for itself;
//! - [`inheritance`]: descriptors that children by fork shall not hold;
//! - [`descriptors`]: pollers, and event descriptors that wake those who sleep in them;
//! - [`sys`]: calls on sockets that the standard library lacks;
//! - [`clock`] and [`cpu`]: what time it is, and where a thread runs;
//! - [`memory`]: how much of it is left;
//! - [`lifeline`]: a process that ends with another.

pub mod clock;
pub mod cpu;
pub mod descriptors;
pub mod fork;
pub mod inheritance;
pub mod lifeline;
pub mod lock;
pub mod memory;
pub mod per_process;
mod sync;
pub mod sys;
