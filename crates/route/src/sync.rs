//! Atomics. The crate takes them from here, so that all of them are found in one place.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
