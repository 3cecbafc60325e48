//! Computes what it costs Python to make dicts and sets of given keys, before any of them is made.
//!
//! Python's tables use open addressing: if a key's place is taken, the table tries another place, by a rule that
//! depends on the key's hash. A peer that chooses hashes can make every key try the places of all keys before it, so
//! that n keys cost n² steps. Hashes of text and bytes depend on a secret of the process. Hashes of numbers, and of
//! everything that is made of numbers, do not.
//!
//! The rules are those of `CPython` 3.10 to 3.14: `Objects/dictobject.c` and `Objects/setobject.c`.

/// Steps that any message may cost: about a tenth of a second.
const FREE: u64 = 1 << 24;
/// Steps that a message may cost for each of its keys. Most keys take one or two.
const PER_KEY: u64 = 32;
/// Steps that may stay uncounted, so that tables that cannot take long are not examined: some for a message, and some
/// for each key.
const UNSEEN: u64 = FREE;
const UNSEEN_PER_KEY: u64 = 16;
/// Steps that count for a comparison of two keys. Each byte of a key counts one more.
const COMPARISON: u64 = 16;

const SHIFT: u32 = 5;
const LINEAR: usize = 9;
const FIRST_SIZE: usize = 8;

/// The kinds of Python's hash tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A `dict`.
    Dict,
    /// A `set` or a `frozenset`.
    Set,
}

/// Why a message must not be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooMuch {
    /// The hashes of its keys collide too often.
    Collisions,
    /// It is nested more deeply than any decoder reads.
    Depth,
    /// There is not enough memory to find out.
    Memory,
}

/// The steps that a message's dicts and sets take together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Effort {
    steps: u64,
    keys: u64,
    /// An upper bound of the steps that were not counted.
    unseen: u64,
}

