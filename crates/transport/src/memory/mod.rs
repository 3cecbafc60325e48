//! Memory that both sides of a connection can see: messages name it instead of carrying a copy.
//!
//! Of this side there are buffers that the user fills (`buffers`) and regions into which long payloads are copied (`region`);
//! of the peer, parts of its buffers (`window`) and its regions (`pages`). A payload in any of them is a [`Lease`]. `places`
//! finds out in which of them a payload lies, and `lenders` what has come back. What peers know of it is the business of each
//! connection (`shm/`).

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
