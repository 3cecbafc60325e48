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
}

impl Effort {
    /// Adds a table of so many keys with hashes that nobody can foresee, and of those given: hash and encoded key.
    ///
    /// # Errors
    ///
    /// [`TooMuch`], as soon as it is known.
    pub fn add<'a>(
        &mut self,
        kind: Kind,
        random: usize,
        keys: impl ExactSizeIterator<Item = (i64, &'a [u8])>,
    ) -> Result<(), TooMuch> {
        self.keys += (random + keys.len()) as u64;
        let mut table = Table::new(kind, random + keys.len())?;
        for number in 0..random {
            table.insert(scattered(number as u64), &[], self)?;
        }
        for (hash, key) in keys {
            table.insert(hash.cast_unsigned(), key, self)?;
        }
        Ok(())
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

/// Some well mixed number for each number.
fn scattered(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// A dict or a set, without its keys' values.
struct Table<'a> {
    kind: Kind,
    keys: Vec<(u64, &'a [u8])>,
    /// Numbers of keys, from 1; 0 where there is none.
    places: Vec<u32>,
}

impl<'a> Table<'a> {
    fn new(kind: Kind, most: usize) -> Result<Self, TooMuch> {
        let mut keys = Vec::new();
        keys.try_reserve_exact(most).map_err(|_| TooMuch::Memory)?;
        Ok(Self { kind, keys, places: places(FIRST_SIZE)? })
    }

    fn insert(&mut self, hash: u64, key: &'a [u8], effort: &mut Effort) -> Result<(), TooMuch> {
        let (free, steps) = self.search(hash, key);
        effort.spend(steps)?;
        let Some(place) = free else { return Ok(()) };
        if self.kind == Kind::Dict && self.keys.len() >= self.places.len() * 2 / 3 {
            self.grow(self.keys.len() * 3, effort)?;
            // The key's place is another one now, and what is on its way there counts.
            let (free, steps) = self.search(hash, key);
            effort.spend(steps)?;
            self.put(free.unwrap_or(place), hash, key);
        } else {
            self.put(place, hash, key);
        }
        let used = self.keys.len();
        if self.kind == Kind::Set && used * 5 >= (self.places.len() - 1) * 3 {
            self.grow(1 + if used > 50_000 { used * 2 } else { used * 4 }, effort)?;
        }
        Ok(())
    }

    fn put(&mut self, place: usize, hash: u64, key: &'a [u8]) {
        self.keys.push((hash, key));
        self.places[place] = u32::try_from(self.keys.len()).unwrap_or(u32::MAX);
    }

    /// The free place for a key, or `None` if it is there already; and the steps until it is found.
    #[inline]
    fn search(&self, hash: u64, key: &[u8]) -> (Option<usize>, u64) {
        let mask = self.places.len() - 1;
        let mut place = hash as usize & mask;
        let mut perturb = hash;
        let mut steps = 0;
        loop {
            // A set looks at the neighbours, too, which are in the same or the next line of the cache: one step.
            let last = if self.kind == Kind::Set && place + LINEAR <= mask { place + LINEAR } else { place };
            for at in place..=last {
                let Some(number) = self.places[at].checked_sub(1) else { return (Some(at), steps) };
                let (other_hash, other) = self.keys[number as usize];
                if other_hash == hash {
                    if other == key && !key.is_empty() {
                        return (None, steps);
                    }
                    steps += COMPARISON + key.len() as u64;
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
        for number in 0..self.keys.len() {
            let hash = self.keys[number].0;
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
            self.places[free] = u32::try_from(number + 1).unwrap_or(u32::MAX);
        }
        Ok(())
    }
}

fn places(size: usize) -> Result<Vec<u32>, TooMuch> {
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
        effort.add(kind, 0, keys.iter().map(|(hash, key)| (*hash, &key[..])))?;
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
            is_fine("numbers at random", &mut (0..MANY).map(|n| super::scattered(n).cast_signed()));
        }
    }

    #[test]
    fn hashes_that_are_alike_are_too_much() {
        for kind in [Kind::Dict, Kind::Set] {
            let keys: Vec<_> = (0_u32..4000).map(u32::to_le_bytes).collect();
            let mut effort = Effort::default();
            let added = effort.add(kind, 0, keys.iter().map(|key| (5, &key[..])));
            assert_eq!(added, Err(TooMuch::Collisions));
        }
    }

    #[test]
    fn a_key_that_is_there_already_costs_nothing() {
        let mut effort = Effort::default();
        effort.add(Kind::Dict, 0, (0..1_000_000).map(|_| (5, &b"x"[..]))).expect("one key");
        assert_eq!(effort.steps, 0);
    }

    #[test]
    fn a_table_has_pythons_sizes() {
        for (kind, expected) in [
            (Kind::Dict, [(5, 8), (6, 16), (10, 16), (11, 32), (21, 32), (22, 64)]),
            (Kind::Set, [(4, 8), (5, 32), (18, 32), (19, 128), (76, 128), (77, 512)]),
        ] {
            for (count, size) in expected {
                let mut table = super::Table::new(kind, count).expect("memory");
                for number in 0..count as u64 {
                    table.insert(number, &[], &mut Effort::default()).expect("few");
                }
                assert_eq!(table.places.len(), size, "{kind:?} of {count}");
            }
        }
    }
}
