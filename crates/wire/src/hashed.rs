//! Finds the dicts and sets in a message, and adds up their cost if the bytes show the hashes of their keys.

use std::ops::Range;

use crate::hashes::KeyType;
use crate::msgpack::{Shape, step};
use crate::probing::{Effort, Keys, TableKind, TooMuch};

/// With so few keys, no table of Python's is slow, whatever the keys are.
const FEW: u64 = 16;
/// How deeply values may be nested. Python's own decoders stop at its recursion limit of 1,000.
const DEEPEST: usize = 10_000;

/// What to look for in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    /// Whether lists may become sets, because a type says so. The extension types of sets always do.
    pub lists: bool,
    /// The possible types of keys. All keys of one table have the same type.
    pub keys: Vec<KeyType>,
}

/// A dict or a set with hashes that are partly unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hashed {
    /// The kind of table that Python makes.
    pub kind: TableKind,
    /// How many further keys there are, with hashes that nobody can foresee.
    pub random: usize,
    /// Where the other keys are in the message, in order.
    pub keys: Vec<Range<usize>>,
}

/// A value whose inner values are being read.
struct Open {
    left: u64,
    shape: Shape,
    /// Where the current direct inner value begins.
    inner: usize,
    /// Whether the value becomes a table that is watched: the last table that is not complete.
    watched: Option<TableKind>,
}

impl Hashed {
    fn new(kind: TableKind) -> Self {
        Self { kind, random: 0, keys: Vec::new() }
    }

    /// Adds the cost of the table, for the type of keys with which it is highest.
    ///
    /// `hashes` gets a type's index in [`Watch::keys`] and appends the hashes of the keys. It may append fewer, as a
    /// decoder may stop early. It returns whether it has asked Python for any.
    ///
    /// # Errors
    ///
    /// [`TooMuch`], or the error of `hashes`.
    pub fn add<E: From<TooMuch>>(
        &self,
        bytes: &[u8],
        types: &[KeyType],
        effort: &mut Effort,
        mut hashes: impl FnMut(usize, &mut Vec<i64>) -> Result<bool, E>,
    ) -> Result<(), E> {
        let before = *effort;
        let (mut seen, mut found) = (Vec::new(), Vec::new());
        for (number, key_type) in types.iter().enumerate() {
            found.clear();
            found.try_reserve(self.keys.len()).map_err(|_| TooMuch::Memory)?;
            let asked = hashes(number, &mut found)?;
            if number > 0 && seen == found && !asked {
                continue;
            }
            let key = |at: usize| &bytes[self.keys[at].clone()];
            let mut added = before;
            added.add(
                self.kind,
                &Keys {
                    random: self.random,
                    hashes: &found,
                    bytes: key,
                    same: |one, other| key_type.same(key(one), key(other)),
                    // One key may be encoded in two ways that only Python knows to be equal.
                    exact: !asked,
                },
            )?;
            *effort = added.max(*effort);
            std::mem::swap(&mut seen, &mut found);
        }
        Ok(())
    }

    /// Adds the cost of the table if all hashes are known. Otherwise returns the table.
    fn end(self, bytes: &[u8], types: &[KeyType], effort: &mut Effort) -> Result<Option<Self>, TooMuch> {
        let len = self.keys.iter().map(Range::len).sum();
        if self.keys.len() as u64 <= FEW || effort.is_little(self.keys.len(), len, self.random) {
            return Ok(None);
        }
        let before = *effort;
        let added = self.add(bytes, types, effort, |number, hashes| {
            for key in &self.keys {
                hashes.push(types[number].hash(&bytes[key.clone()]).ok_or(Stop::AskPython)?);
            }
            Ok(false)
        });
        match added {
            Ok(()) => Ok(None),
            Err(Stop::TooMuch(why)) => Err(why),
            Err(Stop::AskPython) => {
                *effort = before;
                Ok(Some(self))
            }
        }
    }
}

/// Why a table's cost is not known.
enum Stop {
    TooMuch(TooMuch),
    AskPython,
}

impl From<TooMuch> for Stop {
    fn from(why: TooMuch) -> Self {
        Self::TooMuch(why)
    }
}

