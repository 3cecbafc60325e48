//! The memory that `CPython` takes for values. `tests/e2e/test_weights.py` compares it with what is really taken.
//!
//! Bytes, with the header of the garbage collector, what the allocator rounds up, and the eight bytes of the place in a
//! list, a tuple or an object where the value is held. Of `CPython` 3.10 to 3.13, the version that takes most counts.

/// `None`, a bool, a small int, a character: Python has it already.
pub const SHARED: usize = 8;
/// A float, or an int of up to 60 bits.
pub const NUMBER: usize = 40;
/// An int of more bits.
pub const LONG_INT: usize = 56;
/// A text, without its characters: they were counted as bytes of the message.
pub const TEXT: usize = 80;
/// Bytes, without the content.
pub const BYTES: usize = 56;
/// A list or a tuple without items; each of these counts its place itself.
pub const LIST: usize = 72;
/// An object of a class such as `Decimal`, `UUID`, `Ext` or an array's, made of a single value.
pub const OBJECT: usize = 128;
/// What an extension around a value adds to it.
pub const EXTENSION: usize = 48;
/// What a reference takes: its receiver keeps track of it with a lock and several objects.
pub const REFERENCE: usize = 6400;

/// The first size of a table.
const FIRST: usize = 8;

/// A dict of so many keys. Keys and values are not in it.
#[must_use]
pub fn dict(keys: usize) -> usize {
    /// The dict itself.
    const EMPTY: usize = 72;
    /// The header of its table.
    const TABLE: usize = 48;
    /// A hash, a key and a value.
    const ENTRY: usize = 24;
    if keys == 0 {
        return EMPTY;
    }
    let size = keys.saturating_mul(3).div_ceil(2).checked_next_power_of_two().unwrap_or(usize::MAX / 64).max(FIRST);
    let index = match size {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        _ => 4,
    };
    EMPTY + TABLE + size * index + size * 2 / 3 * ENTRY
}

/// What a dict of so many keys takes more when it gets one more.
#[must_use]
pub fn one_key_more(keys: usize) -> usize {
    dict(keys + 1) - dict(keys)
}

/// A set or a frozenset of so many members. These are not in it.
#[must_use]
pub fn set(members: usize) -> usize {
    /// The set itself, which has the first table in it.
    const EMPTY: usize = 232;
    /// A hash and a member.
    const ENTRY: usize = 16;
    /// From so many members on, the table doubles; before, it becomes four times as large.
    const MANY: usize = 50_000;
    let mut size = FIRST;
    // The table grows as soon as three fifths of it are taken.
    loop {
        let most = (size * 3 - 3).div_ceil(5);
        if members < most {
            break;
        }
        let larger = if most > MANY { most * 2 } else { most * 4 };
        size = (larger + 1).next_power_of_two();
    }
    if size == FIRST { EMPTY } else { EMPTY + size * ENTRY }
}

#[cfg(test)]
mod tests {
    use super::{dict, set};

    /// What `sys.getsizeof` says in `CPython` 3.10, with the place of 8 bytes.
    #[test]
    fn tables_are_as_large_as_pythons() {
        for (keys, size) in
            [(0, 64), (1, 232), (5, 232), (6, 360), (10, 360), (11, 640), (21, 640), (22, 1176), (43, 2272)]
        {
            let difference = dict(keys).abs_diff(size + 8);
            assert!(difference <= 16, "{keys} keys: {} and {size}", dict(keys));
        }
        for (members, size) in [(0, 216), (4, 216), (5, 728), (18, 728), (19, 2264), (76, 2264), (77, 8408)] {
            let difference = set(members).abs_diff(size + 8);
            assert!(difference <= 16, "{members} members: {} and {size}", set(members));
        }
        assert_eq!(dict(1_000_000).abs_diff(41_943_136 + 8) / 1024, 0);
        assert_eq!(set(1_000_000).abs_diff(33_554_648 + 8) / 1024, 0);
    }
}
