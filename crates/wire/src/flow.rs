//! Flow control of streams: the receiver grants credit in bytes, the sender spends it.
//!
//! A sender may send while it has credit left, so it overdraws by at most one item.

/// The credit that each direction of a stream starts with, in bytes.
pub const WINDOW: i64 = 1 << 20;

/// The cost of an item in addition to its payload, so that empty items are bounded, too.
const OVERHEAD: usize = 32;

/// The credit that sending or taking an item costs.
#[must_use]
pub fn cost(payload: usize) -> i64 {
    (payload + OVERHEAD) as i64
}

/// Reads the credit in a frame's payload.
#[must_use]
pub fn granted(payload: &[u8]) -> Option<i64> {
    let bytes: [u8; 8] = payload.try_into().ok()?;
    i64::try_from(u64::from_le_bytes(bytes)).ok()
}
