//! Shared memory: two rings for frames, memory of its own for each long payload, and a socket for everything rare.
//!
//! A long payload is copied into a region, or lies in a buffer that one side lends (`lending.rs`) and the other borrows
//! (`borrowing.rs`). A side hands received memory back to its owner without a copy (`handover.rs`).
//!
//! The rendezvous socket stays open. It carries the bell (one byte wakes a sleeping peer), the descriptors of new
//! regions and buffers, and, by hanging up, the news of the peer's death.

mod absence;
mod ahead;
mod borrowing;
mod handover;
mod lending;
mod link;
mod reference;
mod regions;
mod room;
mod sender;
mod shared;
mod socket;

pub(crate) use link::{PeerLimits, ShmLink, rings_beyond_all};
