//! Model tests: loom runs them under every interleaving and every result the memory model allows (`make loom`).
//!
//! The ring's bytes are loom cells, so that a read which the counters do not order after its write is a failure. A
//! sleeping side that is never woken is a deadlock, which loom reports. Each ordering that a comment in the source
//! explains was weakened once, to see a model fail. The table at the end says which model did.
#![cfg(loom)]

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::{Condvar, Mutex};
use loom::thread;
use nearcall_ring::{Consumer, Counters, LaneMemory, Parking, Producer};

/// The smallest ring that accepts records of 8 bytes: four of them fill it.
const RING: usize = 64;
const CELL: usize = 8;

/// A ring on the heap. A record begins at a multiple of 8, so that cells of 8 bytes see every race.
struct Heap {
    counters: Counters,
    cells: Vec<UnsafeCell<[u8; CELL]>>,
}

#[derive(Clone)]
struct HeapLane(Arc<Heap>);

impl HeapLane {
    fn new() -> Self {
        let cells = (0..RING / CELL).map(|_| UnsafeCell::new([0; CELL])).collect();
        Self(Arc::new(Heap { counters: Counters::new(), cells }))
    }
}

impl LaneMemory for HeapLane {
    fn counters(&self) -> &Counters {
        &self.0.counters
    }

    fn capacity(&self) -> usize {
        RING
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            // SAFETY: loom fails the model if another thread accesses the cell.
            self.0.cells[at / CELL].with_mut(|cell| unsafe { (*cell)[at % CELL] = *byte });
        }
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        for (at, byte) in (offset..).zip(into) {
            // SAFETY: as in `write`.
            *byte = self.0.cells[at / CELL].with(|cell| unsafe { (*cell)[at % CELL] });
        }
    }

    fn read_prefix(&self, offset: usize) -> u32 {
        let mut prefix = [0; 4];
        self.read(offset, &mut prefix);
        u32::from_le_bytes(prefix)
    }
}

/// The content of record number `n`: 4 to 8 bytes, each record padded to a quarter of the ring.
fn record(n: u8) -> Vec<u8> {
    vec![n + 1; usize::from(5 + n % 4)]
}

fn take(consumer: &mut Consumer<HeapLane>, n: u8) -> bool {
    let Some(found) = consumer.peek().expect("a sane ring") else { return false };
    let mut bytes = vec![0; found.len];
    consumer.copy(&mut bytes);
    consumer.consume(found);
    assert_eq!((bytes, found.note), (record(n), n % 2 == 1), "record {n}");
    true
}

fn lane() -> (Producer<HeapLane>, Consumer<HeapLane>) {
    let lane = HeapLane::new();
    (Producer::new(lane.clone()), Consumer::new(lane))
}

fn write(producer: &mut Producer<HeapLane>, n: u8) -> bool {
    producer.try_write(&[&record(n)], n % 2 == 1).expect("a sane ring")
}

fn check(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

/// Records arrive complete, in order, and exactly once, also when the ring wraps and its room is used again.
#[test]
fn records_arrive_whole_and_in_order() {
    check(Some(3), || {
        let (mut producer, mut consumer) = lane();
        let mut written = 0;
        while write(&mut producer, written) {
            written += 1;
        }
        assert_eq!(written, 4, "the ring is full");
        let writer = thread::spawn(move || {
            for n in 4..6 {
                while !write(&mut producer, n) {
                    thread::yield_now();
                }
            }
        });
        for n in 0..6 {
            while !take(&mut consumer, n) {
                thread::yield_now();
            }
        }
        writer.join().expect("no panic");
        assert_eq!(consumer.peek(), Ok(None));
    });
}

/// The same from an empty ring, under every interleaving.
#[test]
fn an_empty_ring_hands_over_what_comes() {
    check(None, || {
        let (mut producer, mut consumer) = lane();
        let writer = thread::spawn(move || {
            for n in 0..3 {
                assert!(write(&mut producer, n));
            }
        });
        for n in 0..3 {
            while !take(&mut consumer, n) {
                thread::yield_now();
            }
        }
        writer.join().expect("no panic");
    });
}

/// A bell: a byte in a socket. It stays until the sleeping side reads it, and several rings have the effect of one.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().expect("no panic") = true;
        self.heard.notify_one();
    }

    fn wait(&self) {
        let mut rung = self.rung.lock().expect("no panic");
        while !*rung {
            rung = self.heard.wait(rung).expect("no panic");
        }
        *rung = false;
    }
}

/// One side of a connection: its bell and whether it sleeps.
struct Sleeper {
    bell: Bell,
    parking: Parking,
}

impl Sleeper {
    fn new() -> Arc<Self> {
        Arc::new(Self { bell: Bell::default(), parking: Parking::new() })
    }
}

