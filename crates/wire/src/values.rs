//! How many values a msgpack message holds, counted before any of them is made.

/// The extension types whose data is one msgpack value of nearcall's own: see `docs/protocol.md`.
const NESTING: std::ops::RangeInclusive<u8> = 4..=7;

/// Whether a msgpack value holds more than `limit` values: itself, and everything in lists, maps and nearcall's extensions.
///
/// Reads no more than it must, makes nothing, and does not recurse. Of a malformed message it says `false`: what decodes
/// the message says better what is wrong, and gets no further than this function.
#[must_use]
pub fn holds_more_than(mut bytes: &[u8], limit: usize) -> bool {
    let mut expected: u64 = 1;
    let mut seen: u64 = 0;
    let limit = limit as u64;
    while expected > 0 {
        if bytes.is_empty() {
            return false;
        }
        expected -= 1;
        seen += 1;
        let Some((inside, skip)) = step(bytes) else { return false };
        // Saturating: a list may claim 2³² values, and each of them another list.
        expected = expected.saturating_add(inside);
        // What is claimed but has no byte left to stand in is never made.
        if seen.saturating_add(expected.min((bytes.len() - skip) as u64)) > limit {
            return true;
        }
        bytes = &bytes[skip..];
    }
    false
}

/// How many values are inside the first one, and how many bytes to skip to come to the next; `None` if it is malformed.
pub(crate) fn step(bytes: &[u8]) -> Option<(u64, usize)> {
    let number = |width: usize| -> Option<usize> {
        bytes.get(1..=width).map(|digits| digits.iter().fold(0, |sum, &digit| sum << 8 | usize::from(digit)))
    };
    let extension = |header: usize, len: usize| -> Option<(u64, usize)> {
        let code = *bytes.get(header - 1)?;
        Some(if NESTING.contains(&code) { (1, header) } else { (0, header.checked_add(len)?) })
    };
    let (inside, skip) = match bytes[0] {
        code @ 0x80..=0x8f => (2 * u64::from(code & 0x0f), 1),
        code @ 0x90..=0x9f => (u64::from(code & 0x0f), 1),
        code @ 0xa0..=0xbf => (0, 1 + usize::from(code & 0x1f)),
        0xc4 | 0xd9 => (0, number(1)?.checked_add(2)?),
        0xc5 | 0xda => (0, number(2)?.checked_add(3)?),
        0xc6 | 0xdb => (0, number(4)?.checked_add(5)?),
        0xc7 => extension(3, number(1)?)?,
        0xc8 => extension(4, number(2)?)?,
        0xc9 => extension(6, number(4)?)?,
        0xcc | 0xd0 => (0, 2),
        0xcd | 0xd1 => (0, 3),
        0xca | 0xce | 0xd2 => (0, 5),
        0xcb | 0xcf | 0xd3 => (0, 9),
        code @ 0xd4..=0xd8 => extension(2, 1 << (code - 0xd4))?,
        0xdc => (number(2)? as u64, 3),
        0xdd => (number(4)? as u64, 5),
        0xde => (2 * number(2)? as u64, 3),
        0xdf => (2 * number(4)? as u64, 5),
        _ => (0, 1),
    };
    (skip <= bytes.len()).then_some((inside, skip))
}

#[cfg(test)]
mod tests {
    use super::holds_more_than;

    /// The exact count, found with the function itself.
    fn count(bytes: &[u8]) -> usize {
        (0..1000).find(|&limit| !holds_more_than(bytes, limit)).expect("few values")
    }

    #[test]
    fn counts_every_value() {
        assert_eq!(count(b"\xc0"), 1);
        assert_eq!(count(b"\x93\x01\xa2ab\xcb\0\0\0\0\0\0\0\0"), 4);
        assert_eq!(count(b"\x82\x01\x90\x02\x91\x80"), 6);
        assert_eq!(count(b"\xdc\x00\x02\xc4\x01x\xc7\x02\x09\x93\x93"), 3);
        assert_eq!(count(b"\xdd\x00\x00\x00\x02\xd9\x01x\xd6\xff\x90\x90\x90\x90"), 3);
        assert_eq!(count(b"\xde\x00\x01\x01\xc3"), 3);
    }

    #[test]
    fn looks_into_extensions_that_hold_values() {
        assert_eq!(count(b"\xc7\x03\x04\x92\x01\x02"), 4);
        assert_eq!(count(b"\x91\xd4\x05\x90"), 3);
        assert_eq!(count(b"\x91\xd4\x02\x90"), 2);
    }

    #[test]
    fn a_claim_counts_as_far_as_there_are_bytes() {
        assert!(holds_more_than(b"\xdd\xff\xff\xff\xff\x80\x80\x80\x80", 4));
        assert!(!holds_more_than(b"\xdd\xff\xff\xff\xff\x80\x80\x80\x80", 5));
        assert!(!holds_more_than(b"\xdf\xff\xff\xff\xff\xdf\xff\xff\xff\xff", 10));
    }

    #[test]
    fn whatever_is_malformed_comes_to_an_end() {
        let mut state = 1_u64;
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..24)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 56) as u8
                })
                .collect();
            assert!(!holds_more_than(&bytes, 25));
            for len in 0..bytes.len() {
                let _ = holds_more_than(&bytes[..len], 3);
            }
        }
    }
}
