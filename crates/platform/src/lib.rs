//! The operating system's services, in one place. Every other crate may use this one, and it knows none of them.
//!
//! - [`lock`]: locks and conditions that survive a fork;
//! - [`fault`]: panics, contained where they belong to one client or call;
//! - [`freeing`]: large memory, freed without waiting for it;
//! - [`fork`]: whether this process is still the one that made something, and what only that may use;
//! - [`per_process`]: values that threads share, and that a forked child makes anew;
//! - [`inheritance`]: descriptors that forked children must not hold;
//! - [`descriptors`]: pollers, and event descriptors and alarms that wake threads that sleep in them;
//! - [`sys`]: calls on sockets that the standard library lacks;
//! - [`closing`] and [`peer_socket`]: letting go of descriptors that others have chosen, and of the sockets they came by;
//! - [`clock`] and [`cpu`]: the time, the CPU that a thread runs on, and how long a thread has run;
//! - [`memory`]: how much memory is left;
//! - [`rest`]: how many threads wait to be given something to do;
//! - [`lifeline`]: lets a process end with another.

pub mod clock;
pub mod closing;
pub mod cpu;
pub mod descriptors;
pub mod fault;
pub mod fork;
pub mod freeing;
pub mod inheritance;
pub mod lifeline;
pub mod lock;
pub mod memory;
pub mod peer_socket;
pub mod per_process;
pub mod rest;
mod sync;
pub mod sys;
