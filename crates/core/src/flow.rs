//! Flow control of streams at the receiver: it grants credit for what its user has taken, in portions of half the
//! window.

pub(crate) use nearcall_wire::flow::{WINDOW, cost, granted};

/// The cost of the items that a stream's receiver has taken, and for which no credit was granted yet.
#[derive(Debug, Default)]
pub struct TakenItems(i64);

impl TakenItems {
    /// Counts an item that the user has taken. Returns the credit to grant now, if it is worth a frame.
    pub fn count(&mut self, payload: usize) -> Option<u64> {
        self.0 += cost(payload);
        (self.0 >= WINDOW / 2).then(|| std::mem::take(&mut self.0) as u64)
    }
}
