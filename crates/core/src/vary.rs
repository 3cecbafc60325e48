//! Times that vary, so that what was begun together does not come back together.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// A random time that differs from `time` by at most this part of it.
pub(crate) fn vary(time: Duration, part: f64) -> Duration {
    // Every RandomState is seeded anew: a small random number without a dependency.
    let random = RandomState::new().hash_one(0) as f64 / u64::MAX as f64;
    time.mul_f64(1.0 - part + 2.0 * part * random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_lie_on_both_sides_and_within_their_part() {
        let times: Vec<_> = (0..100).map(|_| vary(Duration::from_secs(100), 0.1).as_secs_f64()).collect();
        assert!(times.iter().all(|time| (90.0..=110.0).contains(time)));
        let less = times.iter().filter(|time| **time < 100.0).count();
        assert!((10..90).contains(&less), "{less} of 100 are shorter");
    }
}
