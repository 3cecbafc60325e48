//! What both directions of a connection over shared memory use.

use nearcall_platform::peer_socket::PeerSocket;
use nearcall_ring::Segment;

use crate::sync::AtomicU32;

/// The connection's memory, its socket, and counters for its bell.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) segment: Segment,
    pub(super) socket: PeerSocket,
    /// `bells_heard` counts how often the bell may have rung for threads that wait for room. `bells_seen` is its value
    /// before a sending thread last looked for room.
    pub(super) bells_heard: AtomicU32,
    pub(super) bells_seen: AtomicU32,
}
