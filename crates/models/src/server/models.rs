//! `crates/core/src/server/threads/leadership/lead.rs` and `mod.rs`

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::threads::leadership::Leadership;
use super::threads::leadership::lead::Lead;
use crate::descriptors::{Alarm, EventDescriptor, Poller, set_readable};
use crate::models::check;
use crate::sync::{let_time_fly, thread_number};

/// What only the receiving thread may touch.
#[derive(Default)]
struct Reactor {
    lead: Lead,
    cell: UnsafeCell<u32>,
}

impl Reactor {
    fn new() -> Arc<Self> {
        let new = Self::default();
        assert!(new.lead.is_vacant());
        Arc::new(new)
    }

    fn receive(&self) {
        assert!(self.lead.is_held());
        // SAFETY: loom fails the model if anybody else has the cell.
        self.cell.with_mut(|count| unsafe { *count += 1 });
    }

    /// One worker: receives, handles, and goes on with receiving if it still may.
    fn work(&self, has_lead: bool) {
        if has_lead {
            self.receive();
            assert!(self.lead.busy());
            if self.lead.back() {
                self.receive();
                assert!(self.lead.give_up());
            } else {
                assert!(!self.lead.is_held());
            }
        }
    }
}

/// If a thread steals the lead at the moment when the holder comes back, one of them has it: never both.
#[test]
fn one_receives_at_a_time() {
    check(Some(3), || {
        let reactor = Reactor::new();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let reactor = Arc::clone(&reactor);
                thread::spawn(move || reactor.work(reactor.lead.try_take()))
            })
            .collect();
        reactor.work(reactor.lead.steal(reactor.lead.look()));
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
}

/// The same if a thread that waits for frames takes the lead from the handler of its call.
#[test]
fn one_receives_at_a_time_beside_a_handler() {
    check(Some(3), || {
        let reactor = Reactor::new();
        let handler = thread_number();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let reactor = Arc::clone(&reactor);
                thread::spawn(move || reactor.work(reactor.lead.take_from(handler)))
            })
            .collect();
        reactor.work(reactor.lead.try_take());
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
}

