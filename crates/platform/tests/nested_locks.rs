//! What a thread gives up while it waits for a lock depends on the locks that it holds.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use nearcall_platform::lock::{Mutex, OuterMutex, set_around_sleep};

/// How often a thread has given up what others need, to sleep.
static GIVEN_UP: AtomicUsize = AtomicUsize::new(0);

fn give_up(sleep: &mut (dyn FnMut(bool) + Send)) {
    GIVEN_UP.fetch_add(1, Ordering::SeqCst);
    sleep(true);
}

/// Waits for a lock that another thread holds until this one sleeps. Returns whether this thread gave anything up.
fn wait_for(lock: &Mutex<()>) -> bool {
    let before = GIVEN_UP.load(Ordering::SeqCst);
    let me = rustix::thread::gettid();
    let taken = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let guard = lock.lock();
            taken.store(true, Ordering::SeqCst);
            while !sleeps(me) {
                thread::yield_now();
            }
            drop(guard);
        });
        // Not by a channel: this thread would sleep on a word there, too.
        while !taken.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        drop(lock.lock());
    });
    GIVEN_UP.load(Ordering::SeqCst) > before
}

/// Whether this thread sleeps in the kernel, on a word.
fn sleeps(thread: rustix::thread::Pid) -> bool {
    let call = std::fs::read_to_string(format!("/proc/self/task/{}/syscall", thread.as_raw_nonzero()));
    call.is_ok_and(|call| call.split(' ').next() == Some(&libc::SYS_futex.to_string()))
}

#[test]
fn a_thread_with_an_outer_lock_gives_nothing_up() {
    set_around_sleep(give_up);
    let (outer, lock) = (OuterMutex::new(()), Mutex::new(()));
    assert!(wait_for(&lock));
    let guard = outer.lock();
    assert!(!wait_for(&lock), "others could not have it back while this thread waits for that");
    drop(guard);
    assert!(wait_for(&lock));
    let guard = outer.try_lock().expect("nobody holds it");
    assert!(!wait_for(&lock));
    drop(guard);
}
