//! Keeps the memory of long messages that have been read, for the next ones.
//!
//! Whether an allocator returns such memory to the system when it is freed depends on what lies behind it. If it does,
//! every page of the next message has to be made anew, which takes longer than all other work on its bytes.

use std::collections::TryReserveError;

use nearcall_platform::freeing;
use nearcall_platform::lock::Mutex;
use smallvec::{Array, SmallVec};

/// Shorter pieces are kept by the allocator itself.
const SHORTEST: usize = 64 << 10;
/// The most bytes that this process keeps.
const MAX_SPARE_BYTES: usize = 4 << 20;

static SPARES: Spares = Spares(Mutex::new(Vec::new()));

/// Unused pieces of memory, the oldest first.
struct Spares(Mutex<Vec<Vec<u8>>>);

/// An empty vector with room for `len` bytes.
///
/// # Errors
/// There is no memory.
pub(crate) fn reserve(len: usize) -> Result<Vec<u8>, TryReserveError> {
    SPARES.reserve(len)
}

/// Takes back memory that is no longer needed, if it is worth keeping.
#[inline]
pub(crate) fn give_back<A: Array<Item = u8>>(bytes: &mut SmallVec<A>) {
    match bytes.capacity() {
        SHORTEST..=MAX_SPARE_BYTES => SPARES.give_back(std::mem::take(bytes).into_vec()),
        len if len > MAX_SPARE_BYTES => freeing::free(std::mem::take(bytes).into_vec(), len),
        _ => {}
    }
}

impl Spares {
    fn reserve(&self, len: usize) -> Result<Vec<u8>, TryReserveError> {
        // A locked list is not waited for, here and below: in a forked child it could stay locked for ever.
        if let Some(mut spares) = self.0.try_lock()
            && let Some(at) = spares.iter().rposition(|spare| fits(spare.capacity(), len))
        {
            return Ok(spares.remove(at));
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len)?;
        Ok(bytes)
    }

    fn give_back(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        let Some(mut spares) = self.0.try_lock() else { return };
        let mut kept: usize = bytes.capacity() + spares.iter().map(Vec::capacity).sum::<usize>();
        while kept > MAX_SPARE_BYTES {
            kept -= spares.remove(0).capacity();
        }
        spares.push(bytes);
    }
}

/// A message is charged for its own length, so its memory must not be much larger.
fn fits(capacity: usize, len: usize) -> bool {
    capacity >= len && capacity - len <= len / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spares() -> Spares {
        Spares(Mutex::new(Vec::new()))
    }

    #[test]
    fn the_next_message_of_about_that_length_gets_it() {
        let spares = spares();
        let mut bytes = spares.reserve(100_000).expect("memory");
        bytes.extend_from_slice(b"old");
        let place = bytes.as_ptr();
        spares.give_back(bytes);
        for (len, why) in [(200_000, "too short"), (50_000, "it would hold twice what it is charged for")] {
            let other = spares.reserve(len).expect("memory");
            assert_ne!(other.as_ptr(), place, "{why}");
        }
        let again = spares.reserve(95_000).expect("memory");
        assert_eq!((again.as_ptr(), again.len()), (place, 0));
        let other = spares.reserve(95_000).expect("memory");
        assert_ne!(other.as_ptr(), place, "it is in use");
    }

    #[test]
    fn no_more_is_kept_than_may_be() {
        let spares = spares();
        for _ in 0..10 {
            let all: Vec<_> = (1..=10).map(|n| spares.reserve(n * SHORTEST * 3).expect("memory")).collect();
            for bytes in all {
                spares.give_back(bytes);
            }
            assert!(spares.0.lock().iter().map(Vec::capacity).sum::<usize>() <= MAX_SPARE_BYTES);
        }
        spares.give_back(Vec::with_capacity(MAX_SPARE_BYTES));
        assert_eq!(spares.0.lock().len(), 1, "the oldest make room");
    }
}
