//! References to objects: as values inside a message, and in release frames.

use std::num::NonZeroU64;

use crate::malformed::Malformed;
use crate::msgpack::step;

/// The first bytes of a reference in msgpack: an extension of 9 bytes, of nearcall's type 8. The giver and the number
/// follow.
const HEAD: [u8; 3] = [0xc7, 9, 8];
/// Bytes of a reference in msgpack.
const LEN: usize = HEAD.len() + 9;

/// The side that gave the object of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Giver {
    /// The sender, with this message: the receiver holds the object once more.
    Sender,
    /// The receiver: its own object is passed back.
    Receiver,
}

/// Calls `found` for every reference in a msgpack value. Stops at a malformed value: the decoder describes the error.
pub fn references_in(mut bytes: &[u8], mut found: impl FnMut(Giver, NonZeroU64)) {
    let mut expected: u64 = 1;
    while expected > 0 && !bytes.is_empty() {
        let Some(step) = step(bytes) else { return };
        if let Some(reference) = bytes.first_chunk::<LEN>()
            && let Some((giver, id)) = parse(reference)
        {
            found(giver, id);
        }
        expected = (expected - 1).saturating_add(step.inside);
        bytes = &bytes[step.skip..];
    }
}

/// Whether the first msgpack value has the head of a reference.
#[inline]
pub(crate) fn is_reference(bytes: &[u8]) -> bool {
    bytes.starts_with(&HEAD)
}

fn parse(reference: &[u8; LEN]) -> Option<(Giver, NonZeroU64)> {
    let (head, data) = reference.split_first_chunk::<3>()?;
    let (&giver, id) = data.split_first()?;
    let giver = match giver {
        0 => Giver::Sender,
        1 => Giver::Receiver,
        _ => return None,
    };
    let id = NonZeroU64::new(u64::from_le_bytes(*id.first_chunk()?))?;
    (*head == HEAD).then_some((giver, id))
}

/// The references that a side holds less often now: the payload of a release frame.
///
/// ```text
/// (u64 reference | u32 how many), again and again
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Released(pub Vec<(NonZeroU64, u32)>);

/// Bytes of one entry.
const ENTRY: usize = 12;

impl Released {
    /// The payload of the frame.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.0.len() * ENTRY);
        for (id, count) in &self.0 {
            out.extend_from_slice(&id.get().to_le_bytes());
            out.extend_from_slice(&count.to_le_bytes());
        }
        out
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// [`Malformed`] if the payload is not a whole number of entries, or an entry releases nothing.
    pub fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let (entries, rest) = payload.as_chunks::<ENTRY>();
        if !rest.is_empty() || entries.is_empty() {
            return Err(Malformed("a release frame has no whole number of entries"));
        }
        let read = |entry: &[u8; ENTRY]| {
            let (id, count) = entry.split_first_chunk::<8>()?;
            let count = u32::from_le_bytes(*count.first_chunk()?);
            Some((NonZeroU64::new(u64::from_le_bytes(*id))?, count)).filter(|_| count > 0)
        };
        let all: Option<Vec<_>> = entries.iter().map(read).collect();
        all.map(Self).ok_or(Malformed("an entry of a release frame releases nothing"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> NonZeroU64 {
        NonZeroU64::new(number).expect("not 0")
    }

    fn found(bytes: &[u8]) -> Vec<(Giver, u64)> {
        let mut all = Vec::new();
        references_in(bytes, |giver, id| all.push((giver, id.get())));
        all
    }

    #[test]
    fn references_are_found_wherever_they_stand_and_nothing_else_is_taken_for_one() {
        let given = b"\xc7\x09\x08\x00\x05\0\0\0\0\0\0\0";
        let home = b"\xc7\x09\x08\x01\x06\0\0\0\0\0\0\0";
        assert_eq!(found(given), [(Giver::Sender, 5)]);
        let list = [b"\x93\x01".as_slice(), home, b"\x81\xa1k", given].concat();
        assert_eq!(found(&list), [(Giver::Receiver, 6), (Giver::Sender, 5)]);
        // Inside a tuple where a type says `any`: nearcall's extension 4.
        let tuple = [b"\xc7\x0d\x04\x91".as_slice(), given].concat();
        assert_eq!(found(&tuple), [(Giver::Sender, 5)]);
        // The bytes of a reference in a string, and behind the value.
        assert_eq!(found(&[b"\xc4\x0c".as_slice(), given].concat()), []);
        assert_eq!(found(&[b"\x01".as_slice(), given].concat()), []);
        assert_eq!(found(b"\xc7\x09\x08\x00\0\0\0\0\0\0\0\0"), [], "0 is no reference");
        assert_eq!(found(b"\xc7\x09\x08\x02\x05\0\0\0\0\0\0\0"), [], "nobody gave it");
        for cut in 0..list.len() {
            found(&list[..cut]);
        }
    }

    #[test]
    fn what_is_released_comes_back() {
        let released = Released(vec![(id(7), 1), (id(u64::MAX), u32::MAX)]);
        let payload = released.encode();
        assert_eq!(Released::decode(&payload), Ok(released));
        for cut in 1..ENTRY {
            assert!(Released::decode(&payload[..cut]).is_err(), "cut at {cut}");
        }
        assert!(Released::decode(&[]).is_err());
        assert!(Released::decode(&[0; ENTRY]).is_err(), "0 is no reference");
        assert!(Released::decode(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).is_err(), "none of it");
    }
}
