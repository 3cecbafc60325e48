//! A forked child has values of its own, whatever its parent's threads were doing with theirs, and does not get at what
//! belongs to its parent.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use nearcall_platform::fork::{Owned, Owner};
use nearcall_platform::lock::Mutex;
use nearcall_platform::per_process::PerProcess;

/// Seconds after which a child that hangs is ended.
const PATIENCE: u32 = 20;

static DROPPED: AtomicUsize = AtomicUsize::new(0);

#[derive(Default)]
struct Counted(Mutex<usize>);

impl Drop for Counted {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether the check succeeds in a forked child.
fn holds_in_child(check: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child uses only what is checked and its own threads, and ends without running code of its parent.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends a child that hangs.
        unsafe { libc::alarm(PATIENCE) };
        let holds = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).unwrap_or(false);
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(i32::from(!holds)) };
    }
    let mut status = 0;
    // SAFETY: the child is this process's own, and the pointer is valid.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status == 0
}

#[test]
fn a_child_has_its_own_while_a_thread_of_its_parent_holds_a_lock() {
    let value = Arc::new(PerProcess::new(Counted::default));
    let (held, is_held) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let theirs = Arc::clone(&value);
    let holder = thread::spawn(move || {
        let value = theirs.get();
        let mut count = value.0.lock();
        *count = 7;
        held.send(()).expect("somebody waits");
        may_go_on.recv().expect("it comes");
    });
    is_held.recv().expect("it is held");
    let own = || {
        let all: Vec<_> = (0..8)
            .map(|_| {
                let value = Arc::clone(&value);
                thread::spawn(move || *value.get().0.lock() += 1)
            })
            .collect();
        all.into_iter().all(|one| one.join().is_ok()) && *value.get().0.lock() == 8
    };
    assert!(holds_in_child(own));
    go_on.send(()).expect("it waits");
    holder.join().expect("it has ended");
    assert_eq!(*value.get().0.lock(), 7, "the parent keeps its own");

    // A value that the child has never accessed, and one that it has.
    let (mut unseen, mut seen) = (Some(PerProcess::new(Counted::default)), Some(PerProcess::new(Counted::default)));
    let before = DROPPED.load(Ordering::Relaxed);
    let nothing_of_the_parents_is_dropped = || {
        drop(unseen.take());
        let is_spared = DROPPED.load(Ordering::Relaxed) == before;
        drop(seen.as_ref().map(PerProcess::get));
        drop(seen.take());
        is_spared && DROPPED.load(Ordering::Relaxed) == before + 1
    };
    assert!(holds_in_child(nothing_of_the_parents_is_dropped));
    drop((unseen, seen));
    assert_eq!(DROPPED.load(Ordering::Relaxed), before + 2);
}

#[test]
fn what_a_process_owns_is_not_its_childs() {
    let (owned, owner) = (Owned::new("this"), Owner::this_process());
    assert!(owned.get() == Some(&"this") && owner.is_this_process());
    assert!(holds_in_child(|| owned.get().is_none() && *owned.even_in_child() == "this" && !owner.is_this_process()));
    assert!(owned.get().is_some() && owner.is_this_process(), "a fork takes nothing from the parent");
}
