//! Flow control of streams: the receiver grants credit in bytes, the sender spends it.
//!
//! A sender may send while it has credit left, so it overdraws by at most one item. The receiver gives back what its user
//! has taken, in portions of half the window.

/// Credit each stream starts with, bytes, both ways.
pub(crate) const WINDOW: i64 = 1 << 20;

/// What one item costs beside its payload, so that empty items are bounded, too.
const OVERHEAD: usize = 32;

/// What sending or taking an item costs.
pub(crate) fn cost(payload: usize) -> i64 {
    (payload + OVERHEAD) as i64
}

/// The receiver's account: what was taken and not yet given back.
#[derive(Debug, Default)]
pub(crate) struct Taken(i64);

impl Taken {
    /// Counts an item; the credit to grant now, if it is worth a frame.
    pub(crate) fn count(&mut self, payload: usize) -> Option<u64> {
        self.0 += cost(payload);
        (self.0 >= WINDOW / 2).then(|| std::mem::take(&mut self.0) as u64)
    }
}

/// Reads the credit in a frame's payload.
pub(crate) fn granted(payload: &[u8]) -> Option<i64> {
    let bytes: [u8; 8] = payload.try_into().ok()?;
    i64::try_from(u64::from_le_bytes(bytes)).ok()
}
