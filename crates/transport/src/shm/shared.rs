//! What both directions of a connection over shared memory use.

use std::os::fd::OwnedFd;

use nearcall_ring::Segment;

use crate::sync::AtomicU32;

/// Its memory, its socket, and what is known of the bell.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) segment: Segment,
    pub(super) socket: OwnedFd,
    /// Counts the times the bell may have rung for threads that wait for room, and how far a sender had counted before it
    /// last looked for room.
    pub(super) bells_heard: AtomicU32,
    pub(super) bells_seen: AtomicU32,
}
