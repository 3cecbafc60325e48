//! One lane: a single-producer single-consumer ring of length-prefixed records.
//!
//! `head` counts the bytes ever written, `tail` the bytes ever consumed. Both only grow, and their difference is what
//! lies in the ring. A record is a 4-byte length, the bytes, and padding to 8, so that a prefix never wraps. The
//! producer publishes a record by moving `head`; the consumer gives the room back by moving `tail`.

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Bytes in front of each record: its length, little-endian.
pub const RECORD_PREFIX: usize = 4;

/// Marks a record as a note of the layer above (see [`Record::note`]); the other 31 bits are the length.
const NOTE: u32 = 1 << 31;

/// The start of a record that is written ahead of the rest reaches to the next multiple of so many bytes. So much a common
/// `memcpy` reads before it writes; of a longer piece it writes the first bytes last.
const START: u64 = 256;

/// The shared words of one lane, each on a cache line pair of its own (adjacent lines are prefetched together).
#[repr(C)]
#[derive(Debug)]
pub struct Counters {
    head: Line<AtomicU64>,
    tail: Line<AtomicU64>,
    /// Set by a producer that found no room and is going to sleep; see [`Consumer::producer_waits`].
    starved: Line<AtomicU32>,
}

#[repr(C, align(128))]
#[derive(Debug)]
struct Line<T>(T);

impl Counters {
    /// Counters of an empty lane.
    #[must_use]
    pub fn new() -> Self {
        Self { head: Line(AtomicU64::new(0)), tail: Line(AtomicU64::new(0)), starved: Line(AtomicU32::new(0)) }
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self::new()
    }
}

/// Where a lane's counters and bytes live: in a shared mapping, or on the heap under a model checker.
pub trait LaneMemory {
    /// The shared counters.
    fn counters(&self) -> &Counters;
    /// Bytes in the ring, a power of two.
    fn capacity(&self) -> usize;
    /// Copies `bytes` to `offset` (`offset + bytes.len() <= capacity`). Only the producer calls this, for room that it
    /// owns.
    fn write(&self, offset: usize, bytes: &[u8]);
    /// Copies `into.len()` bytes from `offset`. Only the consumer calls this, for records that were published.
    fn read(&self, offset: usize, into: &mut [u8]);
    /// Reads the prefix of a record at `offset` (a multiple of 8). It is one load, so that the value that was checked
    /// is the value that is used, even while a hostile peer writes.
    fn read_prefix(&self, offset: usize) -> u32;

    /// The consumer waits for a record at `offset` (less than `capacity`). The memory may fetch the place into the cache while
    /// the consumer looks at the counter, so that a short record costs one wait and not two.
    fn expect(&self, _offset: usize) {}

    /// Whether the consumer of this lane may have [something to do](Consumer::has_work). A hint for who does not have the
    /// consumer: it believes the counter of what was consumed, in which a hostile peer may write.
    #[inline]
    fn may_have_work(&self) -> bool {
        let counters = self.counters();
        // Relaxed, all: only a hint.
        let tail = counters.tail.0.load(Ordering::Relaxed);
        if counters.head.0.load(Ordering::Relaxed) != tail || counters.starved.0.load(Ordering::Relaxed) != 0 {
            return true;
        }
        self.expect(tail as usize & (self.capacity() - 1));
        false
    }
}

/// The peer broke the rules of the ring: the connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corrupt(
    /// How the rules were broken.
    pub &'static str,
);

impl std::fmt::Display for Corrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Corrupt {}

const fn padded(len: usize) -> u64 {
    ((RECORD_PREFIX + len + 7) & !7) as u64
}

/// The writing end.
#[derive(Debug)]
pub struct Producer<M> {
    memory: M,
    head: u64,
    /// The last `tail` that was read. It is read again only when the room that it leaves is not enough.
    known_tail: u64,
}

impl<M: LaneMemory> Producer<M> {
    /// The producer of a fresh lane.
    #[must_use]
    pub fn new(memory: M) -> Self {
        debug_assert!(memory.capacity().is_power_of_two());
        Self { memory, head: 0, known_tail: 0 }
    }

