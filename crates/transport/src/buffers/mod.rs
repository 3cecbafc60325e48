//! Memory that can be handed over: peers on this machine map it, and messages name it instead of carrying a copy.
//!
//! [`Buffer`] is such memory in use, `Memory` is what stays mapped when the use ends, and a [`BufferPool`] keeps it for the next
//! one. `places` finds out where a payload lies. What peers know of it is the business of each connection (`shm/`).

mod memory;
mod places;
mod pool;

pub use memory::Buffer;
pub(crate) use memory::Memory;
pub(crate) use places::{Found, Place, Registration, any, find};
pub use pool::BufferPool;
pub(crate) use pool::{Lender, watch_lender};