/// A sleeping consumer is woken by the thread that publishes a record, as in the transport's link, but without
/// spinning.
#[test]
fn nobody_sleeps_through_a_record() {
    check(None, || {
        let (mut producer, mut consumer) = lane();
        let reader = Sleeper::new();
        let peer = Arc::clone(&reader);
        let writer = thread::spawn(move || {
            for n in 0..2 {
                assert!(write(&mut producer, n));
                if peer.parking.claim_wake() {
                    peer.bell.ring();
                }
            }
        });
        for n in 0..2 {
            while !take(&mut consumer, n) {
                reader.parking.park();
                if !consumer.has_record() {
                    reader.bell.wait();
                }
                reader.parking.unpark();
            }
        }
        writer.join().expect("no panic");
    });
}

/// Two threads of one process publish (in turn, under the sender's lock), and both look whether the peer sleeps. The
/// thread that claims the wake-up rings, and the other thread's record is not missed.
#[test]
fn one_of_two_senders_wakes_the_sleeper() {
    check(Some(3), || {
        let (producer, mut consumer) = lane();
        let producer = Arc::new(Mutex::new((producer, 0)));
        let reader = Sleeper::new();
        let senders: Vec<_> = (0..2)
            .map(|_| {
                let (producer, peer) = (Arc::clone(&producer), Arc::clone(&reader));
                thread::spawn(move || {
                    {
                        let (producer, next) = &mut *producer.lock().expect("no panic");
                        assert!(write(producer, *next));
                        *next += 1;
                    }
                    // The lock is free already: the other sender may publish between this thread's record and its look.
                    if peer.parking.claim_wake() {
                        peer.bell.ring();
                    }
                })
            })
            .collect();
        for n in 0..2 {
            while !take(&mut consumer, n) {
                reader.parking.park();
                if !consumer.has_record() {
                    reader.bell.wait();
                }
                reader.parking.unpark();
            }
        }
        for sender in senders {
            sender.join().expect("no panic");
        }
    });
}

/// Writes records `from..to`, and sleeps without room as the link does.
fn write_all(producer: &mut Producer<HeapLane>, from: u8, to: u8, own: &Bell, peer: &Sleeper) {
    for n in from..to {
        let mut starving = false;
        while !write(producer, n) {
            producer.declare_starved();
            starving = true;
            if !producer.fits(record(n).len()).expect("a sane ring") {
                own.wait();
            }
        }
        if starving {
            producer.declare_sated();
        }
        if peer.parking.claim_wake() {
            peer.bell.ring();
        }
    }
}

/// A producer that sleeps without room is woken by a consumer that takes everything and then sleeps itself.
#[test]
fn a_starving_producer_is_woken_by_a_consumer_that_goes_to_sleep() {
    check(Some(3), || {
        let (mut producer, mut consumer) = lane();
        for n in 0..4 {
            assert!(write(&mut producer, n), "the ring is not full yet");
        }
        let reader = Sleeper::new();
        let peer = Arc::clone(&reader);
        let room = Arc::new(Bell::default());
        let own = Arc::clone(&room);
        let writer = thread::spawn(move || write_all(&mut producer, 4, 6, &own, &peer));
        for n in 0..6 {
            while !take(&mut consumer, n) {
                reader.parking.park();
                if !consumer.has_record() {
                    // The last look before the sleep, after the fence in `park`: it must not miss the producer.
                    if consumer.producer_waits(None) {
                        room.ring();
                    }
                    reader.bell.wait();
                }
                reader.parking.unpark();
            }
        }
        // The last record has arrived, so the producer does not wait for room any more.
        writer.join().expect("no panic");
    });
}

/// The same with a consumer that spins and never parks: `has_work` shows a producer that it has missed.
#[test]
fn a_starving_producer_is_woken_by_a_consumer_that_spins() {
    check(Some(3), || {
        let (mut producer, mut consumer) = lane();
        for n in 0..4 {
            assert!(write(&mut producer, n), "the ring is not full yet");
        }
        let reader = Sleeper::new();
        let peer = Arc::clone(&reader);
        let room = Arc::new(Bell::default());
        let own = Arc::clone(&room);
        let writer = thread::spawn(move || write_all(&mut producer, 4, 5, &own, &peer));
        for n in 0..5 {
            while !take(&mut consumer, n) {
                if consumer.producer_waits(None) {
                    room.ring();
                }
                while !consumer.has_work() {
                    thread::yield_now();
                }
            }
        }
        writer.join().expect("no panic");
    });
}

// What each weakening broke, tried by hand, one at a time. "All" are the six models above.
//
// | weakened                                     | fails                                     |
// |----------------------------------------------|-------------------------------------------|
// | `head` stored or loaded `Relaxed`            | all                                       |
// | `tail` stored or loaded `Relaxed`            | both starving ones, whole and in order    |
// | no fence in `park`, or only `AcqRel`         | nobody sleeps, two senders, goes to sleep |
// | no fence in `claim_wake`, or only `AcqRel`   | the same                                  |
// | no fence in `declare_starved`, or `AcqRel`   | goes to sleep                             |
// | `has_work` does not look for a starving peer | spins                                     |
//
// Loom orders concurrent relaxed stores less than the language does (a read-modify-write may land on either side of
// them). So the two flags are only cleared by a compare-and-exchange or a swap. A plain store would be as correct, but
// loom would report executions that cannot happen.
