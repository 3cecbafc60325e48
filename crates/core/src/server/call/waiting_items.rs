//! The items of a client's stream that wait for the call's handler.

use std::collections::VecDeque;
use std::sync::Arc;

use nearcall_transport::{Account, Charge, Incoming};

/// The charge follows what the items take in steps of so many bytes: a stream whose handler keeps up is not charged.
const STEP: usize = 4096;
/// Memory for this many items is kept while none waits.
const KEPT_ITEMS: usize = 16;

/// Items that wait, and what they take. A link does not charge a short frame, and a stream may have 32,768 of them.
#[derive(Debug, Default)]
pub(super) struct WaitingItems {
    items: VecDeque<Incoming>,
    /// Bytes that the items take beside their places in `items`, and that no link has charged.
    beside: usize,
    charge: Option<Charge>,
}

impl WaitingItems {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn push(&mut self, item: Incoming, account: impl FnOnce() -> Arc<Account>) {
        self.beside += item.uncharged();
        self.items.push_back(item);
        self.settle(account);
    }

    pub(super) fn pop(&mut self, account: impl FnOnce() -> Arc<Account>) -> Option<Incoming> {
        let item = self.items.pop_front()?;
        self.beside -= item.uncharged();
        if self.items.capacity() > KEPT_ITEMS && self.items.len() < self.items.capacity() / 4 {
            self.items.shrink_to((2 * self.items.len()).max(KEPT_ITEMS));
        }
        self.settle(account);
        Some(item)
    }

    /// Charges what the items take now, if that is not about what is charged.
    fn settle(&mut self, account: impl FnOnce() -> Arc<Account>) {
        let takes = self.items.capacity() * size_of::<Incoming>() + self.beside;
        let charged = self.charge.as_ref().map_or(0, Charge::bytes);
        if takes.abs_diff(charged) > STEP {
            self.charge.get_or_insert_with(|| account().charge_anyway(0)).set(takes);
        }
    }
}

impl IntoIterator for WaitingItems {
    type Item = Incoming;
    type IntoIter = std::collections::vec_deque::IntoIter<Incoming>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearcall_transport::Budget;
    use nearcall_wire::{FrameHead, Kind};

    #[test]
    fn items_are_charged_while_many_of_them_wait() {
        let budget = Budget::new(64 << 20);
        let account = Account::of(&budget, 0);
        let mut waiting = WaitingItems::default();
        let item = |len| Incoming::new(FrameHead::new(Kind::Item, 1), &vec![7; len]);
        waiting.push(item(0), || Arc::clone(&account));
        assert_eq!(budget.used(), 0, "a stream that keeps up pays nothing");
        for _ in 0..9_999 {
            waiting.push(item(0), || Arc::clone(&account));
        }
        assert!(budget.used() + STEP >= 10_000 * size_of::<Incoming>());
        let empty = budget.used();
        for _ in 0..1_000 {
            waiting.push(item(1000), || Arc::clone(&account));
        }
        assert!(budget.used() + STEP >= empty + 1_000_000);
        for number in 0..11_000 {
            let item = waiting.pop(|| Arc::clone(&account)).expect("an item");
            assert_eq!(item.payload.len(), if number < 10_000 { 0 } else { 1000 });
        }
        assert!(waiting.is_empty() && waiting.pop(|| Arc::clone(&account)).is_none());
        assert!(budget.used() <= STEP, "{}", budget.used());
        drop(waiting);
        assert_eq!(budget.used(), 0);
    }
}
