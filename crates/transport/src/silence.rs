//! How long a connection over a socket has been silent: a client that calls after a pause looks first whether the server is
//! still there.

use nearcall_platform::clock;
use rustix::net::RecvFlags;

use crate::sync::{AtomicU64, Ordering};
use crate::wire::Wire;

/// After so long a silence a goodbye may have come that nobody has read.
const LONG_NS: u64 = 10_000_000;

/// When somebody last asked, nanoseconds on the monotonic clock.
#[derive(Debug)]
pub(crate) struct Silence(AtomicU64);

impl Silence {
    pub(crate) fn begin() -> Self {
        Self(AtomicU64::new(clock::monotonic_ns()))
    }

    /// Whether it was long since the last call of this, and something has come in since: the link's `is_stale`.
    pub(crate) fn hides_something(&self, wire: &impl Wire) -> bool {
        let now = clock::monotonic_ns();
        // Relaxed: whichever of two threads asks first looks.
        if now.saturating_sub(self.0.swap(now, Ordering::Relaxed)) < LONG_NS {
            return false;
        }
        has_come(wire)
    }
}

/// Whether something has come in that nobody has read, or the peer has hung up.
pub(crate) fn has_come(wire: &impl Wire) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    wire.holds() || rustix::net::recv(wire.fd(), &mut [0; 1], flags).is_ok()
}
