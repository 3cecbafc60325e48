//! A forked child uses locks while threads that exist only in its parent wait for other locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nearcall_platform::lock::{Condvar, Mutex};

const PATIENCE: Duration = Duration::from_secs(20);
const IN_PARENT: usize = 12;
const IN_CHILD: usize = 64;

/// Threads that wait for each other: each passes a number to the next one, in a circle.
fn in_turn(threads: usize, rounds: usize) {
    let shared = Arc::new((Mutex::new(0_usize), Condvar::new()));
    let all: Vec<_> = (0..threads)
        .map(|own| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for round in 0..rounds {
                    let mut number = shared.0.lock();
                    while *number != round * threads + own {
                        shared.1.wait(&mut number);
                    }
                    *number += 1;
                    drop(number);
                    shared.1.notify_all();
                }
            })
        })
        .collect();
    for one in all {
        one.join().expect("a thread failed");
    }
    assert_eq!(*shared.0.lock(), threads * rounds);
}

#[test]
fn a_child_has_no_use_for_its_parents_waiting_threads() {
    let held = Arc::new((Mutex::new(false), Condvar::new(), AtomicUsize::new(0)));
    let waiting: Vec<_> = (0..IN_PARENT)
        .map(|_| {
            let held = Arc::clone(&held);
            thread::spawn(move || {
                let mut over = held.0.lock();
                held.2.fetch_add(1, Ordering::SeqCst);
                while !*over {
                    held.1.wait(&mut over);
                }
            })
        })
        .collect();
    // A thread that is counted holds the lock until it waits.
    while held.2.load(Ordering::SeqCst) < IN_PARENT {
        thread::yield_now();
    }
    drop(held.0.lock());
    // SAFETY: the child uses only its own locks and threads, and ends without running code of its parent.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends a child that hangs, as it would with damaged locks.
        unsafe { libc::alarm(PATIENCE.as_secs() as u32) };
        let passed = std::panic::catch_unwind(|| in_turn(IN_CHILD, 5)).is_ok();
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(i32::from(!passed)) };
    }
    let mut status = 0;
    // SAFETY: the child is this process's own, and the pointer is valid.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    *held.0.lock() = true;
    held.1.notify_all();
    for one in waiting {
        one.join().expect("a thread failed");
    }
    assert_eq!(status, 0, "the child ended with the wait status {status}");
}

#[test]
fn threads_take_turns() {
    in_turn(8, 200);
}

#[test]
fn one_at_a_time() {
    let count = Arc::new(Mutex::new(0_usize));
    let all: Vec<_> = (0..8)
        .map(|_| {
            let count = Arc::clone(&count);
            thread::spawn(move || {
                for _ in 0..20_000 {
                    let before = *count.lock();
                    let mut now = count.lock();
                    *now = (*now).max(before) + 1;
                }
            })
        })
        .collect();
    for one in all {
        one.join().expect("a thread failed");
    }
    assert_eq!(*count.lock(), 8 * 20_000);
}

#[test]
fn patience_ends() {
    let lock = Mutex::new(());
    let mut guard = lock.lock();
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(lock.try_lock().is_none());
            assert!(lock.try_lock_for(Duration::from_millis(5)).is_none());
        });
    });
    Condvar::new().wait_for(&mut guard, Duration::from_millis(5));
    drop(guard);
    assert!(lock.try_lock_for(PATIENCE).is_some());
    assert!(!lock.is_locked());
}
