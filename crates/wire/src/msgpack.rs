//! Reads msgpack one value at a time: its shape, and where the next value begins. Makes no values.

/// nearcall's own extension types whose data is one msgpack value: see `docs/protocol.md`.
const NESTING: std::ops::RangeInclusive<u8> = 4..=7;
/// The extension types among them that become a set.
const SETS: std::ops::RangeInclusive<u8> = 5..=6;
/// The extension type of arrays. Its data are a msgpack value: a type may be a list of a thousand fields.
pub(crate) const ARRAY: u8 = 2;

/// The shape of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A value without values inside.
    Single,
    List,
    Map,
    /// An extension around a list that becomes a set.
    Set,
    /// An extension around a value of any kind.
    Extension,
}

/// The first value of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) shape: Shape,
    /// How many values are directly inside. The keys and values of a map each count.
    pub(crate) inside: u64,
    /// Bytes to the next value, which is the first value inside if there is one.
    pub(crate) skip: usize,
}

/// The big-endian number behind the first byte.
#[inline]
pub(crate) fn number(bytes: &[u8], width: usize) -> Option<u64> {
    bytes.get(1..=width).map(|digits| digits.iter().fold(0, |sum, &digit| sum << 8 | u64::from(digit)))
}

/// By first byte: the length of values whose length is fixed and that have no values inside; 0 for all others.
pub(crate) const FIXED: [u8; 256] = {
    let mut lengths = [0; 256];
    let mut code = 0;
    while code < 256 {
        lengths[code] = match code {
            0x00..=0x7f | 0xc0..=0xc3 | 0xe0..=0xff => 1,
            0xa0..=0xbf => 1 + (code & 0x1f) as u8,
            0xcc | 0xd0 => 2,
            0xcd | 0xd1 => 3,
            0xca | 0xce | 0xd2 => 5,
            0xcb | 0xcf | 0xd3 => 9,
            _ => 0,
        };
        code += 1;
    }
    lengths
};

/// Splits the bytes behind the first value and everything inside it; `None` if the value is malformed.
pub(crate) fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (mut rest, mut left) = (bytes, 1_u64);
    while left > 0 {
        let step = step(rest)?;
        rest = &rest[step.skip..];
        left = (left - 1).checked_add(step.inside)?;
    }
    Some(bytes.split_at(bytes.len() - rest.len()))
}

/// The content of a text.
pub(crate) fn text(value: &[u8]) -> Option<&[u8]> {
    match *value.first()? {
        0xa0..=0xbf => value.get(1..),
        0xd9 => value.get(2..),
        0xda => value.get(3..),
        0xdb => value.get(5..),
        _ => None,
    }
}

/// The content of bytes.
pub(crate) fn binary(value: &[u8]) -> Option<&[u8]> {
    match *value.first()? {
        0xc4 => value.get(2..),
        0xc5 => value.get(3..),
        0xc6 => value.get(5..),
        _ => None,
    }
}

/// The type and the data of an extension.
pub(crate) fn extension(value: &[u8]) -> Option<(u8, &[u8])> {
    let header = match *value.first()? {
        0xd4..=0xd8 => 2,
        0xc7 => 3,
        0xc8 => 4,
        0xc9 => 6,
        _ => return None,
    };
    Some((*value.get(header - 1)?, value.get(header..)?))
}

/// The value of a key of a map.
pub(crate) fn entry<'a>(map: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    let begin = step(map).filter(|step| step.shape == Shape::Map)?;
    let mut rest = map.get(begin.skip..)?;
    for _ in 0..begin.inside / 2 {
        let (key, behind) = split(rest)?;
        let (value, behind) = split(behind)?;
        if text(key) == Some(wanted) {
            return Some(value);
        }
        rest = behind;
    }
    None
}

/// Reads the first value; `None` if there is none, or it is malformed.
#[inline]
pub(crate) fn step(bytes: &[u8]) -> Option<Step> {
    let code = *bytes.first()?;
    let fixed = usize::from(FIXED[usize::from(code)]);
    if fixed > 0 {
        return (fixed <= bytes.len()).then_some(Step { shape: Shape::Single, inside: 0, skip: fixed });
    }
    let number = |width: usize| number(bytes, width);
    let single = |skip: usize| Some(Step { shape: Shape::Single, inside: 0, skip });
    let text = |width: usize| single(usize::try_from(number(width)?).ok()?.checked_add(1 + width)?);
    let several = |shape, inside, skip| Some(Step { shape, inside, skip });
    let extension = |header: usize, len: u64| {
        let code = *bytes.get(header - 1)?;
        if SETS.contains(&code) {
            several(Shape::Set, 1, header)
        } else if NESTING.contains(&code) {
            several(Shape::Extension, 1, header)
        } else {
            single(usize::try_from(len).ok()?.checked_add(header)?)
        }
    };
    let found = match code {
        0x80..=0x8f => several(Shape::Map, 2 * u64::from(code & 0x0f), 1),
        0x90..=0x9f => several(Shape::List, u64::from(code & 0x0f), 1),
        0xc4 | 0xd9 => text(1),
        0xc5 | 0xda => text(2),
        0xc6 | 0xdb => text(4),
        0xc7 => extension(3, number(1)?),
        0xc8 => extension(4, number(2)?),
        0xc9 => extension(6, number(4)?),
        0xd4..=0xd8 => extension(2, 1 << (code - 0xd4)),
        0xdc => several(Shape::List, number(2)?, 3),
        0xdd => several(Shape::List, number(4)?, 5),
        0xde => several(Shape::Map, 2 * number(2)?, 3),
        0xdf => several(Shape::Map, 2 * number(4)?, 5),
        _ => single(1),
    };
    found.filter(|step| step.skip <= bytes.len())
}
