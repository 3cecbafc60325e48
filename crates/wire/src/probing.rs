//! What it costs Python to make dicts and sets of given keys, found before one of them is made.
//!
//! Python's tables are open: a key whose place is taken goes on to another one, by a rule that the key's hash decides. Who
//! chooses hashes can make every key go through all those before it, so that n keys cost n² steps. Hashes of text and
//! bytes hang on a secret of the process. Those of numbers, and of all that is made of numbers, do not.
//!
//! The rules are those of `CPython` 3.10 to 3.14: `Objects/dictobject.c` and `Objects/setobject.c`.

/// Steps that any message may cost: some milliseconds.
const FREE: u64 = 1 << 20;
/// Steps for each key that a message may cost. Most keys take one or two. Multiples of powers of two are the worst that
/// honest users have: 44 steps for each of 60,000 keys, 68 of 200,000, 138 of 1,000,000.
const PER_KEY: u64 = 256;
/// Steps that a comparison of two keys stands for; each byte of a key is one more.
const COMPARISON: u64 = 16;

const SHIFT: u32 = 5;
const LINEAR: usize = 9;
const FIRST_SIZE: usize = 8;

/// Which of Python's two tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A `dict`.
    Dict,
    /// A `set` or a `frozenset`.
    Set,
}

/// Why a message is not to be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooMuch {
    /// Its keys collide.
    Collisions,
    /// It is nested deeper than any decoder goes.
    Depth,
    /// There is no memory to find out.
    Memory,
}

/// The steps that a message's dicts and sets take together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Effort {
    steps: u64,
    keys: u64,
    /// Keys that are there only once.
    held: u64,
}

impl Effort {
    /// Adds a table of keys with the given hashes.
    ///
    /// `key` gives a key's bytes by its number, and `same` whether two keys of one hash are equal; equal bytes are.
    ///
    /// # Errors
    ///
    /// [`TooMuch`], as soon as it is known.
    pub(crate) fn add<'a>(
        &mut self,
        kind: Kind,
        hashes: &[i64],
        key: impl Fn(usize) -> &'a [u8],
        same: impl Fn(usize, usize) -> bool,
    ) -> Result<(), TooMuch> {
        self.keys += hashes.len() as u64;
        let mut table = Table::new(kind, hashes, key, same)?;
        for number in 0..hashes.len() {
            table.insert(number, self)?;
        }
        self.held += table.held.len() as u64;
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn keys_held(&self) -> u64 {
        self.held
    }

    #[inline]
    fn spend(&mut self, steps: u64) -> Result<(), TooMuch> {
        self.steps += steps;
        if self.steps > FREE && self.steps > PER_KEY * self.keys {
            return Err(TooMuch::Collisions);
        }
        Ok(())
    }
}

/// A dict or a set, without its keys' values.
struct Table<'a, K, S> {
    kind: Kind,
    hashes: &'a [i64],
    key: K,
    same: S,
    /// The numbers of the keys that are in it.
    held: Vec<u32>,
    /// 0 where there is none; else one more than a place in `held`, and above that, bits of the key's hash: mostly they
    /// tell that it is another key, without a look at its hash, which may be far away in memory.
    places: Vec<u32>,
}

impl<'a, 'k, K: Fn(usize) -> &'k [u8], S: Fn(usize, usize) -> bool> Table<'a, K, S> {
    fn new(kind: Kind, hashes: &'a [i64], key: K, same: S) -> Result<Self, TooMuch> {
        let mut held = Vec::new();
        held.try_reserve_exact(hashes.len()).map_err(|_| TooMuch::Memory)?;
        Ok(Self { kind, hashes, key, same, held, places: places(FIRST_SIZE)? })
    }

    #[inline]
    fn insert(&mut self, number: usize, effort: &mut Effort) -> Result<(), TooMuch> {
        let hash = self.hashes[number].cast_unsigned();
        let (free, steps) = self.search(number, hash);
        effort.spend(steps)?;
        let Some(mut place) = free else { return Ok(()) };
        if self.kind == Kind::Dict && self.held.len() >= self.places.len() * 2 / 3 {
            self.grow(self.held.len() * 3, effort)?;
            // The key's place is another one now, and what is on its way there counts.
            let (free, steps) = self.search(number, hash);
            effort.spend(steps)?;
            place = free.unwrap_or(place);
        }
        self.held.push(u32::try_from(number).map_err(|_| TooMuch::Memory)?);
        self.places[place] = self.mark(hash, self.held.len());
        let used = self.held.len();
        if self.kind == Kind::Set && used * 5 >= (self.places.len() - 1) * 3 {
            self.grow(1 + if used > 50_000 { used * 2 } else { used * 4 }, effort)?;
        }
        Ok(())
    }

    /// What stands in a key's place. There are fewer keys than places, so that their number fits below the bits of the hash.
    #[inline]
    fn mark(&self, hash: u64, number: usize) -> u32 {
        self.bits_of(hash) | number as u32
    }