    /// The longest record that this lane accepts: a quarter of the ring, so that producer and consumer can work at the
    /// same time.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.memory.capacity() / 4 - 8
    }

    /// Writes one record made of `parts` laid end to end, and publishes it. `false` if there is no room now.
    ///
    /// # Errors
    /// [`Corrupt`] if the consumer's counter is impossible.
    ///
    /// # Panics
    /// If the parts are longer than [`Producer::longest`].
    pub fn try_write(&mut self, parts: &[&[u8]], note: bool) -> Result<bool, Corrupt> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        assert!(len <= self.longest(), "a record of {len} bytes does not fit this ring");
        let need = padded(len);
        if !self.has_room(need)? {
            return Ok(false);
        }
        let mut at = self.head;
        let prefix = (len as u32) | if note { NOTE } else { 0 };
        self.put(at, &prefix.to_le_bytes());
        at += RECORD_PREFIX as u64;
        // The reader may already [wait for](LaneMemory::expect) the start of the record, and take its cache lines whenever
        // it looks. So these are written in one go, before the rest: a long copy would come back to where it began.
        let start = (self.head | (START - 1)) + 1;
        for part in parts {
            let (near, far) = part.split_at(part.len().min(start.saturating_sub(at) as usize));
            self.put(at, near);
            if !far.is_empty() {
                self.put(at + near.len() as u64, far);
            }
            at += part.len() as u64;
        }
        self.head += need;
        // Release: a consumer that sees the new head sees the bytes below it.
        self.memory.counters().head.0.store(self.head, Ordering::Release);
        Ok(true)
    }

    /// Says that this producer is about to sleep until there is room. The caller must look for room once more, and then
    /// sleep.
    pub fn declare_starved(&self) {
        self.memory.counters().starved.0.store(1, Ordering::Relaxed);
        // SeqCst fence: pairs with the fence in `Parking::park`. Either the consumer sees that this producer starves
        // before it sleeps, or the producer sees the room that the consumer made.
        fence(Ordering::SeqCst);
    }

    /// Says that this producer has found room.
    pub fn declare_sated(&self) {
        // Relaxed, and swapped only if set: as in `Parking::unpark`.
        if self.memory.counters().starved.0.load(Ordering::Relaxed) != 0 {
            self.memory.counters().starved.0.swap(0, Ordering::Relaxed);
        }
    }

    /// Whether a record of `len` bytes would fit now.
    ///
    /// # Errors
    /// [`Corrupt`] if the consumer's counter is impossible.
    pub fn fits(&mut self, len: usize) -> Result<bool, Corrupt> {
        self.has_room(padded(len))
    }

    /// Bytes ever written: records with their prefixes and padding.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.head
    }

    /// Bytes ever consumed, counted as in [`Producer::written`]: everything below has been read completely.
    ///
    /// # Errors
    /// [`Corrupt`] if the consumer's counter is impossible.
    pub fn consumed(&mut self) -> Result<u64, Corrupt> {
        // Acquire: the consumer has completely read the room below the new tail before it gave the room back.
        let tail = self.memory.counters().tail.0.load(Ordering::Acquire);
        if tail < self.known_tail || tail > self.head {
            return Err(Corrupt("the reader's counter of the ring went backwards or past the writer's"));
        }
        self.known_tail = tail;
        Ok(tail)
    }

    fn has_room(&mut self, need: u64) -> Result<bool, Corrupt> {
        let capacity = self.memory.capacity() as u64;
        Ok(self.head + need - self.known_tail <= capacity || self.head + need - self.consumed()? <= capacity)
    }

    #[inline]
    fn put(&self, at: u64, bytes: &[u8]) {
        let capacity = self.memory.capacity();
        let offset = at as usize & (capacity - 1);
        let first = bytes.len().min(capacity - offset);
        self.memory.write(offset, &bytes[..first]);
        if first < bytes.len() {
            self.memory.write(0, &bytes[first..]);
        }
    }
}

/// A record that lies in the ring, not yet consumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Length in bytes.
    pub len: usize,
    /// Whether the producer wrote the record as a note. The ring gives notes no meaning.
    pub note: bool,
}

/// The reading end.
#[derive(Debug)]
pub struct Consumer<M> {
    memory: M,
    tail: u64,
    /// The last `head` that was read. Records below it are read without touching the shared word again.
    known_head: u64,
}

