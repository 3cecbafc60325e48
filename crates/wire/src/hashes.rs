//! Computes Python's hash of a key from its msgpack bytes.
//!
//! Numbers: "Hashing of numeric types" in Python's library reference. Tuples: the comment above `tuple_hash` in `CPython`'s
//! `Objects/tupleobject.c`, which describes its variant of xxHash. Both hold for `CPython` 3.10 to 3.14.

use crate::msgpack::number;

/// Python's hashes of numbers are remainders modulo this prime.
const MODULUS: u64 = (1 << BITS) - 1;
const BITS: u32 = 61;
const HASH_OF_INFINITY: i64 = 314_159;
/// The hash since Python 3.12. In older versions it is an address.
const HASH_OF_NONE: i64 = 0xfca8_6420;
/// How deeply nested tuples may be to be hashed here.
const DEEPEST: u32 = 8;
/// nearcall's extension type of tuples in values of type `Any`.
const TUPLE: u8 = 4;

/// The Python type of a key, as far as the hash depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyType {
    /// The type that msgpack gives: an int becomes an int, an array a tuple.
    AsSent,
    /// Like `AsSent`, but ints become floats.
    Float,
    /// Text or 16 bytes become a `UUID`.
    Uuid,
    /// An array of this many values becomes a tuple.
    Tuple(Vec<KeyType>),
    /// An array of any length becomes a tuple.
    Tuples(Box<KeyType>),
    /// Only Python can hash the key.
    Other,
}

/// What is known of a key's hash from its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyHash {
    /// This is the hash.
    Is(i64),
    /// The hash depends on a secret of the process.
    Secret,
    /// Only Python knows the hash.
    Unknown,
}

/// The first value of some bytes. Of an array, only the number of its values, which follow.
#[derive(Debug, Clone, Copy)]
enum Atom<'a> {
    None,
    Int { below_zero: bool, size: u64 },
    Float(f64),
    Text(&'a [u8]),
    Bytes(&'a [u8]),
    Uuid(u128),
    Array(u64),
}

impl KeyType {
    /// Computes the hash of an encoded key.
    #[must_use]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        match self.walk(key, 0) {
            Some((KeyHash::Is(_), _)) if *self != Self::Uuid && is_text(key) => KeyHash::Secret,
            Some((hash, _)) => hash,
            None => KeyHash::Unknown,
        }
    }

    /// Whether the hash of an encoded key is a secret of the process. Does not look at the rest of the key.
    #[inline]
    pub(crate) fn is_secret(&self, key: &[u8]) -> bool {
        matches!(self, Self::AsSent | Self::Float) && is_text(key)
    }

    /// Whether two encoded keys, whose hashes are known, are equal in Python.
    #[must_use]
    pub fn same(&self, one: &[u8], other: &[u8]) -> bool {
        one == other || self.equal(one, other, 0).is_some()
    }

    /// The hash of the first value, and where the value ends; `None` if only Python knows the hash.
    fn walk(&self, bytes: &[u8], depth: u32) -> Option<(KeyHash, usize)> {
        let (atom, mut at) = self.atom(bytes)?;
        let hash = match atom {
            Atom::None => HASH_OF_NONE,
            Atom::Int { below_zero, size } => of_int(below_zero, size),
            Atom::Float(value) if value.is_nan() => return Some((KeyHash::Secret, at)),
            Atom::Float(value) => of_float(value),
            Atom::Text(text) | Atom::Bytes(text) => of_text(text),
            Atom::Uuid(number) => of_uuid(number),
            Atom::Array(count) => {
                let mut tuple = TupleHash::new();
                let mut secret = false;
                for index in 0..count {
                    let (hash, len) = self.item(index, count, depth)?.walk(&bytes[at..], depth + 1)?;
                    at += len;
                    match hash {
                        KeyHash::Is(hash) => tuple.add(hash),
                        _ => secret = true,
                    }
                }
                if secret {
                    return Some((KeyHash::Secret, at));
                }
                tuple.end(count)
            }
        };
        Some((KeyHash::Is(hash), at))
    }

    /// Where two values end, if they are equal; else `None`.
    fn equal(&self, one: &[u8], other: &[u8], depth: u32) -> Option<(usize, usize)> {
        let ((left, mut at), (right, mut other_at)) = (self.atom(one)?, self.atom(other)?);
        let equal = match (left, right) {
            (Atom::Array(count), Atom::Array(other_count)) if count == other_count => {
                for index in 0..count {
                    let (len, other_len) =
                        self.item(index, count, depth)?.equal(&one[at..], &other[other_at..], depth + 1)?;
                    at += len;
                    other_at += other_len;
                }
                true
            }
            (Atom::None, Atom::None) => true,
            (Atom::Text(left), Atom::Text(right)) | (Atom::Bytes(left), Atom::Bytes(right)) => left == right,
            (Atom::Uuid(left), Atom::Uuid(right)) => left == right,
            (Atom::Int { .. } | Atom::Float(_), Atom::Int { .. } | Atom::Float(_)) => {
                number_of(left) == number_of(right)
            }
            _ => false,
        };
        equal.then_some((at, other_at))
    }

    fn item(&self, index: u64, count: u64, depth: u32) -> Option<&Self> {
        if depth == DEEPEST {
            return None;
        }
        match self {
            Self::Tuple(items) if items.len() as u64 == count => items.get(usize::try_from(index).ok()?),
            Self::Tuples(item) => Some(item),
            Self::AsSent | Self::Float => Some(&Self::AsSent),
            _ => None,
        }
    }

    #[inline]
    fn atom<'a>(&self, bytes: &'a [u8]) -> Option<(Atom<'a>, usize)> {
        let (atom, len) = atom(bytes)?;
        let atom = match (self, atom) {
            (Self::Other, _) => return None,
            (Self::Uuid, Atom::Text(text)) => Atom::Uuid(uuid_in(text)?),
            (Self::Uuid, Atom::Bytes(bytes)) => Atom::Uuid(u128::from_be_bytes(bytes.try_into().ok()?)),
            (Self::Float, Atom::Int { below_zero, size }) => {
                Atom::Float(if below_zero { -(size as f64) } else { size as f64 })
            }
            (_, atom) => atom,
        };
        Some((atom, len))
    }
}

