//! One lane on the heap: against a model, and against a peer that breaks every rule.
#![cfg(not(loom))]

use std::cell::{Cell, UnsafeCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nearcall_ring::{Consumer, Counters, LaneMemory, Producer, RECORD_PREFIX, Record};
use proptest::prelude::*;

/// A ring on the heap. Its bytes are as unprotected as in shared memory: miri finds reads that the counters do not
/// order.
struct Heap {
    counters: Counters,
    bytes: Box<[UnsafeCell<u8>]>,
}

// SAFETY: the lane's protocol keeps producer and consumer apart; these tests check that it does.
unsafe impl Sync for Heap {}

#[derive(Clone)]
struct HeapLane(Arc<Heap>);

impl HeapLane {
    fn new(capacity: usize) -> Self {
        let bytes = (0..capacity).map(|_| UnsafeCell::new(0)).collect();
        Self(Arc::new(Heap { counters: Counters::new(), bytes }))
    }

    /// The shared words as a peer sees them. A peer may write anything there.
    fn words(&self) -> Words<'_> {
        let words = std::ptr::from_ref(&self.0.counters).cast_mut();
        // SAFETY: a line of 128 bytes begins with its word, the words are atomics, and the borrow keeps them alive.
        let head = unsafe { AtomicU64::from_ptr(words.cast()) };
        // SAFETY: as above, one line on.
        let tail = unsafe { AtomicU64::from_ptr(words.wrapping_byte_add(128).cast()) };
        // SAFETY: as above, two lines on.
        let starved = unsafe { AtomicU32::from_ptr(words.wrapping_byte_add(256).cast()) };
        Words { head, tail, starved }
    }

    fn fill(&self, bytes: &[u8]) {
        self.write(0, bytes);
    }
}

struct Words<'a> {
    head: &'a AtomicU64,
    tail: &'a AtomicU64,
    starved: &'a AtomicU32,
}

impl LaneMemory for HeapLane {
    fn counters(&self) -> &Counters {
        &self.0.counters
    }

    fn capacity(&self) -> usize {
        self.0.bytes.len()
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        for (cell, byte) in self.0.bytes[offset..][..bytes.len()].iter().zip(bytes) {
            // SAFETY: the producer owns this room, or the protocol is broken, which miri would find.
            unsafe { *cell.get() = *byte };
        }
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        for (cell, byte) in self.0.bytes[offset..][..into.len()].iter().zip(into) {
            // SAFETY: the record was published, or as in `write`.
            *byte = unsafe { *cell.get() };
        }
    }

    fn read_prefix(&self, offset: usize) -> u32 {
        assert!(offset.is_multiple_of(8), "a prefix lies at a multiple of 8");
        let mut prefix = [0; RECORD_PREFIX];
        self.read(offset, &mut prefix);
        u32::from_le_bytes(prefix)
    }
}

fn lane(capacity: usize) -> (HeapLane, Producer<HeapLane>, Consumer<HeapLane>) {
    let lane = HeapLane::new(capacity);
    (lane.clone(), Producer::new(lane.clone()), Consumer::new(lane))
}

fn taken(consumer: &mut Consumer<HeapLane>) -> Option<(Vec<u8>, bool)> {
    let record = consumer.peek().expect("a sane ring")?;
    let mut bytes = vec![0; record.len];
    consumer.copy(&mut bytes);
    consumer.consume(record);
    Some((bytes, record.note))
}

fn padded(len: usize) -> usize {
    (len + RECORD_PREFIX).next_multiple_of(8)
}

#[derive(Debug, Clone)]
enum Step {
    /// A record: its length in 1024ths of the longest one, where the payload is split, and whether it is a note.
    Write(usize, usize, bool),
    Read,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let write =
        (0..=1024_usize, 0..=1024_usize, any::<bool>()).prop_map(|(len, cut, note)| Step::Write(len, cut, note));
    prop::collection::vec(prop_oneof![3 => write, 2 => Just(Step::Read)], 0..if cfg!(miri) { 40 } else { 400 })
}

