//! For tests of what a forked child may use.

/// Whether the check succeeds in a forked child, within some seconds.
pub(crate) fn holds_in_child(check: impl FnOnce() -> bool) -> bool {
    /// Seconds after which a child that hangs is ended.
    const PATIENCE: u32 = 10;
    // SAFETY: the child uses only what is checked, and ends without running code of its parent.
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
