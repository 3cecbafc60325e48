//! `crates/platform/src/lock.rs`

use std::sync::Arc;
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::thread;

use super::{check, condition, settled};
use crate::lock::{Condvar, Mutex};
use crate::sync::pass;

const SECOND: Duration = Duration::from_secs(1);

/// What a lock guards: loom fails the model if two threads have it at once, or if the second one does not see what the
/// first one did.
#[derive(Default)]
struct Guarded(UnsafeCell<u32>);

impl Guarded {
    fn add_one(&self) {
        // SAFETY: loom fails the model if anybody else has the cell.
        self.0.with_mut(|number| unsafe { *number += 1 });
    }

    fn number(&self) -> u32 {
        // SAFETY: as above.
        self.0.with(|number| unsafe { *number })
    }
}

/// Several threads that take the lock one after the other, some of them only if they get it in time.
fn in_turn(waiting: u32, hurried: u32) {
    let shared = Arc::new(settled(Guarded::default()));
    let threads: Vec<_> = (0..waiting + hurried)
        .map(|n| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let guard = if n < waiting { Some(shared.lock()) } else { shared.try_lock_for(SECOND) };
                guard.map(|guarded| guarded.add_one()).map_or(0, |()| 1)
            })
        })
        .collect();
    if hurried > 0 {
        pass(SECOND);
    }
    let taken: u32 = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
    assert!(taken >= waiting, "who has time gets it");
    assert_eq!(shared.lock().number(), taken);
    assert!(!shared.is_locked());
}

/// One thread at a time has the lock, each sees what the last one did, and no thread sleeps at a lock that is free.
#[test]
fn two_take_turns() {
    check(None, || in_turn(2, 0));
}

#[test]
fn three_take_turns() {
    check(Some(2), || in_turn(3, 0));
}

/// A thread that gives up leaves a lock that wakes the other threads.
#[test]
fn one_gives_up_and_the_others_are_woken() {
    check(Some(2), || in_turn(2, 1));
}

#[test]
fn who_does_not_wait_takes_it_or_leaves_it() {
    check(None, || {
        let shared = Arc::new(settled(Guarded::default()));
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || other.try_lock().map(|guarded| guarded.add_one()).is_some());
        let here = shared.try_lock().map(|guarded| guarded.add_one()).is_some();
        let there = thread.join().expect("no panic");
        assert!(here || there, "nobody holds it for ever");
        assert_eq!(shared.lock().number(), u32::from(here) + u32::from(there));
    });
}

struct Queue {
    filled: Mutex<u32>,
    changed: Condvar,
}

impl Queue {
    fn new() -> Arc<Self> {
        Arc::new(Self { filled: settled(0), changed: condition() })
    }

    /// As with every condition: the state changes under the lock, and the other threads are notified after that.
    fn put(&self) {
        *self.filled.lock() += 1;
        self.changed.notify_one();
    }

    fn take(&self) {
        let mut filled = self.filled.lock();
        while *filled == 0 {
            self.changed.wait(&mut filled);
        }
        *filled -= 1;
    }

    /// Whether something came in time.
    fn take_in_time(&self) -> bool {
        let mut filled = self.filled.lock();
        if *filled == 0 {
            self.changed.wait_for(&mut filled, SECOND);
        }
        let came = *filled > 0;
        *filled -= u32::from(came);
        came
    }
}

/// A thread that waits for a change sees it, whenever the change comes.
#[test]
fn a_change_is_not_missed() {
    check(None, || {
        let queue = Queue::new();
        let other = Arc::clone(&queue);
        let thread = thread::spawn(move || other.put());
        queue.take();
        thread.join().expect("no panic");
    });
}

/// One change for each of two that wait, made by two threads.
#[test]
fn two_changes_wake_two() {
    check(Some(2), || {
        let queue = Queue::new();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || queue.take())
            })
            .collect();
        queue.put();
        queue.put();
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
}

/// All threads are told of a change that concerns all.
#[test]
fn all_hear_of_the_end() {
    check(Some(2), || {
        let shared = Arc::new((settled(false), condition()));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let mut over = shared.0.lock();
                    while !*over {
                        shared.1.wait(&mut over);
                    }
                })
            })
            .collect();
        *shared.0.lock() = true;
        shared.1.notify_all();
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
}

/// A thread that waits with a timeout is woken when the time is over, and takes what has arrived by then.
#[test]
fn a_wait_ends_with_its_time_or_with_the_change() {
    check(Some(3), || {
        let queue = Queue::new();
        let other = Arc::clone(&queue);
        let waiter = thread::spawn(move || other.take_in_time());
        let clock = thread::spawn(|| {
            // The time passes twice, so that it is over for a wait that begins in between, too.
            pass(SECOND);
            pass(SECOND);
        });
        queue.put();
        clock.join().expect("no panic");
        if !waiter.join().expect("no panic") {
            queue.take();
        }
    });
}

// What each weakening broke, tried by hand, one at a time.
//
// | weakened                                          | fails                                               |
// |---------------------------------------------------|-----------------------------------------------------|
// | `try_lock` exchanges `Relaxed`                    | all but "a wait ends"                               |
// | `lock_contended` swaps `Relaxed`                  | two take turns, and others                          |
// | `unlock` swaps `Relaxed`                          | all but "a wait ends"                               |
// | `lock_contended` puts HELD instead of AWAITED     | all but "who does not wait"                         |
// | `unlock` wakes nobody                             | all but "who does not wait"                         |
// | `notify` does not count the last one that waits   | a change is not missed, all hear of the end         |