fn few() -> ProptestConfig {
    ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(few())]

    /// For every order of writes and reads, the ring is a queue, and it is full exactly when the model says so.
    #[test]
    fn a_ring_is_a_queue(power in 6_u32..13, steps in steps()) {
        let (_, mut producer, mut consumer) = lane(1 << power);
        let mut model = VecDeque::new();
        let mut used = 0;
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Write(len, cut, note) => {
                    let len = producer.longest() * len / 1024;
                    let bytes: Vec<u8> = (0..len).map(|at| (number * 31 + at) as u8).collect();
                    let (front, back) = bytes.split_at(len * cut / 1024);
                    let room = used + padded(len) <= 1 << power;
                    prop_assert_eq!(producer.fits(len), Ok(room));
                    prop_assert_eq!(producer.try_write(&[front, &[], back], note), Ok(room));
                    if room {
                        used += padded(len);
                        model.push_back((bytes, note));
                    }
                }
                Step::Read => {
                    let expected = model.pop_front();
                    used -= expected.as_ref().map_or(0, |(bytes, _)| padded(bytes.len()));
                    prop_assert_eq!(consumer.has_record(), expected.is_some());
                    prop_assert_eq!(taken(&mut consumer), expected);
                }
            }
        }
        while let Some(expected) = model.pop_front() {
            prop_assert_eq!(taken(&mut consumer), Some(expected));
        }
        prop_assert!(!consumer.has_record());
    }

    /// With arbitrary bytes and counters, the consumer reports an error or finds records inside the published part. A
    /// read outside the ring would panic in the slices of the heap lane.
    #[test]
    fn a_hostile_producer_does_no_harm(
        bytes in prop::collection::vec(any::<u8>(), 256),
        heads in prop::collection::vec(prop_oneof![any::<u64>(), (0..64_u64).prop_map(|head| head * 8)], 1..30),
    ) {
        let (lane, _, mut consumer) = lane(256);
        lane.fill(&bytes);
        let mut given_back = 0;
        for head in heads {
            lane.words().head.store(head, Ordering::Release);
            while let Ok(Some(record)) = consumer.peek() {
                prop_assert!(padded(record.len) <= 256);
                let mut bytes = vec![0; record.len];
                consumer.copy(&mut bytes);
                consumer.consume(record);
                let tail = lane.words().tail.load(Ordering::Relaxed);
                prop_assert_eq!(tail, given_back + padded(record.len) as u64);
                given_back = tail;
            }
        }
    }

    /// With arbitrary counters from the reader, the producer reports an error or goes on inside the ring.
    #[test]
    fn a_hostile_consumer_does_no_harm(
        tails in prop::collection::vec(prop_oneof![any::<u64>(), 0..2048_u64], 1..60),
        lens in prop::collection::vec(0..=56_usize, 60),
    ) {
        let (lane, mut producer, _) = lane(256);
        let mut known = 0;
        for (tail, len) in tails.into_iter().zip(lens) {
            lane.words().tail.store(tail, Ordering::Release);
            let head = lane.words().head.load(Ordering::Relaxed);
            let written = producer.try_write(&[&vec![1; len]], false);
            if head + padded(len) as u64 - known <= 256 {
                prop_assert_eq!(written, Ok(true), "room that was known needs no look");
            } else if tail < known || tail > head {
                prop_assert!(written.is_err());
            } else {
                prop_assert_eq!(written, Ok(head + padded(len) as u64 - tail <= 256));
                known = tail;
            }
        }
    }
}

#[test]
fn whether_a_lane_has_work_is_seen_without_its_consumer() {
    let (lane, mut producer, mut consumer) = lane(256);
    assert!(!lane.may_have_work());
    // Twice round the ring.
    for _ in 0..16 {
        assert_eq!(producer.try_write(&[&[7; 20]], false), Ok(true));
        assert!(lane.may_have_work());
        assert_eq!(taken(&mut consumer).map(|(record, _)| record.len()), Some(20));
        assert!(!lane.may_have_work());
    }
    producer.declare_starved();
    assert!(lane.may_have_work(), "a producer is to be woken");
    producer.declare_sated();
    for tail in [1, 255, u64::MAX] {
        lane.words().tail.store(tail, Ordering::Relaxed);
        assert!(lane.may_have_work());
        // A peer that makes the lane look empty where it is not finds no place outside the ring either.
        lane.words().head.store(tail, Ordering::Relaxed);
        assert!(!lane.may_have_work());
    }
}

