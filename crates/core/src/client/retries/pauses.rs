//! Pauses between attempts, to connect or to call.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// They vary by a fifth either way.
const JITTER: f64 = 0.2;

/// A random time close to `pause`, so that many clients that have failed together do not come back together.
pub(in crate::client) fn vary(pause: Duration) -> Duration {
    // Every RandomState is seeded anew: a small random number without a dependency.
    let random = RandomState::new().hash_one(0) as f64 / u64::MAX as f64;
    pause.mul_f64(1.0 - JITTER + 2.0 * JITTER * random)
}
