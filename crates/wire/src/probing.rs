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
pub enum TableKind {
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

/// The keys of a table, in order.
pub struct Keys<'a, K, S> {
    /// How many keys have hashes that a peer cannot foresee.
    pub random: usize,
    /// The hashes of all others.
    pub hashes: &'a [i64],
    /// Returns the bytes of one of these others, by its index. Keys with equal bytes are equal.
    pub bytes: K,
    /// Says whether two of them, which have the same hash, are equal.
    pub same: S,
    /// Whether `same` knows that. If not, both are tried: all keys of one hash are equal, and none.
    pub exact: bool,
}

impl Effort {
    /// Adds the cost of a table.
    ///
    /// # Errors
    ///
    /// [`TooMuch`], as soon as it is known.
    pub fn add<'k>(
        &mut self,
        kind: TableKind,
        keys: &Keys<'_, impl Fn(usize) -> &'k [u8], impl Fn(usize, usize) -> bool>,
    ) -> Result<(), TooMuch> {
        let mut most = *self;
        if keys.random == 0 && most.add_distinct(kind, keys.hashes)? {
            *self = most;
            return Ok(());
        }
        let mut most = *self;
        let alike = most.fill(kind, keys)?;
        if alike && !keys.exact || keys.random > 0 {
            // Keys that are equal, though that does not show, make a table smaller, where others collide more.
            let Keys { hashes, bytes, same, exact, .. } = keys;
            let fewer = Keys { random: 0, hashes, bytes, same: |one, other| !exact || same(one, other), exact: true };
            let mut least = *self;
            least.fill(kind, &fewer)?;
            most = most.max(least);
        }
        *self = most;
        Ok(())
    }

    /// Adds a table in a quick way. Returns `false` if two keys have one hash, or if it may be too much.
    ///
    /// Without equal keys, the sizes that the table grows through are known, and each can be looked at alone: after a table
    /// has grown, its keys lie as if it had had this size from the beginning.
    fn add_distinct(&mut self, kind: TableKind, hashes: &[i64]) -> Result<bool, TooMuch> {
        self.keys += hashes.len() as u64;
        let mut size = FIRST_SIZE;
        loop {
            let most = most_in(kind, size);
            let grows = hashes.len() >= most + usize::from(kind == TableKind::Dict);
            let mask = size - 1;
            if !grows {
                let mut places = filled(size, 0_u32)?;
                for (number, &hash) in hashes.iter().enumerate() {
                    let bits = bits_of(hash.cast_unsigned(), mask);
                    let found = probe(kind, mask, hash.cast_unsigned(), |at| match places[at] {
                        0 => Some(true),
                        mark if (mark ^ bits) as usize <= mask && hashes[(mark as usize & mask) - 1] == hash => None,
                        _ => Some(false),
                    });
                    let Some((place, steps)) = found else { return Ok(false) };
                    places[place] = bits | (number + 1) as u32;
                    if steps > 0 && self.spend(steps).is_err() {
                        return Ok(false);
                    }
                }
                return Ok(true);
            }
            if !self.leave_unseen((most * most / 2) as u64) {
                let mut taken = filled(size, false)?;
                for &hash in &hashes[..most] {
                    let found = probe(kind, mask, hash.cast_unsigned(), |at| Some(!taken[at]));
                    let Some((place, steps)) = found else { return Ok(false) };
                    taken[place] = true;
                    if steps > 0 && self.spend(steps).is_err() {
                        return Ok(false);
                    }
                }
            }
            size = next_size(kind, most);
        }
    }

    /// Returns whether two different keys have one hash.
    fn fill<'k>(
        &mut self,
        kind: TableKind,
        keys: &Keys<'_, impl Fn(usize) -> &'k [u8], impl Fn(usize, usize) -> bool>,
    ) -> Result<bool, TooMuch> {
        let count = keys.random + keys.hashes.len();
        self.keys += count as u64;
        let mut table = Table::new(kind, keys, count)?;
        for number in 0..keys.random {
            table.insert(RANDOM, scattered(number as u64), self)?;
        }
        for (number, hash) in keys.hashes.iter().enumerate() {
            table.insert(number, hash.cast_unsigned(), self)?;
        }
        Ok(table.alike)
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

/// How many keys a table of that size holds before it grows: a dict with the next key, a set with the last of these.
fn most_in(kind: TableKind, size: usize) -> usize {
    match kind {
        TableKind::Dict => size * 2 / 3,
        TableKind::Set => ((size - 1) * 3).div_ceil(5),
    }
}

/// The size of a table that grows when it holds so many keys.
fn next_size(kind: TableKind, held: usize) -> usize {
    let room = match kind {
        TableKind::Dict => held * 3,
        TableKind::Set => 1 + if held > 50_000 { held * 2 } else { held * 4 },
    };
    room.next_power_of_two()
}

/// Tries one place after another, as the table does. `is_free` ends the search with a free place, or with `None`.
#[inline]
fn probe(
    kind: TableKind,
    mask: usize,
    hash: u64,
    mut is_free: impl FnMut(usize) -> Option<bool>,
) -> Option<(usize, u64)> {
    let (mut place, mut perturb) = (hash as usize & mask, hash);
    let mut steps = 0;
    loop {
        // A set also tries the neighbouring places, which lie in the same or the next cache line: that counts as one
        // step.
        let last = if kind == TableKind::Set && place + LINEAR <= mask { place + LINEAR } else { place };
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

/// A well mixed number for each number.
fn scattered(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// In place of the index of a key whose hash cannot be foreseen.
const RANDOM: usize = u32::MAX as usize;

/// A dict or a set, without the values of its keys.
struct Table<'a, 'h, K, S> {
    kind: TableKind,
    keys: &'a Keys<'h, K, S>,
    /// The hashes and the indexes of the keys that are in the table.
    held: Vec<(u64, u32)>,
    /// 0 for a free place; else one more than an index in `held`, and above it bits of the key's hash. These bits
    /// mostly show that a key is a different one, without reading its full hash, which may be far away in memory.
    places: Vec<u32>,
    /// Two keys have been compared that have one hash and other bytes.
    alike: bool,
}

impl<'a, 'h, 'k, K: Fn(usize) -> &'k [u8], S: Fn(usize, usize) -> bool> Table<'a, 'h, K, S> {
    fn new(kind: TableKind, keys: &'a Keys<'h, K, S>, count: usize) -> Result<Self, TooMuch> {
        let mut held = Vec::new();
        held.try_reserve_exact(count).map_err(|_| TooMuch::Memory)?;
        Ok(Self { kind, keys, held, places: filled(FIRST_SIZE, 0)?, alike: false })
    }

    #[inline]
    fn insert(&mut self, number: usize, hash: u64, effort: &mut Effort) -> Result<(), TooMuch> {
        let (free, steps, compared) = self.search(number, hash);
        self.alike |= compared > 0;
        effort.spend(steps + compared)?;
        let Some(mut place) = free else { return Ok(()) };
        if self.kind == TableKind::Dict && self.held.len() >= most_in(self.kind, self.places.len()) {
            self.grow(effort)?;
            // The key's place has changed, and the steps to find it count.
            let (free, steps, compared) = self.search(number, hash);
            effort.spend(steps + compared)?;
            place = free.unwrap_or(place);
        }
        self.held.push((hash, u32::try_from(number).map_err(|_| TooMuch::Memory)?));
        self.places[place] = self.mark(hash, self.held.len());
        if self.kind == TableKind::Set && self.held.len() >= most_in(self.kind, self.places.len()) {
            self.grow(effort)?;
        }
        Ok(())
    }

    /// The mark in a key's place. There are fewer keys than places, so their number fits below the bits of the hash.
    #[inline]
    fn mark(&self, hash: u64, number: usize) -> u32 {
        bits_of(hash, self.places.len() - 1) | number as u32
    }

    /// The free place for a key, or `None` if the key is in the table; the steps to find out, and those for comparisons
    /// with keys of the same hash.
    #[inline]
    fn search(&self, number: usize, hash: u64) -> (Option<usize>, u64, u64) {
        let mask = self.places.len() - 1;
        let bits = bits_of(hash, mask);
        let mut compared = 0;
        let found = probe(self.kind, mask, hash, |at| {
            let mark = self.places[at];
            if mark == 0 {
                return Some(true);
            }
            if (mark ^ bits) as usize <= mask {
                let (of_other, other) = self.held[(mark as usize & mask) - 1];
                let other = other as usize;
                if of_other == hash && number != RANDOM && other != RANDOM {
                    let (one, two) = ((self.keys.bytes)(number), (self.keys.bytes)(other));
                    if one == two {
                        return None;
                    }
                    compared += COMPARISON + one.len() as u64;
                    if (self.keys.same)(number, other) {
                        return None;
                    }
                }
            }
            Some(false)
        });
        found.map_or((None, 0, compared), |(place, steps)| (Some(place), steps, compared))
    }

    /// Makes the table larger and moves all keys, as Python does: without comparing them.
    fn grow(&mut self, effort: &mut Effort) -> Result<(), TooMuch> {
        let size = next_size(self.kind, self.held.len());
        self.places = filled(size, 0)?;
        for held in 0..self.held.len() {
            let hash = self.held[held].0;
            let Some((free, steps)) = probe(self.kind, size - 1, hash, |at| Some(self.places[at] == 0)) else {
                continue;
            };
            effort.spend(steps)?;
            self.places[free] = self.mark(hash, held + 1);
        }
        Ok(())
    }
}

fn filled<T: Clone>(size: usize, value: T) -> Result<Vec<T>, TooMuch> {
    if size > 1 << 31 {
        return Err(TooMuch::Memory);
    }
    let mut places = Vec::new();
    places.try_reserve_exact(size).map_err(|_| TooMuch::Memory)?;
    places.resize(size, value);
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::{Effort, FREE, Keys, TableKind, TooMuch};

    const MANY: u64 = 100_000;

    fn added(
        mut effort: Effort,
        kind: TableKind,
        hashes: &[i64],
        key: &dyn Fn(usize) -> u64,
    ) -> Result<Effort, TooMuch> {
        let names: Vec<[u8; 8]> = (0..hashes.len()).map(|number| key(number).to_le_bytes()).collect();
        let bytes = |number: usize| &names[number][..];
        let same = |one: usize, other: usize| names[one] == names[other];
        effort.add(kind, &Keys { random: 0, hashes, bytes, same, exact: true })?;
        Ok(effort)
    }

    #[test]
    fn hashes_of_honest_numbers_are_never_refused() {
        let many = MANY.cast_signed();
        for kind in [TableKind::Dict, TableKind::Set] {
            let is_fine = |what: &str, hashes: &mut dyn Iterator<Item = i64>| {
                let hashes: Vec<i64> = hashes.collect();
                let found = added(Effort::default(), kind, &hashes, &|number| number as u64);
                let found = found.map(|effort| effort.steps + effort.unseen);
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
            is_fine("numbers at random", &mut (0..MANY).map(|n| super::scattered(n).cast_signed()));
        }
    }

    #[test]
    fn hashes_that_are_alike_are_too_much() {
        for kind in [TableKind::Dict, TableKind::Set] {
            let alike = added(Effort::default(), kind, &vec![5; 4000], &|number| number as u64);
            assert_eq!(alike, Err(TooMuch::Collisions));
        }
    }

    #[test]
    fn a_key_that_is_there_already_costs_nothing() {
        let effort = added(Effort::default(), TableKind::Dict, &vec![5; 1_000_000], &|_| 7).expect("one key");
        assert_eq!(effort.steps, 0);
    }

    #[test]
    fn one_key_in_two_encodings_is_one_key() {
        let hashes: Vec<i64> = (0..2000).map(|n| n / 2).collect();
        let names: Vec<_> = (0_u32..2000).map(u32::to_le_bytes).collect();
        for kind in [TableKind::Dict, TableKind::Set] {
            let same = |one: usize, other: usize| one / 2 == other / 2;
            let keys = Keys { random: 0, hashes: &hashes, bytes: |at: usize| &names[at][..], same, exact: true };
            let mut table = super::Table::new(kind, &keys, 2000).expect("memory");
            for (number, hash) in hashes.iter().enumerate() {
                table.insert(number, hash.cast_unsigned(), &mut Effort::default()).expect("not too much");
            }
            assert_eq!(table.held.len(), 1000);
        }
    }

    #[test]
    fn the_quick_way_finds_the_same() {
        // Multiples of 2^40 share many places.
        let hashes: Vec<i64> = (0..30_000).map(|n| n << 40).collect();
        for kind in [TableKind::Dict, TableKind::Set] {
            let mut quick = Effort { keys: 30_000, ..Effort::looking_at_all() };
            let mut exact = quick;
            assert_eq!(quick.add_distinct(kind, &hashes), Ok(true));
            let keys = Keys { random: 0, hashes: &hashes, bytes: |_: usize| &[][..], same: |_, _| false, exact: true };
            assert_eq!(exact.fill(kind, &keys), Ok(false));
            let difference = quick.steps.abs_diff(exact.steps);
            // The exact computation also counts a second search for the key that makes the table grow.
            assert!(quick.steps > 100_000 && difference * 1000 < exact.steps, "{quick:?} {exact:?}");
        }
    }

    #[test]
    fn a_table_has_pythons_sizes() {
        for (kind, expected) in [
            (TableKind::Dict, [(5, 8), (6, 16), (10, 16), (11, 32), (21, 32), (22, 64)]),
            (TableKind::Set, [(4, 8), (5, 32), (18, 32), (19, 128), (76, 128), (77, 512)]),
        ] {
            for (count, size) in expected {
                let keys = Keys { random: 0, hashes: &[], bytes: |_: usize| &[][..], same: |_, _| false, exact: true };
                let mut table = super::Table::new(kind, &keys, count).expect("memory");
                for number in 0..count {
                    table.insert(number, number as u64, &mut Effort::default()).expect("few");
                }
                assert_eq!(table.places.len(), size, "{kind:?} of {count}");
            }
        }
    }
}