#[inline]
fn is_text(key: &[u8]) -> bool {
    matches!(key.first(), Some(0xa0..=0xbf | 0xc4..=0xc6 | 0xd9..=0xdb))
}

#[inline]
fn atom(bytes: &[u8]) -> Option<(Atom<'_>, usize)> {
    let natural = |width| Some((Atom::Int { below_zero: false, size: number(bytes, width)? }, 1 + width));
    let signed = |width: usize| {
        let unused = 64 - 8 * u32::try_from(width).ok()?;
        let value = (number(bytes, width)? << unused).cast_signed() >> unused;
        Some((Atom::Int { below_zero: value < 0, size: value.unsigned_abs() }, 1 + width))
    };
    let content = |header: usize, len: u64| {
        let end = header.checked_add(usize::try_from(len).ok()?)?;
        Some((bytes.get(header..end)?, end))
    };
    let text = |header, len| content(header, len).map(|(content, end)| (Atom::Text(content), end));
    let binary = |header, len| content(header, len).map(|(content, end)| (Atom::Bytes(content), end));
    let array = |header, count| Some((Atom::Array(count), header));
    // Checked before the call, so that extensions inside extensions do not make this function recurse deeply.
    let extension = |header: usize| match (bytes.get(header - 1)?, bytes.get(header)?) {
        (&TUPLE, 0x90..=0x9f | 0xdc | 0xdd) => atom(&bytes[header..]).map(|(array, len)| (array, header + len)),
        _ => None,
    };
    match *bytes.first()? {
        code @ 0x00..=0x7f => Some((Atom::Int { below_zero: false, size: u64::from(code) }, 1)),
        code @ 0xe0..=0xff => {
            Some((Atom::Int { below_zero: true, size: u64::from(code.cast_signed().unsigned_abs()) }, 1))
        }
        0xc0 => Some((Atom::None, 1)),
        // Python's bools are the ints 0 and 1.
        code @ 0xc2..=0xc3 => Some((Atom::Int { below_zero: false, size: u64::from(code - 0xc2) }, 1)),
        0xcc => natural(1),
        0xcd => natural(2),
        0xce => natural(4),
        0xcf => natural(8),
        0xd0 => signed(1),
        0xd1 => signed(2),
        0xd2 => signed(4),
        0xd3 => signed(8),
        0xca => Some((Atom::Float(f64::from(f32::from_bits(u32::try_from(number(bytes, 4)?).ok()?))), 5)),
        0xcb => Some((Atom::Float(f64::from_bits(number(bytes, 8)?)), 9)),
        code @ 0xa0..=0xbf => text(1, u64::from(code & 0x1f)),
        0xd9 => text(2, number(bytes, 1)?),
        0xda => text(3, number(bytes, 2)?),
        0xdb => text(5, number(bytes, 4)?),
        0xc4 => binary(2, number(bytes, 1)?),
        0xc5 => binary(3, number(bytes, 2)?),
        0xc6 => binary(5, number(bytes, 4)?),
        code @ 0x90..=0x9f => array(1, u64::from(code & 0x0f)),
        0xdc => array(3, number(bytes, 2)?),
        0xdd => array(5, number(bytes, 4)?),
        0xd4..=0xd8 => extension(2),
        0xc7 => extension(3),
        0xc8 => extension(4),
        0xc9 => extension(6),
        _ => None,
    }
}