impl<M: LaneMemory> Consumer<M> {
    /// The consumer of a fresh lane.
    #[must_use]
    pub fn new(memory: M) -> Self {
        debug_assert!(memory.capacity().is_power_of_two());
        Self { memory, tail: 0, known_head: 0 }
    }

    /// Whether a record was published and not consumed. Never fails: a broken counter counts as a record.
    #[must_use]
    pub fn has_record(&self) -> bool {
        // Relaxed: only reading a record needs Acquire, and `peek` loads `head` again.
        self.known_head != self.tail || self.memory.counters().head.0.load(Ordering::Relaxed) != self.tail
    }

    /// The next record, if there is one.
    ///
    /// # Errors
    /// [`Corrupt`] if the producer's counter or the record's length is impossible.
    pub fn peek(&mut self) -> Result<Option<Record>, Corrupt> {
        if self.known_head == self.tail {
            // Acquire: pairs with the producer's release, so the bytes below `head` are visible.
            let head = self.memory.counters().head.0.load(Ordering::Acquire);
            if head == self.tail {
                self.memory.expect(self.next_offset());
                return Ok(None);
            }
            let lies = head.wrapping_sub(self.tail);
            if lies > self.memory.capacity() as u64 || !lies.is_multiple_of(8) {
                return Err(Corrupt("the writer's counter of the ring went backwards or past the ring's size"));
            }
            self.known_head = head;
        }
        let prefix = self.memory.read_prefix(self.next_offset());
        let record = Record { len: (prefix & !NOTE) as usize, note: prefix & NOTE != 0 };
        if record.len > self.memory.capacity() || padded(record.len) > self.known_head - self.tail {
            return Err(Corrupt("a record in the ring is longer than what was written"));
        }
        Ok(Some(record))
    }

    /// Copies the bytes of the record that [`Consumer::peek`] returned (`into.len()` of them at most its length).
    pub fn copy(&self, into: &mut [u8]) {
        let capacity = self.memory.capacity();
        let offset = (self.tail as usize + RECORD_PREFIX) & (capacity - 1);
        let first = into.len().min(capacity - offset);
        let (front, back) = into.split_at_mut(first);
        self.memory.read(offset, front);
        if !back.is_empty() {
            self.memory.read(0, back);
        }
    }

    /// Gives the record's room back to the producer. `record` must be what [`Consumer::peek`] returned: its length is
    /// not read from shared memory a second time.
    ///
    /// # Panics
    /// If there is no such record.
    pub fn consume(&mut self, record: Record) {
        let len = padded(record.len);
        assert!(len <= self.known_head - self.tail, "consumed what was not there");
        self.tail += len;
        // Release: this consumer has read the record before the producer may overwrite it.
        self.memory.counters().tail.0.store(self.tail, Ordering::Release);
    }

    /// Whether the producer sleeps until there is room, and should be woken now. Asked when the ring was found empty,
    /// and once every quarter of the ring. A waiting producer has left at most a quarter of the ring free, so the
    /// consumer always gets to one of the two. That is why no fence is needed after each record.
    #[must_use]
    pub fn producer_waits(&self, consumed: Option<Record>) -> bool {
        if let Some(record) = consumed {
            let quarter = self.memory.capacity() as u64 / 4;
            if (self.tail - padded(record.len)) / quarter == self.tail / quarter {
                return false;
            }
        }
        // Relaxed: before it sleeps, the caller parks, which fences, and asks once more.
        let word = &self.memory.counters().starved.0;
        let starved = word.load(Ordering::Relaxed);
        // Clears whatever a hostile producer wrote there.
        starved != 0 && word.compare_exchange(starved, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Whether there is something to do: a record to take, or a producer to wake with [`Consumer::producer_waits`]. For
    /// a consumer that spins: it does not park, so it might have missed a producer that went to sleep just when the
    /// ring was found empty.
    #[inline]
    #[must_use]
    pub fn has_work(&self) -> bool {
        if self.has_record() || self.starving() {
            return true;
        }
        self.memory.expect(self.next_offset());
        false
    }

    /// Where the next record begins.
    #[inline]
    fn next_offset(&self) -> usize {
        self.tail as usize & (self.memory.capacity() - 1)
    }

    fn starving(&self) -> bool {
        self.memory.counters().starved.0.load(Ordering::Relaxed) != 0
    }
}
