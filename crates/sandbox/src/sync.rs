//! Atomics of this crate.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
