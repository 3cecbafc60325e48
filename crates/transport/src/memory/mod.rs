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