    #[inline]
    fn bits_of(&self, hash: u64) -> u32 {
        (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 & !(self.places.len() - 1) as u32
    }

    /// The free place for a key, or `None` if it is there already; and the steps until it is found.
    #[inline]
    fn search(&self, number: usize, hash: u64) -> (Option<usize>, u64) {
        let mask = self.places.len() - 1;
        let mut place = hash as usize & mask;
        if self.places[place] == 0 {
            return (Some(place), 0);
        }
        let bits = self.bits_of(hash);
        let mut perturb = hash;
        let mut steps = 0;
        loop {
            // A set looks at the neighbours, too, which are in the same or the next line of the cache: one step.
            let last = if self.kind == Kind::Set && place + LINEAR <= mask { place + LINEAR } else { place };
            for at in place..=last {
                let mark = self.places[at];
                if mark == 0 {
                    return (Some(at), steps);
                }
                if (mark ^ bits) as usize <= mask {
                    let other = self.held[(mark as usize & mask) - 1] as usize;
                    if self.hashes[other] == self.hashes[number] {
                        let (one, two) = ((self.key)(number), (self.key)(other));
                        if !one.is_empty() && one == two {
                            return (None, steps);
                        }
                        steps += COMPARISON + one.len() as u64;
                        if (self.same)(number, other) {
                            return (None, steps);
                        }
                    }
                }
            }
            steps += 1;
            perturb >>= SHIFT;
            place = place.wrapping_mul(5).wrapping_add(perturb as usize).wrapping_add(1) & mask;
        }
    }

    /// Makes room for so many, and puts all keys into their new places, as Python does: without comparing them.
    fn grow(&mut self, room: usize, effort: &mut Effort) -> Result<(), TooMuch> {
        let size = room.next_power_of_two();
        self.places = places(size)?;
        let mask = size - 1;
        for held in 0..self.held.len() {
            let hash = self.hashes[self.held[held] as usize].cast_unsigned();
            let (mut place, mut perturb) = (hash as usize & mask, hash);
            let mut steps = 0;
            let free = 'search: loop {
                let last = if self.kind == Kind::Set && place + LINEAR <= mask { place + LINEAR } else { place };
                for at in place..=last {
                    if self.places[at] == 0 {
                        break 'search at;
                    }
                }
                steps += 1;
                perturb >>= SHIFT;
                place = place.wrapping_mul(5).wrapping_add(perturb as usize).wrapping_add(1) & mask;
            };
            effort.spend(steps)?;
            self.places[free] = self.mark(hash, held + 1);
        }
        Ok(())
    }
}

fn places(size: usize) -> Result<Vec<u32>, TooMuch> {
    if size > 1 << 31 {
        return Err(TooMuch::Memory);
    }
    let mut places = Vec::new();
    places.try_reserve_exact(size).map_err(|_| TooMuch::Memory)?;
    places.resize(size, 0);
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::{Effort, Kind, PER_KEY, TooMuch};

    const MANY: u64 = 100_000;

    fn effort(kind: Kind, hashes: &mut dyn Iterator<Item = i64>) -> Result<Effort, TooMuch> {
        let keys: Vec<_> = hashes.map(|hash| (hash, hash.to_le_bytes())).collect();
        let mut effort = Effort::default();
        let hashes: Vec<i64> = keys.iter().map(|(hash, _)| *hash).collect();
        effort.add(kind, &hashes, |at| &keys[at].1[..], |_, _| false)?;
        Ok(effort)
    }

    #[test]
    fn hashes_of_honest_numbers_are_never_refused() {
        let many = MANY.cast_signed();
        for kind in [Kind::Dict, Kind::Set] {
            let is_fine = |what: &str, hashes: &mut dyn Iterator<Item = i64>| {
                let found = effort(kind, hashes).map(|effort| effort.steps / effort.keys);
                // Far from the limit.
                assert!(found.is_ok_and(|steps| steps < PER_KEY * 2 / 3), "{kind:?} of {what}: {found:?}");
            };
            for shift in (0..44).step_by(3) {
                is_fine(&format!("multiples of 2^{shift}"), &mut (0..many).map(|n| n << shift));
            }
            // Of floats 0.5 * n, 0.25 * n and so on: their hashes are turned to the right.
            for shift in (1..30).step_by(3) {
                let half = (1 << 61) - 1;
                is_fine(
                    &format!("floats by 2^-{shift}"),
                    &mut (0..many).map(|n| (n >> shift | n << (61 - shift)) & half),
                );
            }
            for factor in [3, 7, 10, 1000, 4097, 3 << 20, 1_000_000, 1_000_000_007] {
                is_fine(&format!("multiples of {factor}"), &mut (0..many).map(|n| n * factor));
                is_fine(&format!("multiples of -{factor}"), &mut (0..many).map(|n| -n * factor));
            }
            is_fine("coordinates", &mut (0..many).map(|n| ((n / 400) << 32) + n % 400));
            is_fine("squares", &mut (0..many).map(|n| n * n));
            is_fine("numbers at random", &mut (0..MANY).map(|n| crate::hashes::scattered(n).cast_signed()));
        }
    }

    #[test]
    fn hashes_that_are_alike_are_too_much() {
        for kind in [Kind::Dict, Kind::Set] {
            let keys: Vec<_> = (0_u32..4000).map(u32::to_le_bytes).collect();
            let mut effort = Effort::default();
            let added = effort.add(kind, &[5; 4000], |at| &keys[at][..], |_, _| false);
            assert_eq!(added, Err(TooMuch::Collisions));
        }
    }

    #[test]
    fn a_key_that_is_there_already_costs_nothing() {
        let mut effort = Effort::default();
        effort.add(Kind::Dict, &vec![5; 1_000_000], |_| &b"x"[..], |_, _| false).expect("one key");
        assert_eq!(effort.steps, 0);
    }

    #[test]
    fn a_table_has_pythons_sizes() {
        for (kind, expected) in [
            (Kind::Dict, [(5, 8), (6, 16), (10, 16), (11, 32), (21, 32), (22, 64)]),
            (Kind::Set, [(4, 8), (5, 32), (18, 32), (19, 128), (76, 128), (77, 512)]),
        ] {
            for (count, size) in expected {
                let hashes: Vec<i64> = (0..count as i64).collect();
                let mut table = super::Table::new(kind, &hashes, |_| &[][..], |_, _| false).expect("memory");
                for number in 0..count {
                    table.insert(number, &mut Effort::default()).expect("few");
                }
                assert_eq!(table.places.len(), size, "{kind:?} of {count}");
            }
        }
    }
}
