//! Model tests of the code that waits and wakes: loom runs it under every interleaving and every result that the memory
//! model allows (`make loom`).
//!
//! The tested files are those of the other crates, compiled once more. In this crate `crate::sync` is a stand-in with
//! the atomics, threads, clock and sleeping of loom, so the other crates know nothing of loom. A sleeper that no thread
//! wakes is a deadlock, which loom reports. Each ordering that a comment in the source explains was weakened once to
//! see a model fail; the table at the end of each file of models says which one did.
#![allow(dead_code, reason = "the models do not use all that is compiled here")]
#![allow(clippy::arc_with_non_send_sync, reason = "loom's cells are shared between its threads, which are one")]

extern crate self as nearcall_platform; // so the other crates' files call what they use of it

#[cfg(test)]
mod models;
mod sync;

pub mod descriptors;
pub mod errors;
pub mod freeing;
pub mod limits;
pub mod link;
/// `crates/platform`
#[allow(clippy::reversed_empty_ranges, clippy::absurd_extreme_comparisons, reason = "there are no spins here")]
#[path = "../../platform/src/lock.rs"]
pub mod lock;

/// `crates/core/src/server`
mod server {
    pub(crate) mod threads;
    #[path = "../../../core/src/server/connection/write_interest.rs"]
    pub(crate) mod write_interest;

    #[cfg(test)]
    mod crew_models;
    #[cfg(test)]
    mod models;
    #[cfg(test)]
    mod write_interest_models;
}

/// `crates/core/src/client`
mod client {
    #[path = "../../../core/src/client/table/leadership.rs"]
    pub(crate) mod leadership;

    #[cfg(test)]
    mod models;
}
