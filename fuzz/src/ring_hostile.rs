//! A ring whose other end writes what it likes, whenever it likes: counters and bytes alike.
//!
//! The input is a list of steps of the hostile peer, between which our ends do their work.
use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nearcall_ring::{Consumer, Counters, LaneMemory, Producer};

const RING: usize = 256;

struct Memory {
    counters: Counters,
    bytes: RefCell<[u8; RING]>,
    /// What the peer does to the bytes each time we have read some.
    meddles: u8,
}

impl Memory {
    /// The shared word on cache line pair `line`: 0 is the head, 1 the tail.
    fn counter(&self, line: usize) -> &AtomicU64 {
        let word = std::ptr::from_ref(&self.counters).cast_mut().cast::<u8>().wrapping_add(line * 128);
        // SAFETY: each line of 128 bytes begins with its word, an atomic; the counters live as long as `self`.
        unsafe { AtomicU64::from_ptr(word.cast()) }
    }

    /// Whether the producer starves.
    fn starved(&self) -> &AtomicU32 {
        let word = std::ptr::from_ref(&self.counters).cast_mut().cast::<u8>().wrapping_add(256);
        // SAFETY: as above; this one has 32 bits.
        unsafe { AtomicU32::from_ptr(word.cast()) }
    }

    fn meddle(&self) {
        if self.meddles != 0 {
            self.bytes.borrow_mut().iter_mut().for_each(|byte| *byte = byte.wrapping_mul(self.meddles).wrapping_add(1));
        }
    }
}

// Slices panic where a pointer would leave the ring.
impl LaneMemory for &Memory {
    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn capacity(&self) -> usize {
        RING
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        self.bytes.borrow_mut()[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.bytes.borrow()[offset..offset + into.len()]);
        self.meddle();
    }

    fn read_prefix(&self, offset: usize) -> u32 {
        let prefix = u32::from_le_bytes(self.bytes.borrow()[offset..offset + 4].try_into().expect("4 bytes"));
        self.meddle();
        prefix
    }
}

fn word(input: &mut impl Iterator<Item = u8>) -> u64 {
    // Small numbers mostly: the great ones are all alike.
    match input.next().unwrap_or(0) {
        255 => u64::from_le_bytes(std::array::from_fn(|_| input.next().unwrap_or(255))),
        byte => u64::from(byte) * 8,
    }
}

/// Runs the target on one input; panics if something is wrong.
pub(crate) fn run(input: &[u8]) {
    let mut input = input.iter().copied();
    let meddles = input.next().unwrap_or(0);
    let memory = Memory { counters: Counters::new(), bytes: RefCell::new([0; RING]), meddles };
    let mut consumer = Consumer::new(&memory);
    let mut producer = Producer::new(&memory);
    let mut published = 0;
    while let Some(step) = input.next() {
        published = published.max(memory.counter(0).load(Ordering::Relaxed));
        match step % 6 {
            0 => memory.counter(0).store(word(&mut input), Ordering::Release),
            1 => memory.counter(1).store(word(&mut input), Ordering::Release),
            2 => memory.starved().store(word(&mut input) as u32, Ordering::Release),
            3 => {
                let at = usize::from(input.next().unwrap_or(0)) & !7;
                let prefix: [u8; 4] = std::array::from_fn(|_| input.next().unwrap_or(0));
                memory.bytes.borrow_mut()[at..at + 4].copy_from_slice(&prefix);
            }
            4 => {
                let _ = consumer.has_work();
                if let Ok(Some(record)) = consumer.peek() {
                    assert!(record.len <= RING);
                    let mut bytes = vec![0; record.len];
                    consumer.copy(&mut bytes);
                    consumer.consume(record);
                    assert!(memory.counter(1).load(Ordering::Relaxed) <= published, "more than there ever was");
                    let _ = consumer.producer_waits(Some(record));
                } else {
                    let _ = consumer.producer_waits(None);
                }
            }
            _ => {
                let len = usize::from(input.next().unwrap_or(0)).min(producer.longest());
                if producer.fits(len) == Ok(true) {
                    assert_eq!(producer.try_write(&[&vec![7; len]], len % 2 == 1), Ok(true), "it did fit");
                } else {
                    producer.declare_starved();
                }
            }
        }
    }
}
