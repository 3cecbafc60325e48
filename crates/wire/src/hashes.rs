//! The hashes that Python's keys have, as far as msgpack's bytes show them: those of ints. All others are asked of Python.
//!
//! "Hashing of numeric types" in Python's library reference holds for `CPython` 3.10 to 3.14.

use crate::msgpack::number;

/// Python's hashes of numbers are remainders modulo this prime.
const MODULUS: u64 = (1 << 61) - 1;

/// What becomes of a key when it is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyType {
    /// The type that msgpack gives: an int stays an int, and text becomes something with a secret hash.
    AsSent,
    /// A type of which only Python knows the hash.
    Converted,
}

impl KeyType {
    /// The hash of an encoded key; `None` if only Python knows it.
    #[must_use]
    #[inline]
    pub fn hash(self, key: &[u8]) -> Option<i64> {
        if self == Self::Converted {
            return None;
        }
        int(key).map(|(below_zero, size)| {
            let size = (size % MODULUS).cast_signed();
            // In C, -1 means an error.
            if !below_zero {
                size
            } else if size == 1 {
                -2
            } else {
                -size
            }
        })
    }

    /// Whether the hash of an encoded key depends on a secret of the process, as those of text, bytes and `None` do.
    #[inline]
    pub(crate) fn is_secret(self, key: &[u8]) -> bool {
        self == Self::AsSent && matches!(key.first(), Some(0xa0..=0xbf | 0xc0 | 0xc4..=0xc6 | 0xd9..=0xdb))
    }

    /// Whether two encoded keys are equal in Python. Right if [`hash`](Self::hash) knows both hashes.
    #[must_use]
    pub fn same(self, one: &[u8], other: &[u8]) -> bool {
        one == other || self == Self::AsSent && int(one).is_some_and(|value| int(other) == Some(value))
    }
}

/// An encoded int: whether it is below zero, and its size. Python's bools are the ints 0 and 1.
#[inline]
fn int(key: &[u8]) -> Option<(bool, u64)> {
    let natural = |width| number(key, width).map(|size| (false, size));
    let signed = |width: usize| {
        let unused = 64 - 8 * width as u32;
        number(key, width).map(|value| {
            let value = (value << unused).cast_signed() >> unused;
            (value < 0, value.unsigned_abs())
        })
    };
    match *key.first()? {
        code @ 0x00..=0x7f => Some((false, code.into())),
        code @ 0xe0..=0xff => Some((true, code.cast_signed().unsigned_abs().into())),
        code @ 0xc2..=0xc3 => Some((false, (code - 0xc2).into())),
        0xcc => natural(1),
        0xcd => natural(2),
        0xce => natural(4),
        0xcf => natural(8),
        0xd0 => signed(1),
        0xd1 => signed(2),
        0xd2 => signed(4),
        0xd3 => signed(8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::KeyType;

    #[test]
    fn hashes_of_ints_are_pythons() {
        for (bytes, expected) in [
            (&b"\x05"[..], 5),
            (b"\xff", -2), // -1
            (b"\xfe", -2),
            (b"\xe0", -32),
            (b"\xcc\xff", 255),
            (b"\xcd\xff\x00", 65280),
            (b"\xce\xff\xff\xff\xff", 4_294_967_295),
            (b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", 7),
            (b"\xcf\x1f\xff\xff\xff\xff\xff\xff\xff", 0),
            (b"\xcf\x20\x00\x00\x00\x00\x00\x00\x00", 1),
            (b"\xd0\x80", -128),
            (b"\xd1\x80\x00", -32768),
            (b"\xd2\x80\x00\x00\x00", -2_147_483_648),
            (b"\xd3\x80\x00\x00\x00\x00\x00\x00\x00", -4),
            (b"\xd3\xff\xff\xff\xff\xff\xff\xff\xff", -2),
            (b"\xd3\xe0\x00\x00\x00\x00\x00\x00\x01", 0),
            (b"\xc3", 1),
        ] {
            assert_eq!(KeyType::AsSent.hash(bytes), Some(expected), "{bytes:02x?}");
            assert_eq!(KeyType::Converted.hash(bytes), None);
        }
        for other in [&b"\xcb\0\0\0\0\0\0\0\0"[..], b"\x91\x01", b"\xa1x", b"\xcd\x01", b"\xc0", b""] {
            assert_eq!(KeyType::AsSent.hash(other), None, "{other:02x?}");
        }
    }

    #[test]
    fn one_int_in_two_encodings_is_one_key() {
        assert!(KeyType::AsSent.same(b"\x05", b"\xcc\x05"));
        assert!(KeyType::AsSent.same(b"\xff", b"\xd3\xff\xff\xff\xff\xff\xff\xff\xff"));
        assert!(KeyType::AsSent.same(b"\xc3", b"\x01"));
        // One hash, but not one number.
        assert!(!KeyType::AsSent.same(b"\xff", b"\xfe"));
        assert!(!KeyType::AsSent.same(b"\xcf\x1f\xff\xff\xff\xff\xff\xff\xff", b"\x00"));
        assert!(!KeyType::Converted.same(b"\x05", b"\xcc\x05"));
    }
}
