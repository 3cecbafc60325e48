//! The atomics of this crate, so that loom can stand in for the real ones (`crates/models`).

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
