//! Tables by the numbers of objects that this side has given.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::num::NonZeroU64;

/// A table by numbers that this side has drawn at random. They spread over the table by themselves, and a peer, which
/// chooses the numbers that it asks for, does not choose those that are in the table.
pub(super) type ByNumber<T> = HashMap<NonZeroU64, T, BuildHasherDefault<NumberHasher>>;

/// Takes a number for its own hash.
#[derive(Debug, Default)]
pub(super) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn write(&mut self, bytes: &[u8]) {
        // Numbers do not come here.
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_its_own_hash() {
        use std::hash::BuildHasher;

        let number = NonZeroU64::new(0x0123_4567_89ab_cdef).expect("not 0");
        assert_eq!(BuildHasherDefault::<NumberHasher>::default().hash_one(number), number.get());
    }
}
