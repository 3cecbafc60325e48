//! Measures how long a connection over a socket was silent. A client that calls after a pause first looks whether the
//! server is still there.

use nearcall_platform::clock;
use rustix::net::RecvFlags;

use crate::link::wire::Wire;
use crate::sync::{AtomicU64, Ordering};

/// After a silence of this many nanoseconds, a goodbye may have arrived unread.
const LONG_NS: u64 = 10_000_000;

/// When [`hides_something`](Self::hides_something) was last asked, in nanoseconds on the monotonic clock.
#[derive(Debug)]
pub(crate) struct Silence(AtomicU64);

impl Silence {
    pub(crate) fn begin() -> Self {
        Self(AtomicU64::new(clock::monotonic_ns()))
    }

    /// Whether the last call of this was long ago and something has arrived unread: the link's `is_stale`.
    pub(crate) fn hides_something(&self, wire: &impl Wire) -> bool {
        let now = clock::monotonic_ns();
        // Relaxed: the first of two threads that ask looks.
        if now.saturating_sub(self.0.swap(now, Ordering::Relaxed)) < LONG_NS {
            return false;
        }
        has_come(wire)
    }
}

/// Whether something has arrived that no thread has read, or the peer has hung up.
pub(crate) fn has_come(wire: &impl Wire) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    wire.holds() || rustix::net::recv(wire.fd(), &mut [0; 1], flags).is_ok()
}