/// An event loop that takes an offer sees what was done before the offer. It takes the offer once, and may lose the
/// lead while it listens.
#[test]
fn an_offer_brings_what_was_done_before_it() {
    check(Some(3), || {
        let reactor = Reactor::new();
        let (for_worker, for_thief) = (Arc::clone(&reactor), Arc::clone(&reactor));
        let worker = thread::spawn(move || {
            if for_worker.lead.try_take() {
                for_worker.receive();
                assert!(for_worker.lead.offer());
                assert!(!for_worker.lead.is_held());
            }
        });
        let thief = thread::spawn(move || for_thief.work(for_thief.lead.steal(for_thief.lead.look())));
        if reactor.lead.take_offered() {
            reactor.receive();
            assert!(reactor.lead.listen());
            if reactor.lead.back() {
                reactor.receive();
                assert!(reactor.lead.give_up());
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

/// A leadership in which this thread has the lead.
fn taken() -> Arc<Leadership> {
    let_time_fly();
    let leadership = Leadership::new(EventDescriptor, Alarm, Arc::new(Poller));
    assert!(leadership.lead.try_take());
    // All atomics are made here, before another thread sees them.
    leadership.busy();
    assert!(leadership.lead.back());
    leadership.join();
    assert_eq!((leadership.ready(), leadership.workers()), (0, (1, 0)));
    Arc::new(leadership)
}

/// A worker that is parked until it has the lead. Whether it gets that; if not, it is one too many.
fn parks(leadership: &Leadership) -> bool {
    while !leadership.lead.is_held() && !leadership.lead.try_take() {
        if !leadership.park() {
            return false;
        }
    }
    true
}

/// A thread that is parked, and opens the gate once it has the lead.
fn parked(leadership: &Arc<Leadership>) -> (thread::JoinHandle<()>, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let (leadership, opens) = (Arc::clone(leadership), Arc::clone(&gate));
    let thread = thread::spawn(move || {
        assert!(parks(&leadership));
        opens.open();
    });
    (thread, gate)
}

/// A handler that never returns keeps no thread waiting, even if the watcher slept when the handler began.
#[test]
fn a_stuck_handler_loses_the_lead() {
    check(Some(3), || {
        let leadership = taken();
        let (thread, has_it) = parked(&leadership);
        leadership.busy();
        has_it.pass();
        thread.join().expect("no panic");
        assert!(!leadership.lead.back());
    });
}

/// The same after a quick handler.
#[test]
fn the_next_handler_loses_the_lead_too() {
    check(Some(2), || {
        let leadership = taken();
        let (thread, has_it) = parked(&leadership);
        leadership.busy();
        if leadership.lead.back() {
            leadership.busy();
        }
        has_it.pass();
        thread.join().expect("no panic");
    });
}

/// The same after a sleep before which the alarm was taken back, whether it had rung by then or not.
#[test]
fn a_handler_after_a_rest_loses_the_lead_too() {
    check(Some(2), || {
        let leadership = taken();
        let (thread, has_it) = parked(&leadership);
        leadership.busy();
        if leadership.lead.back() {
            leadership.rest();
            leadership.busy();
        }
        has_it.pass();
        thread.join().expect("no panic");
    });
}

/// An event loop that does not take the offered lead loses the offer.
#[test]
fn an_offer_that_nobody_takes_is_taken_back() {
    check(Some(3), || {
        let leadership = taken();
        let (thread, has_it) = parked(&leadership);
        leadership.offer();
        has_it.pass();
        thread.join().expect("no panic");
        assert!(!leadership.lead.take_offered());
    });
}

/// An event loop that listens, and does not come when something is readable, loses the lead.
#[test]
fn a_loop_that_is_blocked_loses_the_lead() {
    check(Some(3), || {
        let leadership = taken();
        let (thread, has_it) = parked(&leadership);
        leadership.listen();
        set_readable(true);
        has_it.pass();
        thread.join().expect("no panic");
        assert!(!leadership.lead.back());
    });
}

/// An event loop that comes, and then runs a coroutine that never returns, loses the lead, too: nothing rings for the
/// clients whose memory it was about to look at.
#[test]
fn a_loop_that_came_once_and_is_stuck_loses_the_lead() {
    check(Some(2), || {
        let leadership = taken();
        let (thread, has_it) = parked(&leadership);
        leadership.listen();
        if leadership.lead.back() {
            leadership.busy();
        }
        has_it.pass();
        thread.join().expect("no panic");
    });
}

/// A thread that leaves the lead is followed by one that was parked, and that one by the next.
#[test]
fn a_free_lead_is_taken() {
    check(Some(2), || {
        let leadership = taken();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let leadership = Arc::clone(&leadership);
                thread::spawn(move || {
                    assert!(parks(&leadership));
                    leadership.release();
                })
            })
            .collect();
        leadership.release();
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
}

/// The thread that took the lead from a stuck handler is watched, too.
#[test]
fn the_second_stuck_handler_loses_the_lead_too() {
    check(Some(1), || {
        let leadership = taken();
        let gate = Arc::new(Gate::default());
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (leadership, gate) = (Arc::clone(&leadership), Arc::clone(&gate));
                thread::spawn(move || {
                    assert!(parks(&leadership));
                    leadership.busy();
                    gate.open();
                })
            })
            .collect();
        leadership.busy();
        gate.pass();
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
}

/// Who leaves the lead before a slow handler finds a parked worker that takes it, or keeps it.
#[test]
fn a_lead_that_is_left_is_taken() {
    check(Some(3), || {
        let leadership = taken();
        let (thread, has_it) = parked(&leadership);
        if !leadership.leave() {
            leadership.busy();
        }
        has_it.pass();
        thread.join().expect("no panic");
    });
}

/// A thread takes the lead from the handler of its call. A parked worker has the lead after that, whether the watcher
/// looks meanwhile or not.
#[test]
fn a_lead_that_is_left_beside_a_handler_is_taken() {
    check(Some(2), || {
        let leadership = taken();
        let (thread, has_it) = parked(&leadership);
        let handler = thread_number();
        leadership.busy();
        let beside = Arc::clone(&leadership);
        let beside = thread::spawn(move || {
            if beside.lead_beside(handler) {
                beside.release();
            }
        });
        has_it.pass();
        thread.join().expect("no panic");
        beside.join().expect("no panic");
    });
}

/// A third parked worker ends after a while. Even if it is called at that moment, the lead is taken.
#[test]
fn one_too_many_ends_and_a_free_lead_is_taken() {
    check(Some(1), || {
        let leadership = taken();
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let leadership = Arc::clone(&leadership);
                thread::spawn(move || {
                    let takes = parks(&leadership);
                    if takes {
                        leadership.release();
                    }
                    takes
                })
            })
            .collect();
        leadership.release();
        let taken = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        assert!(taken.filter(|takes| *takes).count() >= 2);
        assert_eq!(leadership.workers().1, 0);
    });
}

/// The end wakes all that are parked.
#[test]
fn all_that_are_parked_hear_of_the_end() {
    check(Some(2), || {
        let leadership = taken();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let leadership = Arc::clone(&leadership);
                thread::spawn(move || assert!(!leadership.park()))
            })
            .collect();
        leadership.close();
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
}

/// The same for one that was called, and sleeps still when another one is parked and watches.
#[test]
fn who_was_called_and_who_watches_now_hear_of_the_end() {
    check(Some(2), || {
        let leadership = taken();
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let leadership = Arc::clone(&leadership);
                // Who takes the lead keeps it.
                thread::spawn(move || parks(&leadership))
            })
            .collect();
        leadership.release();
        leadership.close();
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
}

// What each weakening broke, tried by hand, one at a time.
//
// | weakened                                             | fails                                               |
// |------------------------------------------------------|-----------------------------------------------------|
// | `Lead::swap` only `Acquire`, or only `Release`      | one receives at a time, an offer brings             |
// | `Lead::settle` as a load                             | a handler after a rest                              |
// | `busy` does not set the alarm                        | stuck handlers, a loop that came once               |
// | the watcher does not set it for who is busy already  | models end in a deadlock                            |
// | `rest` takes the alarm back and says no more         | models end in a deadlock                            |
// | `offer` does not set the alarm                       | an offer that nobody takes                          |
// | `listen` does not set the alarm                      | models end in a deadlock                            |
// | `park` does not look whether the lead is vacant      | models end in a deadlock                            |
// | `call` does not wake the watcher                     | a free lead, a lead that is left                    |
// | who leaves the list does not wake the next watcher   | the second stuck handler                            |
// | the next one watches before the last has come back   | who was called and who watches now                  |
