//! `crates/platform/src/lock.rs`: who waits for a lock, and who for the interpreter.
//!
//! A thread that waits for the interpreter with a lock held fails these models, and so does a thread that sleeps at a lock
//! with the interpreter whose holder needs that.

use std::sync::Arc;

use loom::thread;

use super::{check, settled};
use crate::lock::{InnerMutex, Mutex, OuterMutex, set_around_sleep};
use crate::sync::interpreter::{self, detached, is_mine};

/// The locks of a server, by kind: its reactor, the state of a call, the places of buffers.
struct Locks {
    outer: OuterMutex<u32>,
    plain: Mutex<u32>,
    inner: InnerMutex<u32>,
}

impl Locks {
    fn new() -> Arc<Self> {
        // Once for all models: it changes nothing for threads without the interpreter.
        set_around_sleep(detached);
        let (outer, inner) = (OuterMutex::new(0), InnerMutex::new(0));
        assert!(!outer.is_locked() && !inner.is_locked(), "used here first: other threads may see them from here on");
        Arc::new(Self { outer, plain: settled(0), inner })
    }
}

/// Runs something with the interpreter, as a line of Python does.
fn python(run: impl FnOnce()) {
    interpreter::take();
    run();
    assert!(is_mine());
    interpreter::give_up();
}

/// The threads run at once, and each comes to its end.
fn together<const N: usize>(preemptions: Option<usize>, runs: [fn(&Locks); N]) {
    check(preemptions, move || {
        let locks = Locks::new();
        let mut threads = Vec::new();
        for run in &runs[1..] {
            let (locks, run) = (Arc::clone(&locks), *run);
            threads.push(thread::spawn(move || run(&locks)));
        }
        runs[0](&locks);
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
}

fn change_plain(locks: &Locks) {
    *locks.plain.lock() += 1;
}

fn change_plain_in_python(locks: &Locks) {
    python(|| change_plain(locks));
}

/// A worker whose handler has returned: it looks at the connections with the interpreter held.
fn receive_in_python(locks: &Locks) {
    python(|| {
        let mut outer = locks.outer.lock();
        *outer += 1;
        change_plain(locks);
    });
}

/// A worker that sleeps in the poller, and is woken.
fn receive(locks: &Locks) {
    let mut outer = locks.outer.lock();
    *outer += 1;
    change_plain(locks);
}

fn change_inner_in_python(locks: &Locks) {
    python(|| *locks.inner.lock() += 1);
}

fn change_plain_and_inner(locks: &Locks) {
    let mut plain = locks.plain.lock();
    *plain += 1;
    *locks.inner.lock() += 1;
}

/// Threads that hold a lock come for the interpreter only after it.
#[test]
fn who_waits_for_a_lock_leaves_the_interpreter_to_others() {
    together(Some(3), [change_plain_in_python, change_plain_in_python, change_plain]);
}

/// The thread with the outer lock keeps the interpreter while it waits for the next lock.
#[test]
fn who_has_an_outer_lock_needs_no_interpreter_to_go_on() {
    together(Some(3), [receive_in_python, change_plain, change_plain_in_python]);
}

/// A thread without the interpreter has the outer lock, and others wait for it.
#[test]
fn an_outer_lock_is_waited_for_without_the_interpreter() {
    together(Some(3), [receive_in_python, receive, change_plain_in_python]);
}

/// An inner lock is waited for with the interpreter, by threads with another lock, too.
#[test]
fn who_has_an_inner_lock_waits_for_nothing() {
    together(Some(3), [change_inner_in_python, change_plain_and_inner, change_plain_in_python]);
}

// What each weakening broke, tried by hand, one at a time.
//
// | weakened                                             | fails                                               |
// |------------------------------------------------------|-----------------------------------------------------|
// | no thread passes its wake-up on                      | who has an outer lock                               |
