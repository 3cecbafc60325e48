//! Model tests of what waits and wakes: loom runs them under every interleaving and every result that the memory model
//! allows (`make loom`).
//!
//! The files that are tried are those of the other crates, compiled once more: here `crate::sync` is a stand-in whose
//! atomics, threads, clock and sleeping are loom's. So the crates themselves know nothing of loom. A sleeper that nobody
//! wakes is a deadlock, which loom reports. Each ordering that a comment in the source explains was weakened once to see a
//! model fail; the table at the end of each file of models says which one did.
#![cfg_attr(not(test), allow(dead_code, reason = "only the models use what is compiled here"))]

#[cfg(test)]
mod models;
mod sync;

/// `crates/transport`
#[allow(clippy::reversed_empty_ranges, clippy::absurd_extreme_comparisons, reason = "there are no spins here")]
#[path = "../../transport/src/lock.rs"]
pub mod lock;
