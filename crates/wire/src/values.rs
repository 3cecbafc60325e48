//! Counts the values in a msgpack message before any of them is made.

use crate::msgpack::step;
use crate::reference::is_reference;

/// A reference counts as this many values, because its receiver keeps track of it with a lock and several objects.
pub const REFERENCE_VALUES: usize = 100;

/// Whether a msgpack value holds more than `limit` values: itself, and everything in lists, maps and nearcall's extensions.
/// References count [`REFERENCE_VALUES`] each.
///
/// Reads no more than it must, makes nothing, and does not recurse. Returns `false` for a malformed message: the
/// decoder stops at the same place and describes the error better.
#[must_use]
pub fn holds_more_than(bytes: &[u8], limit: usize) -> bool {
    count_values(bytes, limit).is_none()
}

/// How many values a msgpack value holds, counted as in [`holds_more_than`]; `None` if they are more than `limit`. Of a
/// malformed message, the values before the mistake.
#[must_use]
pub fn count_values(mut bytes: &[u8], limit: usize) -> Option<usize> {
    let mut expected: u64 = 1;
    let mut seen: u64 = 0;
    let limit = limit as u64;
    while expected > 0 {
        if bytes.is_empty() {
            break;
        }
        expected -= 1;
        seen += 1;
        let Some(step) = step(bytes) else { break };
        if is_reference(bytes) {
            seen += REFERENCE_VALUES as u64 - 1;
        }
        // Saturating: a list may claim 2³² values, and each of them another list.
        expected = expected.saturating_add(step.inside);
        bytes = &bytes[step.skip..];
        // Values that are claimed but have no byte left are never made.
        if seen.saturating_add(expected.min(bytes.len() as u64)) > limit {
            return None;
        }
    }
    Some(seen as usize)
}

#[cfg(test)]
mod tests {
    use super::{REFERENCE_VALUES, holds_more_than};

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
    fn a_reference_counts_as_what_it_costs() {
        let given = b"\xc7\x09\x08\x00\x05\0\0\0\0\0\0\0";
        assert_eq!(count(given), REFERENCE_VALUES);
        assert_eq!(count(&[b"\x92\xc7\x0d\x04\x91".as_slice(), given, given].concat()), 3 + 2 * REFERENCE_VALUES);
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
