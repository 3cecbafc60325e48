//! Counts the values in a msgpack message before any of them is made, and the memory that they will take.

use crate::msgpack::{ARRAY, FIXED, Shape, extension, step};
use crate::reference::is_reference;
use crate::sizes;

/// A reference counts as this many values, because its receiver keeps track of it with a lock and several objects.
pub const REFERENCE_VALUES: usize = 100;

/// What a message holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weight {
    /// The values, those in lists, maps and nearcall's extensions included, and those that say the type and the shape of
    /// an array. References count [`REFERENCE_VALUES`] each.
    pub values: usize,
    /// The memory that they take in Python, apart from the message's own bytes.
    pub bytes: usize,
}

/// The memory that the values of a message take, as far as its types say more than its bytes. See [`sizes`].
#[derive(Debug, Clone)]
pub struct Weights {
    /// Values of a fixed length, by their first bytes.
    fixed: [u16; 256],
    /// The least of any value without values inside.
    least: usize,
    /// A list, with what its items have in common.
    list: usize,
    /// Whether lists may become sets, because a type says so.
    sets: bool,
    /// A map, apart from its table.
    map: usize,
    /// Whether maps may become dicts.
    dicts: bool,
}

impl Weights {
    /// For values of any type.
    pub const ANY: Self = Self::new(0, 0, false, 0, true);

    /// For certain types. `least` is the memory of the largest object that a single value may become, `list` that of the
    /// largest object that a list may become, and `map` that of a map. Whether lists may become `sets`, and maps
    /// `dicts`, decides whether their tables count.
    #[must_use]
    pub const fn new(least: u16, list: usize, sets: bool, map: usize, dicts: bool) -> Self {
        let mut fixed = [0; 256];
        let mut code = 0;
        while code < 256 {
            let weight = match code {
                0xcf | 0xd3 => sizes::LONG_INT,
                0xca..=0xce | 0xd0..=0xd2 | 0xe0..=0xff => sizes::NUMBER,
                0xa2..=0xbf => sizes::TEXT,
                _ => sizes::SHARED,
            } as u16;
            fixed[code] = if weight < least { least } else { weight };
            code += 1;
        }
        Self { fixed, least: least as usize, list: most(list, sizes::LIST), sets, map, dicts }
    }

    /// A value whose length is not fixed.
    fn of(&self, code: u8, shape: Shape, inside: usize, becomes_set: bool) -> usize {
        match shape {
            Shape::List if self.sets || becomes_set => self.list.max(sizes::set(inside)),
            Shape::List => self.list,
            Shape::Map if self.dicts => self.map.max(sizes::dict(inside / 2)),
            Shape::Map => self.map,
            Shape::Set | Shape::Extension => sizes::EXTENSION,
            Shape::Single => match code {
                0xc4..=0xc6 => self.least.max(sizes::BYTES),
                0xd9..=0xdb => self.least.max(sizes::TEXT),
                _ => self.least.max(sizes::OBJECT),
            },
        }
    }
}

const fn most(one: usize, other: usize) -> usize {
    if one > other { one } else { other }
}

/// Whether a msgpack value holds more than `limit` values: itself, and everything in lists, maps and nearcall's extensions,
/// those in an array's header, too. References count [`REFERENCE_VALUES`] each.
///
/// Reads no more than it must, makes nothing, and does not recurse. Returns `false` for a malformed message: the
/// decoder stops at the same place and describes the error better.
#[must_use]
pub fn holds_more_than(bytes: &[u8], limit: usize) -> bool {
    static ANY: Weights = Weights::ANY;
    weigh(bytes, limit, &ANY).is_none()
}

/// What a msgpack value holds, counted as in [`holds_more_than`]; `None` if these are more than `limit` values. Of a
/// malformed message, the values before the mistake.
#[must_use]
pub fn weigh(mut bytes: &[u8], limit: usize, weights: &Weights) -> Option<Weight> {
    let mut expected: u64 = 1;
    let (mut seen, mut weight) = (0_u64, 0_usize);
    let mut becomes_set = false;
    let limit = limit as u64;
    while expected > 0 {
        let Some(&code) = bytes.first() else { break };
        expected -= 1;
        seen += 1;
        let fixed = usize::from(FIXED[usize::from(code)]);
        if fixed > 0 {
            weight += usize::from(weights.fixed[usize::from(code)]);
            let Some(rest) = bytes.get(fixed..) else { break };
            bytes = rest;
            continue;
        }
        let Some(mut step) = step(bytes) else { break };
        if step.shape == Shape::Single
            && let Some((ARRAY, header)) = extension(bytes)
        {
            (step.inside, step.skip) = (1, bytes.len() - header.len());
        }
        let rest = &bytes[step.skip..];
        if is_reference(bytes) {
            seen += REFERENCE_VALUES as u64 - 1;
            weight += sizes::REFERENCE;
        }
        // Values that are claimed but have no byte left are never made.
        let inside = step.inside.min(rest.len() as u64) as usize;
        weight = weight.saturating_add(weights.of(code, step.shape, inside, becomes_set));
        becomes_set = step.shape == Shape::Set;
        // Saturating: a list may claim 2³² values, and each of them another list.
        expected = expected.saturating_add(step.inside);
        bytes = rest;
        // Looked at where values are claimed, since no other value can make them more.
        if seen.saturating_add(expected.min(bytes.len() as u64)) > limit {
            return None;
        }
    }
    (seen <= limit).then_some(Weight { values: seen as usize, bytes: weight })
}

