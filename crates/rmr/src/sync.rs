//! The atomics of this crate, in one place as in the other crates.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
