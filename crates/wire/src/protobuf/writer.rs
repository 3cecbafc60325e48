//! Writes a message.

use super::{BYTES, VARINT};

/// From this length in bytes on, a part is not moved when it ends: it would be moved once for each part around it, which
/// for a long text deep inside others is gigabytes.
const LONG: usize = 1 << 10;

/// Appends fields to a message. The length of an inner message is known only when it is written, so one byte is left
/// free for the length, and a message longer than 127 bytes is moved. That is less work than walking the values twice.
/// Long messages are moved when all is written, all at once.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    /// Long parts, each with where the byte for its length is, and its length when all is done.
    long: Vec<(usize, usize)>,
    /// The bytes that the lengths of the long parts need besides.
    more: usize,
}

impl Writer {
    /// A writer with some room.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ..Self::default() }
    }

    /// How many bytes were written, whole parts with their lengths.
    #[inline]
    pub fn written(&self) -> usize {
        self.bytes.len() + self.more
    }

    /// What was written since [`written`](Self::written) was `len`, if no long part is among it. Else other bytes, more of them.
    #[inline]
    pub fn since(&self, len: usize) -> &[u8] {
        &self.bytes[len.saturating_sub(self.more)..]
    }

    /// Removes what was written [`since`](Self::since), without a long part among it.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len - self.more);
    }

    /// The bytes that were written.
    pub fn into_bytes(mut self) -> Vec<u8> {
        if self.long.is_empty() {
            return self.bytes;
        }
        self.long.sort_unstable();
        let mut end = self.bytes.len();
        let mut to = end + self.more;
        self.bytes.resize(to, 0);
        // From the back, so that every byte is moved once.
        for &(at, len) in self.long.iter().rev() {
            to -= end - (at + 1);
            self.bytes.copy_within(at + 1..end, to);
            let (digits, count) = digits(len);
            to -= count;
            self.bytes[to..to + count].copy_from_slice(&digits[..count]);
            end = at;
        }
        debug_assert_eq!(to, end, "the lengths need as much as was counted");
        self.bytes
    }

    /// Appends a field's number and wire type.
    #[inline]
    pub fn tag(&mut self, number: u32, wire_type: u8) {
        self.varint(u64::from(number) << 3 | u64::from(wire_type));
    }

    /// Appends the tag of a field whose bytes follow.
    #[inline]
    pub fn bytes_tag(&mut self, number: u32) {
        self.tag(number, BYTES);
    }

    /// Appends the tag of a field with a variable-length number.
    #[inline]
    pub fn varint_tag(&mut self, number: u32) {
        self.tag(number, VARINT);
    }

    /// Appends a variable-length number.
    #[inline]
    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// Appends bytes as they are.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends the length of some bytes, and then the bytes.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        self.raw(bytes);
    }

    /// Begins a part of unknown length. Returns the argument for [`Writer::close`].
    #[inline]
    pub fn open(&mut self) -> usize {
        self.bytes.push(0);
        self.bytes.len()
    }

    /// Ends the part that began at `begin`, and writes its length in front of it.
    #[inline]
    pub fn close(&mut self, begin: usize) {
        let len = self.bytes.len() - begin;
        if len < 0x80 {
            self.bytes[begin - 1] = len as u8;
        } else {
            self.close_long(begin, len);
        }
    }

    fn close_long(&mut self, begin: usize, len: usize) {
        if len < LONG {
            let (digits, count) = digits(len);
            self.bytes.splice(begin - 1..begin, digits[..count].iter().copied());
            return;
        }
        // Those within this part are the last ones: they have begun after it.
        let within = self.long.iter().rev().take_while(|(at, _)| *at >= begin);
        let len = len + within.map(|&(_, len)| digits(len).1 - 1).sum::<usize>();
        self.long.push((begin - 1, len));
        self.more += digits(len).1 - 1;
    }
}

/// A length as it is written, and how many bytes that takes.
fn digits(len: usize) -> ([u8; 10], usize) {
    let mut digits = [0; 10];
    let (mut count, mut left) = (0, len);
    loop {
        digits[count] = (left & 0x7f) as u8 | if left >= 0x80 { 0x80 } else { 0 };
        count += 1;
        left >>= 7;
        if left == 0 {
            return (digits, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Fields, Wire};
    use super::*;

    #[test]
    fn lengths_are_right_whatever_they_are() {
        for len in [0, 1, 127, 128, 129, 16_383, 16_384, 70_000] {
            let mut out = Writer::default();
            out.bytes_tag(3);
            let begin = out.open();
            out.raw(&vec![7; len]);
            out.close(begin);
            out.varint_tag(4);
            out.varint(1);
            let out = out.into_bytes();
            let mut fields = Fields::of(&out);
            assert_eq!(fields.next(), Ok(Some((3, Wire::Bytes(&vec![7; len][..])))));
            assert_eq!(fields.next(), Ok(Some((4, Wire::Varint(1)))));
            assert_eq!(fields.next(), Ok(None));
        }
    }

    /// Parts in parts: `number` of them beside each other at each level, around `len` bytes. Written with [`Writer`], and by
    /// putting each length in front.
    fn nested(out: &mut Writer, depth: usize, number: u8, len: usize) -> Vec<u8> {
        let mut plain = Vec::new();
        for each in 0..number {
            let begin = out.open();
            let inner = if depth == 0 {
                out.raw(&vec![each; len]);
                vec![each; len]
            } else {
                nested(out, depth - 1, number, len)
            };
            out.close(begin);
            let (digits, count) = digits(inner.len());
            plain.extend([&digits[..count], &inner].concat());
            out.varint(300);
            plain.extend([0xac, 0x02]);
            assert_eq!(out.since(out.written() - 2), [0xac, 0x02]);
        }
        plain
    }

    #[test]
    fn long_parts_lie_within_others() {
        for (depth, number, len) in
            [(0, 3, LONG), (1, 2, LONG - 1), (5, 2, 100), (5, 2, LONG), (3, 3, 16_383), (90, 1, 200_000), (2, 4, 0)]
        {
            let mut out = Writer::default();
            out.raw(b"before");
            let plain = nested(&mut out, depth, number, len);
            let before = out.written();
            out.raw(b"gone");
            assert_eq!(out.since(before), b"gone");
            out.truncate(before);
            assert_eq!(out.written(), plain.len() + 6);
            let got = out.into_bytes();
            assert!(got.starts_with(b"before") && got[6..] == plain, "{depth} {number} {len}");
        }
    }
}
