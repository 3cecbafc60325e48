//! `crates/core/src/server/baton.rs` and `turn.rs`

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicBool;
use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::baton::Baton;
use super::turn::Turn;
use crate::descriptors::{EventDescriptor, Poller, set_readable};
use crate::models::check;
use crate::sync::{Ordering, let_time_fly};

/// What only the one that receives may touch.
#[derive(Default)]
struct Reception {
    baton: Baton,
    cell: UnsafeCell<u32>,
}

impl Reception {
    fn new() -> Arc<Self> {
        let new = Self::default();
        assert!(new.baton.is_vacant());
        Arc::new(new)
    }

    fn receive(&self) {
        assert!(self.baton.is_held());
        // SAFETY: loom fails the model if anybody else has the cell.
        self.cell.with_mut(|count| unsafe { *count += 1 });
    }

    /// One worker: receives, handles, and goes on with receiving if it still may.
    fn work(&self) {
        if self.baton.try_take() {
            self.receive();
            assert!(self.baton.busy());
            if self.baton.back() {
                self.receive();
                assert!(self.baton.give_up());
            } else {
                assert!(!self.baton.is_held());
            }
        }
    }
}

/// Whoever steals the baton from a holder that comes back at that moment has it, or the holder has: never both.
#[test]
fn one_receives_at_a_time() {
    check(Some(3), || {
        let reception = Reception::new();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let reception = Arc::clone(&reception);
                thread::spawn(move || reception.work())
            })
            .collect();
        if reception.baton.steal(reception.baton.look()) {
            reception.work();
        }
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
}

/// The event loop finds what was queued for it before it was offered the baton, once; and may lose it while it listens.
#[test]
fn an_offer_brings_what_was_done_before_it() {
    check(Some(3), || {
        let reception = Reception::new();
        let (for_worker, for_thief) = (Arc::clone(&reception), Arc::clone(&reception));
        let worker = thread::spawn(move || {
            if for_worker.baton.try_take() {
                for_worker.receive();
                assert!(for_worker.baton.offer());
                assert!(!for_worker.baton.is_held());
            }
        });
        let thief = thread::spawn(move || {
            if for_thief.baton.steal(for_thief.baton.look()) {
                for_thief.work();
            }
        });
        if reception.baton.take_offered() {
            reception.receive();
            assert!(reception.baton.listen());
            if reception.baton.back() {
                reception.receive();
                assert!(reception.baton.give_up());
            }
        }
        worker.join().expect("no panic");
        thief.join().expect("no panic");
    });
}

/// Waits for something that happens once.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.open.lock().expect("no panic") = true;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let mut open = self.open.lock().expect("no panic");
        while !*open {
            open = self.opened.wait(open).expect("no panic");
        }
    }
}

/// A turn that this thread has.
fn taken() -> Arc<Turn> {
    let_time_fly();
    let turn = Turn::new(EventDescriptor, Arc::new(Poller));
    assert!(turn.try_take());
    // All atomics are there before another thread sees them.
    turn.busy();
    assert!(turn.back());
    turn.announce();
    Arc::new(turn)
}

/// A worker that stands by until it has the turn.
fn stand_by(turn: &Turn) {
    while !turn.try_take() {
        turn.stand_by(|| false);
    }
}

/// A thread that stands by, and opens the gate once it has the turn.
fn standby(turn: &Arc<Turn>) -> (thread::JoinHandle<()>, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let (turn, opens) = (Arc::clone(turn), Arc::clone(&gate));
    let thread = thread::spawn(move || {
        stand_by(&turn);
        opens.open();
    });
    (thread, gate)
}

/// A handler that never returns keeps nobody waiting, however soundly the watcher slept when it began.
#[test]
fn a_stuck_handler_loses_the_turn() {
    check(Some(3), || {
        let turn = taken();
        let (thread, has_it) = standby(&turn);
        turn.busy();
        has_it.pass();
        thread.join().expect("no panic");
        assert!(!turn.back());
    });
}

/// The same after one that was quick.
#[test]
fn the_next_handler_loses_the_turn_too() {
    check(Some(2), || {
        let turn = taken();
        let (thread, has_it) = standby(&turn);
        turn.busy();
        if turn.back() {
            turn.busy();
        }
        has_it.pass();
        thread.join().expect("no panic");
    });
}

/// An event loop that does not come for what it was offered loses it.
#[test]
fn an_offer_that_nobody_takes_is_taken_back() {
    check(Some(3), || {
        let turn = taken();
        let (thread, has_it) = standby(&turn);
        turn.offer();
        has_it.pass();
        thread.join().expect("no panic");
        assert!(!turn.take_offered());
    });
}

/// An event loop that listens, and does not come when something is there, loses the turn.
#[test]
fn a_loop_that_is_blocked_loses_the_turn() {
    check(Some(3), || {
        let turn = taken();
        let (thread, has_it) = standby(&turn);
        turn.listen();
        set_readable(true);
        has_it.pass();
        thread.join().expect("no panic");
        assert!(!turn.back());
    });
}

/// One that comes, and then runs a coroutine that never returns, loses it too: nothing rings for the clients whose memory
/// it was about to look at.
#[test]
fn a_loop_that_came_once_and_is_stuck_loses_the_turn() {
    check(Some(2), || {
        let turn = taken();
        let (thread, has_it) = standby(&turn);
        turn.listen();
        if turn.back() {
            turn.busy();
        }
        has_it.pass();
        thread.join().expect("no panic");
    });
}

/// Whoever leaves the turn is followed by one that stands by, and that one by the next.
#[test]
fn a_free_turn_is_taken() {
    check(Some(2), || {
        let turn = taken();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let turn = Arc::clone(&turn);
                thread::spawn(move || {
                    stand_by(&turn);
                    turn.release();
                })
            })
            .collect();
        turn.release();
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
}

/// Whoever took the turn from a stuck handler is watched in its turn.
#[test]
fn the_second_stuck_handler_loses_the_turn_too() {
    check(Some(1), || {
        let turn = taken();
        let gate = Arc::new(Gate::default());
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (turn, gate) = (Arc::clone(&turn), Arc::clone(&gate));
                thread::spawn(move || {
                    stand_by(&turn);
                    turn.busy();
                    gate.open();
                })
            })
            .collect();
        turn.busy();
        gate.pass();
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
}

/// The end wakes all.
#[test]
fn all_that_stand_by_hear_of_the_end() {
    check(Some(2), || {
        let turn = taken();
        let over = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (turn, over) = (Arc::clone(&turn), Arc::clone(&over));
                thread::spawn(move || turn.stand_by(|| over.load(Ordering::Relaxed)))
            })
            .collect();
        over.store(true, Ordering::Relaxed);
        turn.announce();
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
}

// What each weakening broke, tried by hand, one at a time.
//
// | weakened                                             | fails                                               |
// |------------------------------------------------------|-----------------------------------------------------|
// | `Baton::swap` only `Acquire`, or only `Release`      | one receives at a time, an offer brings             |
// | `Baton::settle` with `Relaxed`, or as a load         | all in which a handler, an offer or a loop is stuck |
// | `stand_by` does not look again after it says that    | the same                                            |
// |   the watcher sleeps                                 |                                                     |
// | `watch_loop` looks without `settle`                  | a loop that came once                               |
// | `busy` does not wake the watcher                     | stuck handlers, a loop that came once               |
// | `offer` does not wake the watcher                    | an offer that nobody takes                          |
// | `listen` does not wake the watcher                   | a loop that is blocked                              |
