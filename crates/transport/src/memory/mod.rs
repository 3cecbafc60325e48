//! Memory that both sides of a connection can see: messages name it instead of carrying a copy.
//!
//! This side has buffers that the user fills (`buffers`) and regions into which long payloads are copied (`region`). Of
//! the peer's memory it maps parts of buffers (`window`) and regions (`pages`). A payload in any of them is a
//! [`Lease`]. `places` finds the memory in which a payload lies, and `lenders` what peers have given back. Each
//! connection keeps track of what its peer knows (`shm/`).

mod buffers;
mod lease;
mod lenders;
mod pages;
mod places;
mod region;
mod window;

pub(crate) use buffers::Memory;
pub use buffers::{Buffer, BufferPool};
pub(crate) use lease::HandedOver;
pub use lease::Lease;
pub(crate) use lenders::{Lender, watch_lender};
pub(crate) use pages::{Pages, RegionHold};
pub(crate) use places::{any, find};
pub(crate) use region::{Pin, REGION_HEAD, RegionMemory};
pub(crate) use window::{Debt, Hold, Window};

/// Whether the check succeeds in a forked child, within some seconds.
#[cfg(test)]
fn holds_in_child(check: impl FnOnce() -> bool) -> bool {
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