impl Effort {
    /// Adds a table of keys with the given hashes.
    ///
    /// `key` returns a key's bytes by its index. `same` says whether two keys with the same hash are equal; keys with
    /// equal bytes always are.
    ///
    /// # Errors
    ///
    /// [`TooMuch`], as soon as it is known.
    pub fn add<'a>(
        &mut self,
        kind: Kind,
        hashes: &[i64],
        key: impl Fn(usize) -> &'a [u8],
        same: impl Fn(usize, usize) -> bool,
    ) -> Result<(), TooMuch> {
        self.keys += hashes.len() as u64;
        let mut distinct = *self;
        if distinct.add_distinct(kind, hashes)? {
            *self = distinct;
            return Ok(());
        }
        let mut table = Table::new(kind, hashes, key, same)?;
        for number in 0..hashes.len() {
            table.insert(number, self)?;
        }
        Ok(())
    }

    /// Whether a table cannot take long: `keys` keys with `bytes` bytes together, and `random` keys with random hashes.
    pub(crate) fn is_little(&mut self, keys: usize, bytes: usize, random: usize) -> bool {
        let (keys, bytes, random) = (keys as u64, bytes as u64, random as u64);
        // Each key is compared with all before it, and each comparison reads bytes of the shorter key.
        self.leave_unseen(keys.saturating_mul((COMPARISON + 1) * keys + bytes) / 2 + keys.saturating_mul(random))
    }

    fn leave_unseen(&mut self, steps: u64) -> bool {
        let sum = self.unseen.saturating_add(steps);
        let is_little = sum <= UNSEEN + UNSEEN_PER_KEY * self.keys;
        if is_little {
            self.unseen = sum;
        }
        is_little
    }

    /// Adds a table in a fast way. Returns `false` if two keys have the same hash, or if the cost may be too high.
    ///
    /// Without equal keys, the sizes that the table grows through are known, and each size can be computed alone: after
    /// a table has grown, its keys lie as if it had had this size from the beginning.
    fn add_distinct(&mut self, kind: Kind, hashes: &[i64]) -> Result<bool, TooMuch> {
        let (earlier, size) = sizes(kind, hashes.len());
        let mask = size - 1;
        let mut places = places(size)?;
        for (number, &hash) in hashes.iter().enumerate() {
            let hash = hash.cast_unsigned();
            let bits = bits_of(hash, mask);
            let found = probe(kind, mask, hash, |at| match places[at] {
                0 => Some(true),
                mark => {
                    let alike =
                        (mark ^ bits) as usize <= mask && hashes[(mark as usize & mask) - 1] == hash.cast_signed();
                    if alike { None } else { Some(false) }
                }
            });
            let Some((place, steps)) = found else { return Ok(false) };
            places[place] = bits | (number + 1) as u32;
            if self.spend(steps).is_err() {
                return Ok(false);
            }
        }
        let mut taken: Vec<bool> = Vec::new();
        for (size, count) in earlier.into_iter().rev() {
            if self.leave_unseen((count * count / 2) as u64) {
                continue;
            }
            taken.clear();
            taken.try_reserve(size).map_err(|_| TooMuch::Memory)?;
            taken.resize(size, false);
            let mut sum = 0;
            for hash in &hashes[..count] {
                let found = probe(kind, size - 1, hash.cast_unsigned(), |at| Some(!taken[at]));
                let Some((place, steps)) = found else { return Ok(false) };
                taken[place] = true;
                sum += steps;
                if sum > self.left() {
                    return Ok(false);
                }
            }
            if self.spend(sum).is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// An effort that examines every table, however small.
    #[cfg(test)]
    pub(crate) fn looking_at_all() -> Self {
        Self { unseen: u64::MAX, ..Self::default() }
    }

    #[inline]
    fn left(&self) -> u64 {
        FREE.max(PER_KEY * self.keys).saturating_sub(self.steps)
    }

    #[inline]
    fn spend(&mut self, steps: u64) -> Result<(), TooMuch> {
        if steps > self.left() {
            return Err(TooMuch::Collisions);
        }
        self.steps += steps;
        Ok(())
    }
}

/// The sizes that a table of so many keys grows through, each with the number of keys at which it grows; and the last
/// size.
fn sizes(kind: Kind, keys: usize) -> (Vec<(usize, usize)>, usize) {
    let mut earlier = Vec::new();
    let mut size = FIRST_SIZE;
    loop {
        let (most, full) = match kind {
            Kind::Dict => (size * 2 / 3, keys > size * 2 / 3),
            Kind::Set => (((size - 1) * 3).div_ceil(5), keys >= ((size - 1) * 3).div_ceil(5)),
        };
        if !full {
            return (earlier, size);
        }
        earlier.push((size, most));
        size = next_size(kind, most);
    }
}

/// The size of a table that grows when it holds so many keys.
fn next_size(kind: Kind, held: usize) -> usize {
    let room = match kind {
        Kind::Dict => held * 3,
        Kind::Set => 1 + if held > 50_000 { held * 2 } else { held * 4 },
    };
    room.next_power_of_two()
}

/// Tries one place after another, as the table does. `is_free` ends the search with a free place, or with `None`.
#[inline]
fn probe(kind: Kind, mask: usize, hash: u64, mut is_free: impl FnMut(usize) -> Option<bool>) -> Option<(usize, u64)> {
    let (mut place, mut perturb) = (hash as usize & mask, hash);
    let mut steps = 0;
    loop {
        // A set also tries the neighbouring places, which lie in the same or the next cache line: that counts as one
        // step.
        let last = if kind == Kind::Set && place + LINEAR <= mask { place + LINEAR } else { place };
        for at in place..=last {
            if is_free(at)? {
                return Some((at, steps));
            }
        }
        steps += 1;
        perturb >>= SHIFT;
        place = place.wrapping_mul(5).wrapping_add(perturb as usize).wrapping_add(1) & mask;
    }
}

/// The bits of a hash that are stored above the number of a key.
#[inline]
fn bits_of(hash: u64, mask: usize) -> u32 {
    (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 & !mask as u32
}

/// A dict or a set, without the values of its keys.
struct Table<'a, K, S> {
    kind: Kind,
    hashes: &'a [i64],
    key: K,
    same: S,
    /// The indexes of the keys that are in the table.
    held: Vec<u32>,
    /// 0 for a free place; else one more than an index in `held`, and above it bits of the key's hash. These bits
    /// mostly show that a key is a different one, without reading its full hash, which may be far away in memory.
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
            self.grow(effort)?;
            // The key's place has changed, and the steps to find it count.
            let (free, steps) = self.search(number, hash);
            effort.spend(steps)?;
            place = free.unwrap_or(place);
        }
        self.held.push(u32::try_from(number).map_err(|_| TooMuch::Memory)?);
        self.places[place] = self.mark(hash, self.held.len());
        let used = self.held.len();
        if self.kind == Kind::Set && used * 5 >= (self.places.len() - 1) * 3 {
            self.grow(effort)?;
        }
        Ok(())
    }

    /// The mark in a key's place. There are fewer keys than places, so their number fits below the bits of the hash.
    #[inline]
    fn mark(&self, hash: u64, number: usize) -> u32 {
        bits_of(hash, self.places.len() - 1) | number as u32
    }

    /// The free place for a key, or `None` if the key is in the table; and the steps to find out.
    #[inline]
    fn search(&self, number: usize, hash: u64) -> (Option<usize>, u64) {
        let mask = self.places.len() - 1;
        let bits = bits_of(hash, mask);
        let mut compared = 0;
        let found = probe(self.kind, mask, hash, |at| {
            let mark = self.places[at];
            if mark == 0 {
                return Some(true);
            }
            if (mark ^ bits) as usize <= mask {
                let other = self.held[(mark as usize & mask) - 1] as usize;
                if self.hashes[other] == self.hashes[number] {
                    let (one, two) = ((self.key)(number), (self.key)(other));
                    if !one.is_empty() && one == two {
                        return None;
                    }
                    compared += COMPARISON + one.len() as u64;
                    if (self.same)(number, other) {
                        return None;
                    }
                }
            }
            Some(false)
        });
        found.map_or((None, compared), |(place, steps)| (Some(place), steps + compared))
    }

    /// Makes the table larger and moves all keys, as Python does: without comparing them.
    fn grow(&mut self, effort: &mut Effort) -> Result<(), TooMuch> {
        let size = next_size(self.kind, self.held.len());
        self.places = places(size)?;
        for held in 0..self.held.len() {
            let hash = self.hashes[self.held[held] as usize].cast_unsigned();
            let Some((free, steps)) = probe(self.kind, size - 1, hash, |at| Some(self.places[at] == 0)) else {
                continue;
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
    use super::{Effort, FREE, Kind, TooMuch};

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
                let found = effort(kind, hashes).map(|effort| effort.steps + effort.unseen);
                // Far from the limit.
                assert!(found.is_ok_and(|steps| steps < FREE * 3 / 2), "{kind:?} of {what}: {found:?}");
            };
            for shift in (0..44).step_by(3) {
                is_fine(&format!("multiples of 2^{shift}"), &mut (0..many).map(|n| n << shift));
            }
            // Hashes of the floats 0.5 * n, 0.25 * n and so on: they are rotated to the right.
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
            let added = effort.add(kind, &vec![5; 4000], |at| &keys[at][..], |_, _| false);
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
    fn one_key_in_two_encodings_is_one_key() {
        // A table in which each key occurs twice costs less than one with twice as many keys.
        let hashes: Vec<i64> = (0..2000).map(|n| n / 2).collect();
        let keys: Vec<_> = (0_u32..2000).map(u32::to_le_bytes).collect();
        for kind in [Kind::Dict, Kind::Set] {
            assert_eq!(Effort::looking_at_all().add_distinct(kind, &hashes), Ok(false));
            let same = |one: usize, other: usize| one / 2 == other / 2;
            let mut table = super::Table::new(kind, &hashes, |at| &keys[at][..], same).expect("memory");
            for number in 0..hashes.len() {
                table.insert(number, &mut Effort::default()).expect("not too much");
            }
            assert_eq!(table.held.len(), 1000);
        }
    }

    #[test]
    fn the_quick_way_finds_the_same() {
        // Multiples of 2^40 share many places.
        let hashes: Vec<i64> = (0..30_000).map(|n| n << 40).collect();
        for kind in [Kind::Dict, Kind::Set] {
            let nothing_unseen = Effort { keys: 30_000, ..Effort::looking_at_all() };
            let (mut quick, mut exact) = (nothing_unseen, nothing_unseen);
            assert_eq!(quick.add_distinct(kind, &hashes), Ok(true));
            let mut table = super::Table::new(kind, &hashes, |_| &[][..], |_, _| false).expect("memory");
            for number in 0..hashes.len() {
                table.insert(number, &mut exact).expect("not too much");
            }
            let difference = quick.steps.abs_diff(exact.steps);
            // The exact computation also counts a second search for the key that makes the table grow.
            assert!(quick.steps > 100_000 && difference * 1000 < exact.steps, "{quick:?} {exact:?}");
        }
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
                assert_eq!(super::sizes(kind, count).1, size, "{kind:?} of {count}");
            }
        }
    }
}
