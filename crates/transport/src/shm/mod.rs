//! Shared memory: two rings for frames, memory of its own for each long payload, and a socket for everything rare.
//!
//! The rendezvous socket stays open. It carries the bell (one byte wakes a sleeping peer), the descriptors of new regions,
//! and, by hanging up, the news of the peer's death.

mod link;
mod pages;
mod regions;
mod socket;

pub(crate) use link::{ShmLink, rings_beyond_all};
pub(crate) use pages::Pages;
