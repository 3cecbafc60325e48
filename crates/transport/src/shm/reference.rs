//! How a note names parts of the payload that lie in buffers, instead of carrying them.
//!
//! ```text
//! u8 count | count × (u64 at | u8 whose | u32 number | u64 offset | u64 length)
//! ```

use smallvec::SmallVec;

/// The most references that one message may have. Further parts are copied.
pub(super) const MAX_REFERENCES: usize = 32;
/// Bytes of one reference.
const LEN: usize = 29;

/// Whose memory a reference names, and so whose numbers it uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// A buffer that the sender of the note has lent to its reader.
    Sender = 0,
    /// A buffer that the reader of the note has lent to its sender, who hands it back.
    Reader = 1,
    /// A region of the reader's, with a message in it that the sender of the note still holds.
    ReaderRegion = 2,
}

/// A part of a payload that lies in memory of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reference {
    /// Where in the payload the part belongs.
    pub(super) at: u64,
    pub(super) whose: Whose,
    pub(super) number: u32,
    /// Where in the memory the part begins.
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// References of a message, in the order of the payload.
pub(super) type References = SmallVec<[Reference; 2]>;

/// Bytes that `count` references take in a note.
pub(super) const fn encoded_len(count: usize) -> usize {
    1 + count * LEN
}

pub(super) fn encode(references: &[Reference]) -> SmallVec<[u8; 64]> {
    debug_assert!(references.len() <= MAX_REFERENCES);
    let mut out = SmallVec::new();
    out.push(references.len() as u8);
    for Reference { at, whose, number, offset, len } in references {
        out.extend_from_slice(&at.to_le_bytes());
        out.push(*whose as u8);
        out.extend_from_slice(&number.to_le_bytes());
        out.extend_from_slice(&offset.to_le_bytes());
        out.extend_from_slice(&len.to_le_bytes());
    }
    out
}

/// Returns the references at the start of `bytes`, and how many bytes they take. Checks that none is empty, and that
/// they are in order and do not overlap. Whether they fit the rest of the payload is checked when that is known.
pub(super) fn decode(bytes: &[u8]) -> Result<(References, usize), &'static str> {
    const SHORT: &str = "a note ends inside its references";
    let (&count, mut left) = bytes.split_first().ok_or(SHORT)?;
    if usize::from(count) > MAX_REFERENCES {
        return Err("a message has more references than it may");
    }
    let mut references = References::new();
    let mut end = 0;
    for _ in 0..count {
        let (one, after) = left.split_first_chunk::<LEN>().ok_or(SHORT)?;
        left = after;
        let number = |at: usize| u64::from_le_bytes(one[at..at + 8].try_into().expect("8 bytes"));
        let whose = match one[8] {
            0 => Whose::Sender,
            1 => Whose::Reader,
            2 => Whose::ReaderRegion,
            _ => return Err("a reference does not say whose memory it is"),
        };
        let (at, len) = (number(0), number(21));
        if at < end || len == 0 {
            return Err("the references of a message are not in order");
        }
        end = at.checked_add(len).ok_or("a reference is longer than any message")?;
        let reference = Reference {
            at,
            whose,
            number: u32::from_le_bytes(one[9..13].try_into().expect("4 bytes")),
            offset: number(13),
            len,
        };
        references.push(reference);
    }
    Ok((references, bytes.len() - left.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(at: u64, len: u64) -> Reference {
        Reference { at, whose: Whose::Reader, number: 7, offset: 4096, len }
    }

    #[test]
    fn references_come_back() {
        let all = [reference(0, 10), reference(15, 1 << 40), reference(u64::from(u32::MAX) << 9, 1)];
        let mut bytes = encode(&all).to_vec();
        assert_eq!(bytes.len(), encoded_len(3));
        bytes.extend_from_slice(b"head");
        let (read, taken) = decode(&bytes).expect("they fit");
        assert_eq!((&read[..], taken), (&all[..], encoded_len(3)));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = |all: &[Reference]| decode(&encode(all)).is_err();
        assert!(refused(&[reference(0, 10), reference(9, 1)]), "they overlap");
        assert!(refused(&[reference(5, 1), reference(0, 1)]), "out of order");
        assert!(refused(&[reference(0, 0)]), "nothing");
        assert!(refused(&[reference(u64::MAX, 2)]));
        assert!(refused(&[reference(0, u64::MAX), reference(u64::MAX, 1)]));
        let mut bytes = encode(&[reference(0, 1)]).to_vec();
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        bytes[9] = 3;
        assert!(decode(&bytes).is_err(), "nobody's");
        bytes[0] = MAX_REFERENCES as u8 + 1;
        assert!(decode(&bytes).is_err(), "too many");
    }
}