/// The start of a record is written ahead of the rest; where that is cut depends on where the record lies.
#[test]
fn a_record_is_whole_wherever_it_begins() {
    let (_, mut producer, mut consumer) = lane(8192);
    for skip in (4..512).step_by(8) {
        let record: Vec<u8> = (0..700_usize).map(|at| (at ^ skip) as u8).collect();
        let (head, payload) = record.split_at(skip % 70);
        for parts in [&[&record[..]][..], &[head, payload], &[head, &payload[..600], &payload[600..], &[]]] {
            assert_eq!(producer.try_write(parts, false), Ok(true));
            assert_eq!(taken(&mut consumer), Some((record.clone(), false)));
        }
        assert_eq!(producer.try_write(&[&vec![0; skip]], true), Ok(true));
        assert_eq!(taken(&mut consumer), Some((vec![0; skip], true)));
    }
}

#[test]
fn counters_that_cannot_be_are_refused() {
    // Not a multiple of 8, past the ring's size, backwards.
    for head in [4, 9, 264, u64::MAX, u64::MAX - 7, 1 << 63] {
        let (lane, _, mut consumer) = lane(256);
        lane.words().head.store(head, Ordering::Release);
        assert!(consumer.has_record(), "a broken counter is something to look at");
        assert!(consumer.peek().is_err(), "head {head}");
    }
    let (lane, mut producer, mut consumer) = lane(256);
    producer.try_write(&[b"one"], false).expect("room");
    assert!(taken(&mut consumer).is_some());
    lane.words().head.store(0, Ordering::Release);
    assert!(consumer.peek().is_err(), "the head went backwards");
}

#[test]
fn a_record_longer_than_what_was_published_is_refused() {
    for (len, published) in [(5_u32, 8), (12, 8), (253, 256), (u32::MAX >> 1, 256), (u32::MAX, 256)] {
        let (lane, _, mut consumer) = lane(256);
        lane.fill(&len.to_le_bytes());
        lane.words().head.store(published, Ordering::Release);
        assert!(consumer.peek().is_err(), "{len} bytes in {published}");
    }
    let (lane, _, mut consumer) = lane(256);
    lane.fill(&252_u32.to_le_bytes());
    lane.words().head.store(256, Ordering::Release);
    assert_eq!(consumer.peek(), Ok(Some(Record { len: 252, note: false })), "it fills the ring");
}

/// A peer that changes every byte between two reads.
struct TwoFaced {
    counters: Counters,
    prefixes: Cell<u32>,
    lengths: Vec<u32>,
}

impl LaneMemory for &TwoFaced {
    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn capacity(&self) -> usize {
        256
    }

    fn write(&self, _: usize, _: &[u8]) {
        unreachable!("only read in this test")
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        assert!(offset + into.len() <= 256, "read past the ring");
        into.fill(self.prefixes.get() as u8);
    }

    fn read_prefix(&self, _: usize) -> u32 {
        let read = self.prefixes.get();
        self.prefixes.set(read + 1);
        self.lengths[read as usize % self.lengths.len()]
    }
}

#[test]
fn a_length_that_changes_is_read_once() {
    // Valid at the first look and far too long at the second, and the other way round.
    for lengths in [vec![8, u32::MAX], vec![8, 252], vec![252, 8], vec![12, 0]] {
        let memory = TwoFaced { counters: Counters::new(), prefixes: Cell::new(0), lengths: lengths.clone() };
        let head = std::ptr::from_ref(&memory.counters).cast_mut().cast();
        // SAFETY: the first word is the head, an atomic; `memory` outlives this.
        unsafe { AtomicU64::from_ptr(head) }.store(256, Ordering::Release);
        let mut consumer = Consumer::new(&memory);
        let record = consumer.peek().expect("sane").expect("a record");
        let mut bytes = vec![0; record.len];
        consumer.copy(&mut bytes);
        consumer.consume(record);
        assert_eq!((record.len as u32, memory.prefixes.get()), (lengths[0], 1));
    }
}

