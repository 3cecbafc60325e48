//! A forked child begins with no thread that rests, even if it was forked by one that did.

use nearcall_platform::rest::{Rest, Resting};

/// Seconds after which a child that hangs is ended.
const PATIENCE: u32 = 20;

#[test]
fn no_thread_rests_in_a_forked_child() {
    let rest = Rest::begin();
    assert_eq!(Resting::now().threads(), 1);
    // SAFETY: the child uses only what is checked, and ends without running code of its parent.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends a child that hangs.
        unsafe { libc::alarm(PATIENCE) };
        let none = Resting::now().threads() == 0;
        drop(rest);
        let none = none && Resting::now().threads() == 0;
        let one = Rest::begin();
        let right = none && Resting::now().threads() == 1;
        drop(one);
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(i32::from(!right)) };
    }
    let mut status = 0;
    // SAFETY: the child is this process's own, and the pointer is valid.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child ended with the wait status {status}");
    drop(rest);
    assert_eq!(Resting::now().threads(), 0);
}