/// A form of a number in which equal numbers are equal: a whole number, or the bits of another float.
fn number_of(atom: Atom<'_>) -> (i128, u64) {
    match atom {
        Atom::Int { below_zero: true, size } => (-i128::from(size), 0),
        Atom::Int { size, .. } => (i128::from(size), 0),
        // All floats of this size are exact as i128.
        Atom::Float(value) if value.fract() == 0.0 && value.abs() < 1e30 => (value as i128, 0),
        Atom::Float(value) => (0, value.to_bits()),
        _ => (0, 0),
    }
}

/// The number in the text of a `UUID`: 32 hexadecimal digits, or 36 characters with hyphens.
fn uuid_in(text: &[u8]) -> Option<u128> {
    let hyphens = match text.len() {
        32 => false,
        36 => true,
        _ => return None,
    };
    let mut number = 0_u128;
    let mut wrong = 0;
    for (at, &digit) in text.iter().enumerate() {
        if hyphens && matches!(at, 8 | 13 | 18 | 23) {
            wrong |= digit ^ b'-';
            continue;
        }
        let value = DIGITS[usize::from(digit)];
        wrong |= value & 0xf0;
        number = number << 4 | u128::from(value & 0x0f);
    }
    (wrong == 0).then_some(number)
}

/// The value of each hexadecimal digit; 255 for all other bytes.
const DIGITS: [u8; 256] = {
    let mut values = [255; 256];
    let mut value = 0_u8;
    while value < 16 {
        if value < 10 {
            values[(b'0' + value) as usize] = value;
        } else {
            values[(b'a' + value - 10) as usize] = value;
            values[(b'A' + value - 10) as usize] = value;
        }
        value += 1;
    }
    values
};

/// A valid hash: in C, -1 means an error.
fn not_an_error(hash: i64) -> i64 {
    if hash == -1 { -2 } else { hash }
}

fn of_int(below_zero: bool, size: u64) -> i64 {
    let hash = (size % MODULUS).cast_signed();
    not_an_error(if below_zero { -hash } else { hash })
}

/// The hash of a `UUID`, which is the hash of its number. Because 2**61 leaves the remainder 1, the digits of 61 bits
/// are added.
fn of_uuid(number: u128) -> i64 {
    let digit = |at: u32| (number >> (BITS * at)) as u64 & MODULUS;
    ((digit(0) + digit(1) + digit(2)) % MODULUS).cast_signed()
}

/// A float is m * 2**e. Because 2**61 leaves the remainder 1, the power of two rotates the bits of m in a circle of 61.
fn of_float(value: f64) -> i64 {
    let hash = if value.is_infinite() {
        HASH_OF_INFINITY
    } else {
        let bits = value.to_bits();
        let (fraction, exponent) = (bits & ((1 << 52) - 1), (bits >> 52 & 0x7ff) as i32);
        let (whole, power) = if exponent == 0 { (fraction, -1074) } else { (fraction | 1 << 52, exponent - 1075) };
        let turn = power.rem_euclid(BITS.cast_signed()).cast_unsigned();
        ((whole << turn & MODULUS) | whole >> (BITS - turn)).cast_signed()
    };
    not_an_error(if value < 0.0 { -hash } else { hash })
}

/// A number in place of the hash of a text or bytes, which cannot be predicted. The hash of an empty text is known.
fn of_text(text: &[u8]) -> i64 {
    if text.is_empty() {
        return 0;
    }
    let mut mixed = text.len() as u64;
    for eight in text.chunks(8) {
        let mut digits = [0; 8];
        digits[..eight.len()].copy_from_slice(eight);
        mixed = scattered(mixed ^ u64::from_le_bytes(digits));
    }
    not_an_error(mixed.cast_signed())
}

