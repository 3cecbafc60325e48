//! The dicts and sets that a message becomes, and the hashes of their keys, as far as the bytes show them.

use std::ops::Range;

use crate::msgpack::{Shape, number, step};
use crate::probing::{Effort, Kind, TooMuch};

/// Keys that no table of Python's is slow with, whatever they are.
const FEW: u64 = 16;
/// How deep values may be in each other. Python's own decoders end at its recursion limit of 1,000.
const DEEPEST: usize = 10_000;
/// Python's hashes of numbers are remainders of this prime.
const MODULUS: u64 = (1 << 61) - 1;

/// What to look at in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watch {
    /// Lists may become sets, because a type says so. The extension types of sets always do.
    pub lists: bool,
    /// Keys are decoded as what they are in msgpack: an int becomes an int, and a text a str.
    pub as_sent: bool,
}

/// A key of a dict or a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Where it is in the message.
    pub at: Range<usize>,
    /// Python's hash of it, if the bytes show it.
    pub hash: Option<i64>,
}

/// A dict or a set of which some hashes are unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hashed {
    /// What it becomes.
    pub kind: Kind,
    /// How many more keys there are, with hashes that nobody can foresee.
    pub random: usize,
    /// The others, in order.
    pub keys: Vec<Key>,
}

/// A value whose inner values are being gone through.
struct Open {
    left: u64,
    shape: Shape,
    /// Where the value directly in it begins that is being gone through.
    inner: usize,
    /// It is looked at: its table is the last one that has not come to its end.
    watched: Option<Kind>,
}

impl Hashed {
    fn new(kind: Kind) -> Self {
        Self { kind, random: 0, keys: Vec::new() }
    }

    fn push(&mut self, bytes: &[u8], at: Range<usize>, watch: Watch) -> Result<(), TooMuch> {
        match (watch.as_sent, hash_of(&bytes[at.clone()])) {
            (true, Known::Nowhere) => self.random += 1,
            (as_sent, known) => {
                let hash = if let (true, Known::Hash(hash)) = (as_sent, known) { Some(hash) } else { None };
                self.keys.try_reserve(1).map_err(|_| TooMuch::Memory)?;
                self.keys.push(Key { at, hash });
            }
        }
        Ok(())
    }

    /// Adds what the table costs, if all its hashes are known; gives it back if not.
    fn end(self, bytes: &[u8], effort: &mut Effort) -> Result<Option<Self>, TooMuch> {
        if self.keys.len() as u64 <= FEW {
            return Ok(None);
        }
        if self.keys.iter().any(|key| key.hash.is_none()) {
            return Ok(Some(self));
        }
        let keys = self.keys.iter().map(|key| (key.hash.unwrap_or_default(), &bytes[key.at.clone()]));
        effort.add(self.kind, self.random, keys)?;
        Ok(None)
    }
}

impl Watch {
    /// Adds up what the dicts and sets of a message cost; gives back those with hashes that the bytes do not show, inner
    /// ones first. Of a malformed message it looks at all that comes before the fault, because a decoder does so, too.
    ///
    /// # Errors
    ///
    /// [`TooMuch`]: it is not to be decoded.
    pub fn look(self, bytes: &[u8], effort: &mut Effort) -> Result<Vec<Hashed>, TooMuch> {
        let mut unknown = Vec::new();
        let mut open: Vec<Open> = Vec::new();
        let mut tables: Vec<Hashed> = Vec::new();
        let mut at = 0;
        'values: while let Some(step) = step(&bytes[at..]) {
            let in_set = open.last_mut().is_some_and(|outer| {
                outer.inner = at;
                outer.shape == Shape::Set
            });
            at += step.skip;
            if step.inside > 0 {
                if open.len() == DEEPEST {
                    return Err(TooMuch::Depth);
                }
                let watched = match step.shape {
                    Shape::Map if step.inside > 2 * FEW => Some(Kind::Dict),
                    Shape::List if step.inside > FEW && (in_set || self.lists) => Some(Kind::Set),
                    _ => None,
                };
                tables.extend(watched.map(Hashed::new));
                open.push(Open { left: step.inside, shape: step.shape, inner: at, watched });
                continue;
            }
            // The value ends here, and so may those around it.
            loop {
                let Some(outer) = open.last_mut() else { break 'values };
                if let Some(kind) = outer.watched
                    && (kind == Kind::Set || outer.left % 2 == 0)
                    && let Some(table) = tables.last_mut()
                {
                    table.push(bytes, outer.inner..at, self)?;
                }
                outer.left -= 1;
                if outer.left > 0 {
                    break;
                }
                if open.pop().is_some_and(|ended| ended.watched.is_some())
                    && let Some(table) = tables.pop()
                {
                    unknown.extend(table.end(bytes, effort)?);
                }
            }
        }
        // What has not come to its end, inner ones first.
        for table in tables.into_iter().rev() {
            unknown.extend(table.end(bytes, effort)?);
        }
        Ok(unknown)
    }
}

/// What a key's bytes show of its hash.
enum Known {
    Hash(i64),
    /// It hangs on a secret of the process.
    Nowhere,
    /// Python must be asked.
    No,
}

