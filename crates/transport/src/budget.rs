//! How much memory peers can make this process keep.
//!
//! Whatever a peer sends that is kept, and whatever waits to be sent because a peer does not read, is charged to the
//! account of its connection, and by that to the budget of the whole server.

use crate::sync::{AtomicUsize, Ordering};
use std::sync::Arc;

/// What every connection may keep, however full the budget is: nobody can shut the others out.
pub(crate) const ALWAYS: usize = 1 << 20;

/// The bytes that all connections together may keep.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    used: AtomicUsize,
    /// Bytes of peers' memory that are kept between messages, for speed only: at most a quarter of the limit.
    kept: AtomicUsize,
}

impl Budget {
    /// A budget of so many bytes.
    #[must_use]
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicUsize::new(0), kept: AtomicUsize::new(0) })
    }

    /// Bytes kept now.
    #[must_use]
    pub fn used(&self) -> usize {
        // Relaxed: only ever shown.
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes that may be kept.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }
}

/// What one connection keeps.
#[derive(Debug)]
pub struct Account {
    total: Arc<Budget>,
    limit: usize,
    used: AtomicUsize,
}

impl Account {
    /// An account of a connection whose longest message has `longest` bytes: it may use a quarter of the budget, or as much
    /// as one message needs.
    #[must_use]
    pub fn of(total: &Arc<Budget>, longest: u64) -> Arc<Self> {
        let one = usize::try_from(longest).unwrap_or(usize::MAX).saturating_add(ALWAYS);
        Arc::new(Self { total: Arc::clone(total), limit: one.max(total.limit / 4), used: AtomicUsize::new(0) })
    }

    /// Whether so many bytes more may be kept now.
    #[must_use]
    pub fn allows(&self, bytes: usize) -> bool {
        // Relaxed: bounds on memory that need not be exact; nothing is ordered by them.
        let used = self.used.load(Ordering::Relaxed).saturating_add(bytes);
        let total = self.total.used.load(Ordering::Relaxed).saturating_add(bytes);
        used <= ALWAYS || (used <= self.limit && total <= self.total.limit)
    }

    /// Counts bytes that are kept as long as the charge lives; `None` if they are too many.
    #[must_use]
    pub fn charge(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        self.allows(bytes).then(|| self.charge_anyway(bytes))
    }

    /// Counts bytes more that are kept between messages, or fewer if that wraps. Whether all that are kept may be; they are
    /// counted until they are [given back](Account::give_back).
    pub(crate) fn keep(&self, bytes: usize) -> bool {
        // Relaxed: as above.
        let kept = self.total.kept.fetch_add(bytes, Ordering::Relaxed).wrapping_add(bytes);
        kept <= self.total.limit / 4
    }

    /// Bytes are kept no longer.
    pub(crate) fn give_back(&self, bytes: usize) {
        // Relaxed: as above.
        self.total.kept.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts bytes that must be kept, however many there are, as long as the charge lives.
    #[must_use]
    pub fn charge_anyway(self: &Arc<Self>, bytes: usize) -> Charge {
        // Relaxed: as above.
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.total.used.fetch_add(bytes, Ordering::Relaxed);
        Charge { account: Arc::clone(self), bytes }
    }
}

/// Bytes that are kept, as long as it lives.
#[derive(Debug)]
pub struct Charge {
    account: Arc<Account>,
    bytes: usize,
}

impl Charge {
    /// How many.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        // Relaxed: as in `Account::allows`.
        self.account.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.account.total.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bytes that are kept between messages, as long as it lives.
#[derive(Debug)]
pub(crate) struct Kept {
    account: Arc<Account>,
    bytes: usize,
}

impl Kept {
    /// Counts so many; none if they are too many.
    pub(crate) fn of(account: &Arc<Account>, bytes: usize) -> Option<Self> {
        let kept = Self { account: Arc::clone(account), bytes };
        account.keep(bytes).then_some(kept)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.account.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_cannot_use_all_and_is_never_shut_out() {
        let budget = Budget::new(64 << 20);
        let (greedy, other) = (Account::of(&budget, 1 << 20), Account::of(&budget, 1 << 20));
        let quarter = greedy.charge(16 << 20).expect("a quarter");
        assert!(greedy.charge(1).is_none(), "more than its share");
        let rest = other.charge_anyway(100 << 20);
        let third = Account::of(&budget, 1 << 20);
        assert!(third.charge(2 << 20).is_none(), "nothing is left");
        let little = third.charge(ALWAYS).expect("there is always a little");
        drop((quarter, rest, little));
        assert_eq!(budget.used(), 0);
        assert!(greedy.charge(16 << 20).is_some());
    }

    #[test]
    fn one_message_always_fits_into_an_account() {
        let budget = Budget::new(64 << 20);
        assert!(Account::of(&budget, 60 << 20).charge(60 << 20).is_some());
    }
}