impl Watch {
    /// Adds up the cost of a message's dicts and sets. Returns those with hashes that the bytes do not show, inner ones
    /// first. In a malformed message, everything before the error is counted, because a decoder reads it, too.
    ///
    /// # Errors
    ///
    /// [`TooMuch`]: the message must not be decoded.
    pub fn look(&self, bytes: &[u8], effort: &mut Effort) -> Result<Vec<Hashed>, TooMuch> {
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
                    Shape::Map if step.inside > 2 * FEW => Some(TableKind::Dict),
                    Shape::List if step.inside > FEW && (in_set || self.lists) => Some(TableKind::Set),
                    _ => None,
                };
                tables.extend(watched.map(Hashed::new));
                open.push(Open { left: step.inside, shape: step.shape, inner: at, watched });
                continue;
            }
            // The value ends here, and so may values around it.
            loop {
                let Some(outer) = open.last_mut() else { break 'values };
                if let Some(kind) = outer.watched
                    && (kind == TableKind::Set || outer.left % 2 == 0)
                    && let Some(table) = tables.last_mut()
                {
                    self.push(table, bytes, outer.inner..at)?;
                }
                outer.left -= 1;
                if outer.left > 0 {
                    break;
                }
                if open.pop().is_some_and(|ended| ended.watched.is_some())
                    && let Some(table) = tables.pop()
                {
                    unknown.extend(table.end(bytes, &self.keys, effort)?);
                }
            }
        }
        // Tables that are not complete, inner ones first.
        for table in tables.into_iter().rev() {
            unknown.extend(table.end(bytes, &self.keys, effort)?);
        }
        Ok(unknown)
    }

    #[inline]
    fn push(&self, table: &mut Hashed, bytes: &[u8], key: Range<usize>) -> Result<(), TooMuch> {
        if self.keys.iter().all(|key_type| key_type.is_secret(&bytes[key.clone()])) {
            table.random += 1;
        } else {
            table.keys.try_reserve(1).map_err(|_| TooMuch::Memory)?;
            table.keys.push(key);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Effort, Hashed, KeyType, TooMuch, Watch};

    fn look(keys: &[KeyType], lists: bool, bytes: &[u8]) -> Result<Vec<Hashed>, TooMuch> {
        Watch { lists, keys: keys.to_vec() }.look(bytes, &mut Effort::looking_at_all())
    }

    const ANY: &[KeyType] = &[KeyType::AsSent];

    fn map(keys: impl ExactSizeIterator<Item = Vec<u8>>) -> Vec<u8> {
        let mut message = vec![0xdf];
        message.extend(u32::try_from(keys.len()).expect("few").to_be_bytes());
        for key in keys {
            message.extend(key);
            message.push(0xc0);
        }
        message
    }

    /// A timestamp: only Python knows its hash.
    fn moment(number: u8) -> Vec<u8> {
        vec![0xd6, 0xff, 0, 0, 0, number]
    }

    #[test]
    fn keys_whose_hash_does_not_show_are_given_back() {
        let tables = look(ANY, false, &map((0..100).map(moment))).expect("cheap");
        assert_eq!(tables.len(), 1);
        assert_eq!((tables[0].random, tables[0].keys.len()), (0, 100));
        assert_eq!(tables[0].keys[1], 12..18);
        assert!(look(ANY, false, &map((0..100).map(|n| vec![0xa1, n]))).expect("cheap").is_empty());
        assert!(look(ANY, false, &map((0..100).map(|n| vec![n]))).expect("cheap").is_empty());
        for types in [&[KeyType::Converted][..], &[KeyType::AsSent, KeyType::Converted]] {
            assert_eq!(look(types, false, &map((0..100).map(|n| vec![n]))).expect("cheap").len(), 1);
        }
    }

    #[test]
    fn lists_are_sets_where_a_type_says_so() {
        let list = [&[0xdc, 0, 50][..], &moment(1).repeat(50)].concat();
        assert!(look(ANY, false, &list).expect("cheap").is_empty());
        assert_eq!(look(ANY, true, &list).expect("cheap").len(), 1);
        let in_extension = [&[0xc9, 0, 0, 1, 197, 5][..], &list].concat();
        assert_eq!(look(ANY, false, &in_extension).expect("cheap").len(), 1);
    }

    #[test]
    fn what_comes_before_a_fault_is_looked_at() {
        let mut message = map((0..100).map(moment));
        message.truncate(300);
        assert_eq!(look(ANY, false, &message).expect("cheap")[0].keys.len(), 42);
    }

    #[test]
    fn depth_has_an_end() {
        assert_eq!(look(ANY, false, &[0x91].repeat(20_000)), Err(TooMuch::Depth));
        assert!(look(ANY, false, &[0x91].repeat(9_000)).is_ok());
    }
}