#[test]
fn the_lengths_31_bits_and_the_note_do_not_mix() {
    let (lane, mut producer, mut consumer) = lane(256);
    assert_eq!(producer.try_write(&[b"abc"], true), Ok(true));
    assert_eq!(producer.try_write(&[b"abc"], false), Ok(true));
    let mut prefix = [0; 4];
    lane.read(0, &mut prefix);
    assert_eq!(u32::from_le_bytes(prefix), 3 | 1 << 31);
    assert_eq!(taken(&mut consumer), Some((b"abc".to_vec(), true)));
    assert_eq!(taken(&mut consumer), Some((b"abc".to_vec(), false)));
}

#[test]
fn a_waiting_producer_is_seen_once_and_by_the_end_of_the_ring_at_the_latest() {
    let (lane, mut producer, mut consumer) = lane(256);
    while producer.try_write(&[&[7; 20]], false) == Ok(true) {}
    producer.declare_starved();
    assert_eq!(producer.fits(20), Ok(false));
    let mut told = 0;
    while let Some(record) = consumer.peek().expect("a sane ring") {
        consumer.consume(record);
        told += u32::from(consumer.producer_waits(Some(record)));
    }
    assert_eq!(told, 1, "after the first quarter");
    assert!(!consumer.producer_waits(None), "once is enough");
    assert!(!consumer.has_work());
    producer.declare_starved();
    assert!(consumer.has_work() && consumer.producer_waits(None));
    producer.declare_starved();
    producer.declare_sated();
    assert!(!consumer.has_work());
    // A word that a correct producer never writes must not keep a consumer awake for ever.
    lane.words().starved.store(u32::MAX, Ordering::Relaxed);
    assert!(consumer.producer_waits(None) && !consumer.has_work());
}

#[test]
#[should_panic(expected = "consumed what was not there")]
fn a_record_is_consumed_once() {
    let (_, mut producer, mut consumer) = lane(256);
    producer.try_write(&[b"abc"], false).expect("room");
    let record = consumer.peek().expect("sane").expect("a record");
    consumer.consume(record);
    consumer.consume(record);
}

#[test]
#[should_panic(expected = "does not fit this ring")]
fn a_record_over_the_longest_is_a_bug_of_the_caller() {
    let (_, mut producer, _) = lane(256);
    let _ = producer.try_write(&[&vec![0; producer.longest() + 1]], false);
}

#[test]
fn two_threads_pass_records_of_every_size() {
    let (_, mut producer, mut consumer) = lane(1024);
    let longest = producer.longest();
    let rounds = if cfg!(miri) { 60 } else { 20_000 };
    let record = move |n: usize| vec![n as u8; n * 7 % (longest + 1)];
    let writer = std::thread::spawn(move || {
        for n in 0..rounds {
            while producer.try_write(&[&record(n)], n % 3 == 0) == Ok(false) {
                std::thread::yield_now();
            }
        }
    });
    for n in 0..rounds {
        let taken = loop {
            match taken(&mut consumer) {
                Some(taken) => break taken,
                None => std::thread::yield_now(),
            }
        };
        assert_eq!(taken, (record(n), n % 3 == 0));
    }
    writer.join().expect("no panic");
}

/// Clippy cannot tell loom's atomics from plain ones, because outside of loom they are the same type.
#[test]
#[cfg(not(miri))]
fn atomics_come_from_the_shim() {
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).expect("the sources") {
        let path = file.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a source");
        assert!(path.ends_with("sync.rs") || !text.contains("sync::atomic"), "{}", path.display());
    }
}
