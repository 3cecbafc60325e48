//! Reads a message one field at a time.

use super::{BYTES, FIXED32, FIXED64, GROUP, GROUP_END, MAX_DEPTH, VARINT};
use crate::malformed::Malformed;

const CUT: Malformed = Malformed("the Protobuf message is cut off");
const LONG: Malformed = Malformed("a Protobuf varint has more than 64 bits");

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire<'a> {
    /// An integer, an enum or a bool.
    Varint(u64),
    /// Eight bytes, as a little-endian number.
    Fixed64(u64),
    /// Text, bytes, a message or packed numbers.
    Bytes(&'a [u8]),
    /// Four bytes, as a little-endian number.
    Fixed32(u32),
}

/// The fields of a message in the order of the wire, each with its number. Groups are checked and skipped.
#[derive(Debug, Clone)]
pub struct Fields<'a, 'p> {
    rest: &'a [u8],
    /// The parts of the message that follow `rest`.
    parts: &'p [&'a [u8]],
}

impl<'a> Fields<'a, '_> {
    /// The fields of one encoded message.
    pub fn of(message: &'a [u8]) -> Self {
        Self { rest: message, parts: &[] }
    }
}

impl<'a, 'p> Fields<'a, 'p> {
    /// The fields of a message that arrived in several parts, each of which is a complete message of its type. Together
    /// they are the same as the merged message. A part that is cut off is not completed by the next.
    pub fn of_parts(parts: &'p [&'a [u8]]) -> Self {
        Self { rest: &[], parts }
    }

    /// The next field; `None` at the message's end.
    ///
    /// # Errors
    ///
    /// The message is malformed.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "after an error there is no next field")]
    pub fn next(&mut self) -> Result<Option<(u32, Wire<'a>)>, Malformed> {
        loop {
            while !self.rest.is_empty() {
                let (number, kind) = self.tag()?;
                match kind {
                    GROUP => self.skip_group(number)?,
                    GROUP_END => return Err(Malformed("a Protobuf group ends that has not begun")),
                    _ => return self.value(kind).map(|value| Some((number, value))),
                }
            }
            let Some((first, others)) = self.parts.split_first() else { return Ok(None) };
            (self.rest, self.parts) = (first, others);
        }
    }

    #[inline]
    fn tag(&mut self) -> Result<(u32, u8), Malformed> {
        let tag = varint(&mut self.rest)?;
        let (number, kind) = (tag >> 3, (tag & 7) as u8);
        if number == 0 || tag > u64::from(u32::MAX) {
            return Err(Malformed("a Protobuf field has a number that is none"));
        }
        Ok((number as u32, kind))
    }

    #[inline]
    fn value(&mut self, kind: u8) -> Result<Wire<'a>, Malformed> {
        Ok(match kind {
            VARINT => Wire::Varint(varint(&mut self.rest)?),
            FIXED64 => Wire::Fixed64(u64::from_le_bytes(*array(&mut self.rest)?)),
            FIXED32 => Wire::Fixed32(u32::from_le_bytes(*array(&mut self.rest)?)),
            BYTES => {
                let len = usize::try_from(varint(&mut self.rest)?).map_err(|_| CUT)?;
                let (bytes, rest) = self.rest.split_at_checked(len).ok_or(CUT)?;
                self.rest = rest;
                Wire::Bytes(bytes)
            }
            _ => return Err(Malformed("a Protobuf field has a wire type that is none")),
        })
    }

    #[cold]
    fn skip_group(&mut self, number: u32) -> Result<(), Malformed> {
        let mut open = [0; MAX_DEPTH];
        open[0] = number;
        let mut depth = 1;
        while depth > 0 {
            let (number, kind) = self.tag()?;
            match kind {
                GROUP => {
                    *open.get_mut(depth).ok_or(Malformed("Protobuf groups are nested too deeply"))? = number;
                    depth += 1;
                }
                GROUP_END if open[depth - 1] == number => depth -= 1,
                GROUP_END => return Err(Malformed("a Protobuf group ends that has not begun")),
                _ => drop(self.value(kind)?),
            }
        }
        Ok(())
    }
}

