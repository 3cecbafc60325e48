//! Takes messages out of a body: a flag, a length of four bytes, the message, however DATA frames divide them.

/// Bytes before each message.
pub(crate) const PREFIX: usize = 5;

/// Memory that is reserved for a message before its bytes arrive. Little, because a length costs the sender nothing.
const AT_FIRST: usize = 64 << 10;

/// A message that has begun to arrive.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    prefix: [u8; PREFIX],
    /// How many bytes of the prefix have arrived.
    got: usize,
    bytes: Vec<u8>,
    /// Whether a message that ends the stream may occur.
    pub(crate) takes_end: bool,
}

/// The result of reading a part of a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// All bytes were taken; the message is not complete yet.
    Unfinished,
    /// A message: the last `len` of the bytes that were taken.
    Here { is_compressed: bool, len: usize },
    /// A message that arrived in several parts.
    Whole { is_compressed: bool, message: Vec<u8> },
    /// The message that ends a stream of Connect, where one may occur.
    End { is_compressed: bool, message: Vec<u8> },
    /// A message of this length, which is over the limit.
    TooLong(usize),
    /// The flag is not valid here.
    Malformed,
}

/// Bits of the flag: the message is compressed; the message ends a stream of Connect.
const COMPRESSED: u8 = 1;
pub(crate) const END_OF_STREAM: u8 = 2;

impl Assembler {
    /// Takes the next message out of `bytes`, and returns how many bytes it took.
    pub(crate) fn take(&mut self, bytes: &[u8], limit: usize) -> (usize, Piece) {
        if self.got == 0 {
            // The usual case: all of a message at once.
            if let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX>() {
                let len = length(*prefix);
                if prefix[0] <= COMPRESSED && len <= limit && len <= rest.len() {
                    return (PREFIX + len, Piece::Here { is_compressed: prefix[0] == COMPRESSED, len });
                }
            }
        }
        let head = bytes.len().min(PREFIX - self.got);
        self.prefix[self.got..self.got + head].copy_from_slice(&bytes[..head]);
        self.got += head;
        if self.got < PREFIX {
            return (head, Piece::Unfinished);
        }
        let len = length(self.prefix);
        let flag = self.prefix[0];
        if flag > if self.takes_end { COMPRESSED | END_OF_STREAM } else { COMPRESSED } {
            return (head, Piece::Malformed);
        }
        if len > limit {
            return (head, Piece::TooLong(len));
        }
        let part = (len - self.bytes.len()).min(bytes.len() - head);
        if self.bytes.capacity() == 0 {
            self.bytes.reserve_exact(len.min(AT_FIRST));
        } else if self.bytes.capacity() - self.bytes.len() < part {
            // Grows the memory by a large factor, so that little is copied, but never beyond the announced length.
            let wanted = (self.bytes.capacity() * 4).clamp(self.bytes.len() + part, len);
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
        self.bytes.extend_from_slice(&bytes[head..head + part]);
        if self.bytes.len() < len {
            return (head + part, Piece::Unfinished);
        }
        let message = std::mem::take(&mut self.bytes);
        self.got = 0;
        let is_compressed = flag & COMPRESSED != 0;
        if flag & END_OF_STREAM != 0 {
            return (head + part, Piece::End { is_compressed, message });
        }
        (head + part, Piece::Whole { is_compressed, message })
    }

    /// Whether a message has begun.
    pub(crate) fn is_inside(&self) -> bool {
        self.got > 0
    }

    /// Bytes of the message that are still to arrive, if its length is known.
    pub(crate) fn missing(&self) -> usize {
        if self.got < PREFIX { 0 } else { length(self.prefix) - self.bytes.len() }
    }

    /// Bytes of memory that the message takes.
    pub(crate) fn held(&self) -> usize {
        self.bytes.capacity()
    }
}

fn length(prefix: [u8; PREFIX]) -> usize {
    let [_, length @ ..] = prefix;
    u32::from_be_bytes(length) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_the_same_over_any_division() {
        let messages: [&[u8]; 4] = [b"", b"one", &[9; 300], b"x"];
        let mut body = Vec::new();
        for (at, message) in messages.iter().enumerate() {
            body.push((at % 2) as u8);
            body.extend_from_slice(&(message.len() as u32).to_be_bytes());
            body.extend_from_slice(message);
        }
        for size in 1..=body.len() {
            let (mut assembler, mut got) = (Assembler::default(), Vec::new());
            for mut part in body.chunks(size) {
                while !part.is_empty() {
                    let (taken, piece) = assembler.take(part, 300);
                    match piece {
                        Piece::Here { is_compressed, len } => {
                            got.push((is_compressed, part[taken - len..taken].to_vec()));
                        }
                        Piece::Whole { is_compressed, message } => got.push((is_compressed, message)),
                        Piece::Unfinished => assert_eq!(taken, part.len()),
                        other => panic!("{other:?}"),
                    }
                    part = &part[taken..];
                }
            }
            let all: Vec<_> =
                messages.iter().enumerate().map(|(at, message)| (at % 2 == 1, message.to_vec())).collect();
            assert_eq!(got, all, "parts of {size}");
            assert!(!assembler.is_inside());
        }
    }

    #[test]
    fn a_length_alone_costs_little_and_one_over_the_limit_is_said() {
        let mut assembler = Assembler::default();
        let limit = 1 << 30;
        assert_eq!(assembler.take(&[0, 0x3f, 0, 0, 0, 1], limit), (6, Piece::Unfinished));
        assert!(assembler.held() <= AT_FIRST);
        assert_eq!(assembler.missing(), 0x3f00_0000 - 1);
        assert_eq!(Assembler::default().take(&[0, 0, 0, 1, 1], 256), (5, Piece::TooLong(257)));
        assert_eq!(Assembler::default().take(&[2, 0, 0, 0, 0], 256), (5, Piece::Malformed));
    }

    #[test]
    fn the_end_of_a_stream_has_a_flag_where_it_may_come() {
        let take = |bytes: &[u8]| Assembler { takes_end: true, ..Assembler::default() }.take(bytes, 256).1;
        assert_eq!(take(&[2, 0, 0, 0, 1, b'x']), Piece::End { is_compressed: false, message: b"x".to_vec() });
        assert_eq!(take(&[3, 0, 0, 0, 1, b'x']), Piece::End { is_compressed: true, message: b"x".to_vec() });
        assert_eq!(take(&[2, 0, 0, 0, 0]), Piece::End { is_compressed: false, message: Vec::new() });
        assert_eq!(take(&[0, 0, 0, 0, 1, b'x']), Piece::Here { is_compressed: false, len: 1 });
        for flag in [4, 6, 0x80] {
            assert_eq!(take(&[flag, 0, 0, 0, 0]), Piece::Malformed);
        }
    }
}