/// Python's hash of a key that is decoded as what it is in msgpack.
fn hash_of(key: &[u8]) -> Known {
    let signed = |width: usize| {
        let unused = 64 - 8 * u32::try_from(width).unwrap_or(8);
        number(key, width).map(|number| (number << unused).cast_signed() >> unused)
    };
    let hash = match key[0] {
        code @ 0x00..=0x7f => Some(i64::from(code)),
        code @ 0xe0..=0xff => Some(of_int(i64::from(code.cast_signed()))),
        0xcc => number(key, 1).map(of_natural),
        0xcd => number(key, 2).map(of_natural),
        0xce => number(key, 4).map(of_natural),
        0xcf => number(key, 8).map(of_natural),
        0xd0 => signed(1).map(of_int),
        0xd1 => signed(2).map(of_int),
        0xd2 => signed(4).map(of_int),
        0xd3 => signed(8).map(of_int),
        0xa0..=0xbf | 0xc4..=0xc6 | 0xd9..=0xdb => return Known::Nowhere,
        _ => None,
    };
    hash.map_or(Known::No, Known::Hash)
}

/// `hash(n)` for an int that is not negative.
fn of_natural(number: u64) -> i64 {
    (number % MODULUS).cast_signed()
}

/// `hash(n)` for an int.
fn of_int(number: i64) -> i64 {
    let hash = of_natural(number.unsigned_abs());
    match hash {
        _ if number >= 0 => hash,
        1 => -2, // -1 means an error in C
        _ => -hash,
    }
}

#[cfg(test)]
mod tests {
    use super::{Effort, Hashed, TooMuch, Watch};

    const ANY: Watch = Watch { lists: false, as_sent: true };

    fn look(watch: Watch, bytes: &[u8]) -> Result<Vec<Hashed>, TooMuch> {
        watch.look(bytes, &mut Effort::default())
    }

    #[test]
    fn hashes_are_pythons() {
        for (bytes, expected) in [
            (&b"\x05"[..], 5),
            (b"\xff", -2), // -1
            (b"\xfe", -2),
            (b"\xe0", -32),
            (b"\xcc\xff", 255),
            (b"\xcd\xff\x00", 65280),
            (b"\xce\xff\xff\xff\xff", 4_294_967_295),
            (b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", 7),
            (b"\xcf\x1f\xff\xff\xff\xff\xff\xff\xff", 0),
            (b"\xcf\x20\x00\x00\x00\x00\x00\x00\x00", 1),
            (b"\xd0\x80", -128),
            (b"\xd1\x80\x00", -32768),
            (b"\xd2\x80\x00\x00\x00", -2_147_483_648),
            (b"\xd3\x80\x00\x00\x00\x00\x00\x00\x00", -4),
            (b"\xd3\xff\xff\xff\xff\xff\xff\xff\xff", -2),
            (b"\xd3\xe0\x00\x00\x00\x00\x00\x00\x01", 0),
        ] {
            let super::Known::Hash(found) = super::hash_of(bytes) else { panic!("{bytes:?} has a hash") };
            assert_eq!(found, expected, "{bytes:02x?}");
        }
    }

    fn map(keys: impl ExactSizeIterator<Item = Vec<u8>>) -> Vec<u8> {
        let mut message = vec![0xdf];
        message.extend(u32::try_from(keys.len()).expect("few").to_be_bytes());
        for key in keys {
            message.extend(key);
            message.push(0xc0);
        }
        message
    }

    #[test]
    fn keys_whose_hash_does_not_show_are_given_back() {
        let tables = look(ANY, &map((0..100).map(|n| vec![0x92, n, 0x90]))).expect("cheap");
        assert_eq!(tables.len(), 1);
        assert_eq!((tables[0].random, tables[0].keys.len()), (0, 100));
        assert_eq!(tables[0].keys[1].at, 9..12);
        assert!(look(ANY, &map((0..100).map(|n| vec![0xa1, n]))).expect("cheap").is_empty());
        assert!(look(ANY, &map((0..100).map(|n| vec![n]))).expect("cheap").is_empty());
        let tables = look(Watch { lists: false, as_sent: false }, &map((0..100).map(|n| vec![n]))).expect("cheap");
        assert!(tables[0].keys.iter().all(|key| key.hash.is_none()));
    }

    #[test]
    fn lists_are_sets_where_a_type_says_so() {
        let list = [&[0xdc, 0, 50][..], &[0xcb, 0, 0, 0, 0, 0, 0, 0, 0].repeat(50)].concat();
        assert!(look(ANY, &list).expect("cheap").is_empty());
        assert_eq!(look(Watch { lists: true, as_sent: true }, &list).expect("cheap").len(), 1);
        let in_extension = [&[0xc9, 0, 0, 1, 197, 5][..], &list].concat();
        assert_eq!(look(ANY, &in_extension).expect("cheap").len(), 1);
    }

    #[test]
    fn what_comes_before_a_fault_is_looked_at() {
        let mut message = map((0..100).map(|n| vec![0x92, n, 0x90]));
        message.truncate(300);
        assert_eq!(look(ANY, &message).expect("cheap")[0].keys.len(), 73 + 1);
    }

    #[test]
    fn depth_has_an_end() {
        assert_eq!(look(ANY, &[0x91].repeat(20_000)), Err(TooMuch::Depth));
        assert!(look(ANY, &[0x91].repeat(9_000)).is_ok());
    }
}