/// A well mixed number for each number.
#[inline]
pub(crate) fn scattered(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// The hash of a tuple, from the hashes of its values: the rounds of xxHash64 with one lane, and a different end.
struct TupleHash(u64);

impl TupleHash {
    // The primes of xxHash64.
    const PRIME_1: u64 = 11_400_714_785_074_694_791;
    const PRIME_2: u64 = 14_029_467_366_897_019_727;
    const PRIME_5: u64 = 2_870_177_450_012_600_261;
    /// Keeps the hash of the empty tuple as in older versions.
    const OF_EMPTY: u64 = 3_527_539;
    const NOT_AN_ERROR: i64 = 1_546_275_796;

    fn new() -> Self {
        Self(Self::PRIME_5)
    }

    fn add(&mut self, hash: i64) {
        let mixed = self.0.wrapping_add(hash.cast_unsigned().wrapping_mul(Self::PRIME_2));
        self.0 = mixed.rotate_left(31).wrapping_mul(Self::PRIME_1);
    }

    fn end(self, count: u64) -> i64 {
        let hash = self.0.wrapping_add(count ^ Self::PRIME_5 ^ Self::OF_EMPTY).cast_signed();
        if hash == -1 { Self::NOT_AN_ERROR } else { hash }
    }
}

#[cfg(test)]
mod tests {
    use super::{KeyHash, KeyType};

    fn is(key_type: &KeyType, key: &[u8], expected: i64) {
        assert_eq!(key_type.hash(key), KeyHash::Is(expected), "{key:02x?}");
    }

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
            is(&KeyType::AsSent, bytes, expected);
        }
    }

    #[test]
    fn hashes_of_floats_are_pythons() {
        for (value, expected) in [
            (0.5, 1_152_921_504_606_846_976),
            (-0.0, 0),
            (1.5, 1_152_921_504_606_846_977),
            (-1.0, -2),
            (f64::INFINITY, 314_159),
            (f64::NEG_INFINITY, -314_159),
            (5e-324, 1 << 24),
        ] {
            is(&KeyType::Float, &[&[0xcb][..], &value.to_be_bytes()].concat(), expected);
        }
        is(&KeyType::Float, b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", 8); // 2**64
        assert_eq!(KeyType::Float.hash(&[&[0xcb][..], &f64::NAN.to_be_bytes()].concat()), KeyHash::Secret);
    }

    #[test]
    fn hashes_of_tuples_are_pythons() {
        let pairs = KeyType::Tuple(vec![KeyType::AsSent, KeyType::AsSent]);
        is(&KeyType::AsSent, b"\x90", 5_740_354_900_026_072_187);
        is(&pairs, b"\x92\x01\x02", -3_550_055_125_485_641_917);
        is(&KeyType::AsSent, b"\xd6\x04\x92\x01\x02\x00", -3_550_055_125_485_641_917);
        assert_eq!(pairs.hash(b"\x93\x01\x02\x03"), KeyHash::Unknown);
        assert_eq!(pairs.hash(b"\x92\x01"), KeyHash::Unknown);
        assert_eq!(KeyType::AsSent.hash(&[0x91].repeat(1_000_000)), KeyHash::Unknown);
        assert_eq!(KeyType::AsSent.hash(&[0xd4, 4].repeat(1_000_000)), KeyHash::Unknown);
    }

    #[test]
    fn a_uuid_has_the_hash_of_its_number() {
        for text in ["ffffffff-ffff-ffff-ffff-ffffffffffff", "FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"] {
            is(&KeyType::Uuid, &[&[0xd9, u8::try_from(text.len()).expect("short")], text.as_bytes()].concat(), 63);
        }
        is(&KeyType::Uuid, &[&[0xc4, 16][..], &[0xff; 16]].concat(), 63);
        assert_eq!(KeyType::Uuid.hash(b"\xa1x"), KeyHash::Unknown);
    }

    #[test]
    fn keys_are_the_same_as_in_python() {
        for (one, other, expected) in [
            (&b"\x05"[..], &b"\xcc\x05"[..], true),
            (b"\x01", b"\xc3", true),
            (b"\xff", b"\xfe", false),
            (b"\xca\x3f\x80\x00\x00", b"\x01", true),
            (b"\x92\x01\xa1x", b"\xdc\x00\x02\xcc\x01\xd9\x01x", true),
            (b"\x92\x01\xa1x", b"\x92\x01\xc4\x01x", false),
            (b"\xcf\x1f\xff\xff\xff\xff\xff\xff\xff", b"\x00", false),
            (b"\x91\xff", b"\x91\xfe", false),
        ] {
            assert_eq!(KeyType::AsSent.same(one, other), expected, "{one:02x?} {other:02x?}");
        }
        let large = |last| [&[0xcf, 0, 0x20, 0, 0, 0, 0, 0][..], &[last]].concat(); // 2**53 and behind
        assert!(KeyType::Float.same(&large(0), &large(1)));
        assert!(!KeyType::AsSent.same(&large(0), &large(1)));
    }
}
