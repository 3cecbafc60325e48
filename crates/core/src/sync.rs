//! Atomics, threads and the clock. The core takes them from here, so that loom can replace the real ones
//! (`crates/models`).

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
pub(crate) use std::thread;
pub(crate) use std::time::Instant;

use std::cell::Cell;

/// A number for the calling thread that no other thread of this process has or had. Not 0.
#[inline]
pub(crate) fn thread_number() -> u32 {
    thread_local! {
        static NUMBER: Cell<u32> = const { Cell::new(0) };
    }
    #[cold]
    fn choose() -> u32 {
        static LAST: AtomicU32 = AtomicU32::new(0);
        // Relaxed: the number orders nothing. It does not wrap: no process starts four thousand million threads.
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        NUMBER.set(number);
        number
    }
    match NUMBER.get() {
        0 => choose(),
        number => number,
    }
}
