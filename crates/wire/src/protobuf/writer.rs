//! Writes a message.

use super::{BYTES, VARINT};

/// Appends fields to a message. The length of an inner message is known only when it is written, so one byte is left
/// free for the length, and a message longer than 127 bytes is moved. That is less work than walking the values twice.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// A writer with some room.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes) }
    }

    /// The bytes that were written.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes that were written, as a vector.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Removes all but the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
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
        let mut digits = [0; 10];
        let (mut count, mut left) = (0, len);
        loop {
            digits[count] = (left & 0x7f) as u8 | if left >= 0x80 { 0x80 } else { 0 };
            count += 1;
            left >>= 7;
            if left == 0 {
                break;
            }
        }
        self.bytes.splice(begin - 1..begin, digits[..count].iter().copied());
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
            let mut fields = Fields::of(out.as_bytes());
            assert_eq!(fields.next(), Ok(Some((3, Wire::Bytes(&vec![7; len][..])))));
            assert_eq!(fields.next(), Ok(Some((4, Wire::Varint(1)))));
            assert_eq!(fields.next(), Ok(None));
        }
    }
}
