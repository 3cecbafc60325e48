//! Items of a stream that the core has no credit for yet.
//!
//! HTTP/2's window counts bytes, the core's credit counts 32 bytes more for each item. So a peer that sends short
//! messages may send more of them than the core takes. They wait here in one buffer, where a message costs little more
//! than its bytes.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::frame::incoming::INLINE;
use crate::limits::budget::{Account, Charge};

/// Bytes in front of a message: whether it arrived compressed, and its length.
const PREFIX: usize = 5;

/// Waiting messages, in order.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// The messages, each behind its prefix.
    bytes: Vec<u8>,
    /// Where the first message begins.
    at: usize,
    charge: Option<Charge>,
}

impl Held {
    pub(super) fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// Bytes that wait, prefixes included.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(super) fn push(&mut self, message: &[u8], compressed: bool, account: &Arc<Account>) {
        let more = PREFIX + message.len();
        match &mut self.charge {
            Some(charge) => charge.grow(more),
            None => self.charge = Some(account.charge_anyway(more)),
        }
        self.bytes.push(compressed.into());
        self.bytes.extend_from_slice(&(message.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(message);
    }

    /// The first message, and whether it arrived compressed. Memory is freed when the last message goes.
    pub(super) fn pop(&mut self) -> Option<(SmallVec<[u8; INLINE]>, bool)> {
        let (&[compressed, ref len @ ..], rest) = self.bytes[self.at..].split_first_chunk::<PREFIX>()?;
        let len = u32::from_le_bytes(*len) as usize;
        let message = SmallVec::from_slice(&rest[..len]);
        self.at += PREFIX + len;
        if self.is_empty() {
            *self = Self::default();
        }
        Some((message, compressed != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::budget::Budget;

    #[test]
    fn messages_come_out_in_order_and_are_counted_meanwhile() {
        let budget = Budget::new(1 << 20);
        let account = Account::of(&budget, 1 << 10);
        let mut held = Held::default();
        for (message, compressed) in [(&b"one"[..], false), (b"", true), (&[7; 100], true)] {
            held.push(message, compressed, &account);
        }
        let mut pop = || held.pop().map(|(message, compressed)| (message.to_vec(), compressed));
        assert_eq!(budget.used(), 103 + 3 * PREFIX);
        assert_eq!(pop(), Some((b"one".to_vec(), false)));
        assert_eq!(pop(), Some((Vec::new(), true)));
        assert_eq!(pop(), Some((vec![7; 100], true)));
        assert!(held.is_empty() && held.pop().is_none());
        assert_eq!(budget.used(), 0);
    }
}