#[cfg(test)]
mod tests {
    use super::{REFERENCE_VALUES, Weights, holds_more_than, weigh};
    use crate::sizes;

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
        // An array: two fields and a shape.
        assert_eq!(count(b"\x91\xd4\x02\x90"), 3);
        assert_eq!(count(b"\xc7\x11\x02\x94\x92\x92\xa1a\xa1b\x92\xa1c\xa1d\x91\x00\xa1C\x00"), 13);
    }

    #[test]
    fn a_reference_counts_as_what_it_costs() {
        let given = b"\xc7\x09\x08\x00\x05\0\0\0\0\0\0\0";
        assert_eq!(count(given), REFERENCE_VALUES);
        assert_eq!(count(&[b"\x92\xc7\x0d\x04\x91".as_slice(), given, given].concat()), 3 + 2 * REFERENCE_VALUES);
    }

    /// The weight of a value of any type.
    fn bytes(message: &[u8]) -> usize {
        weigh(message, 1000, &Weights::ANY).expect("few values").bytes
    }

    #[test]
    fn each_kind_of_value_has_its_weight() {
        assert_eq!(bytes(b"\x93\x01\xc0\xa1a"), sizes::LIST + 3 * sizes::SHARED);
        assert_eq!(bytes(b"\x92\xcb\0\0\0\0\0\0\0\0\xcc\xff"), sizes::LIST + 2 * sizes::NUMBER);
        assert_eq!(bytes(b"\xcf\0\0\0\0\0\0\0\0"), sizes::LONG_INT);
        assert_eq!(bytes(b"\x92\xa2ab\xd9\x03abc"), sizes::LIST + 2 * sizes::TEXT);
        assert_eq!(bytes(b"\xc4\x01x"), sizes::BYTES);
        assert_eq!(bytes(b"\xd4\x63x"), sizes::OBJECT);
        assert_eq!(bytes(b"\x81\x01\x80"), sizes::dict(1) + sizes::SHARED + sizes::dict(0));
        assert_eq!(bytes(b"\xd4\x05\x90"), sizes::EXTENSION + sizes::set(0));
        assert_eq!(bytes(b"\x91\xc7\x07\x06\x95\x01\x02\x03\x04\x05"), {
            sizes::LIST + sizes::EXTENSION + sizes::set(5) + 5 * sizes::SHARED
        });
        // An array of two dimensions, which has no elements here.
        assert_eq!(bytes(b"\xc7\x0a\x02\x94\xa3<f8\x92\x02\x03\xa1C\x00"), {
            sizes::OBJECT + 2 * sizes::LIST + sizes::TEXT + 4 * sizes::SHARED
        });
        let given = b"\xc7\x09\x08\x00\x05\0\0\0\0\0\0\0";
        assert!(bytes(given) >= sizes::REFERENCE);
    }

    #[test]
    fn types_say_what_values_become() {
        let types = Weights::new(128, 80, true, 500, false);
        let bytes = |message: &[u8]| weigh(message, 1000, &types).expect("few values").bytes;
        assert_eq!(bytes(b"\x01"), 128);
        assert_eq!(bytes(b"\xa0"), 128);
        assert_eq!(bytes(b"\xd9\x00"), 128);
        assert_eq!(bytes(b"\x90"), sizes::set(0));
        assert_eq!(bytes(b"\x81\x01\x01"), 500 + 2 * 128);
        let dicts = Weights::new(0, 300, false, 500, true);
        assert_eq!(weigh(b"\x90", 9, &dicts).expect("one value").bytes, 300);
        assert_eq!(weigh(b"\x80", 9, &dicts).expect("one value").bytes, 500);
    }

    #[test]
    fn a_claim_weighs_as_far_as_there_are_bytes() {
        assert!(bytes(b"\xdf\xff\xff\xff\xff\x80\x80\x80\x80") < 1000);
        assert!(bytes(b"\x91\xd4\x05\xdd\xff\xff\xff\xff\x01") < 1000);
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