/// Takes a variable-length number from the front.
///
/// # Errors
///
/// The number is cut off, or longer than 64 bits.
#[inline]
pub fn varint(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    match bytes.split_first() {
        Some((&first, rest)) if first < 0x80 => {
            *bytes = rest;
            Ok(u64::from(first))
        }
        _ => long_varint(bytes),
    }
}

fn long_varint(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0;
    for (index, &byte) in bytes.iter().enumerate() {
        // Ten bytes have room for 70 bits.
        if index == 9 && byte > 1 {
            return Err(LONG);
        }
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            *bytes = &bytes[index + 1..];
            return Ok(value);
        }
    }
    Err(CUT)
}

/// Takes `N` bytes from the front.
#[inline]
pub(super) fn array<'a, const N: usize>(bytes: &mut &'a [u8]) -> Result<&'a [u8; N], Malformed> {
    let (first, rest) = bytes.split_first_chunk().ok_or(CUT)?;
    *bytes = rest;
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<(u32, Wire<'_>)>, Malformed> {
        let mut fields = Fields::of(bytes);
        let mut found = Vec::new();
        while let Some(field) = fields.next()? {
            found.push(field);
        }
        Ok(found)
    }

    #[test]
    fn fields_come_in_order() {
        let bytes = b"\x08\x96\x01\x12\x02hi\x1d\x01\0\0\0\x21\x02\0\0\0\0\0\0\0";
        let expected =
            vec![(1, Wire::Varint(150)), (2, Wire::Bytes(b"hi")), (3, Wire::Fixed32(1)), (4, Wire::Fixed64(2))];
        assert_eq!(all(bytes), Ok(expected));
    }

    #[test]
    fn whatever_is_cut_off_is_an_error() {
        for whole in [&b"\x08\x96\x01"[..], b"\x12\x02hi", b"\x1d\x01\0\0\0", b"\x0b\x08\x01\x0c"] {
            assert!(all(whole).is_ok());
            for len in 1..whole.len() {
                assert!(all(&whole[..len]).is_err(), "{:?}", &whole[..len]);
            }
        }
    }

    #[test]
    fn groups_are_skipped_and_must_be_closed_as_they_were_opened() {
        assert_eq!(all(b"\x0b\x13\x08\x01\x14\x0c\x08\x02"), Ok(vec![(1, Wire::Varint(2))]));
        assert!(all(b"\x0b\x13\x0c\x14").is_err());
        assert!(all(b"\x0c").is_err());
        assert!(all(&[0x0b; 100]).is_err());
        assert_eq!(all(&[[0x0b; MAX_DEPTH], [0x0c; MAX_DEPTH]].concat()), Ok(vec![]));
        assert!(all(&[[0x0b; MAX_DEPTH + 1], [0x0c; MAX_DEPTH + 1]].concat()).is_err());
    }

    #[test]
    fn parts_are_read_one_after_the_other_and_none_makes_another_whole() {
        let read = |parts: &[&'static [u8]]| {
            let mut fields = Fields::of_parts(parts);
            let mut found = Vec::new();
            while let Some(field) = fields.next()? {
                found.push(field);
            }
            Ok::<_, Malformed>(found)
        };
        let expected = vec![(1, Wire::Varint(1)), (2, Wire::Bytes(b"hi"))];
        assert_eq!(read(&[b"", b"\x08\x01", b"", b"\x12\x02hi", b""]), Ok(expected));
        assert_eq!(read(&[]), Ok(vec![]));
        assert!(read(&[b"\x12\x02h", b"i"]).is_err());
        assert!(read(&[b"\x0b", b"\x0c"]).is_err());
    }

    #[test]
    fn numbers_that_are_too_long_are_refused() {
        assert_eq!(all(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), Ok(vec![(1, Wire::Varint(u64::MAX))]));
        assert!(all(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02").is_err());
        assert!(all(b"\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01").is_err());
        assert!(all(b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01").is_err(), "a length beyond the message");
        assert!(all(b"\0\0").is_err(), "field 0");
        assert!(all(b"\x80\x80\x80\x80\x10\0").is_err(), "a field number of more than 29 bits");
        assert!(all(b"\x0e").is_err() && all(b"\x0f").is_err(), "wire types 6 and 7");
    }
}
