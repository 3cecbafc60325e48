//! What clients owe for the memory that they keep while calls find none.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use crate::server::inbound::Inbound;
use crate::server::inbound::request::Request;

/// Clients that keep no more than this are let be: each may have it in any case.
const LITTLE: usize = 1 << 20;
/// A byte that goes on pays for keeping it for so many seconds. So who is through with all that it keeps in two minutes owes
/// nothing.
const PAID: usize = 120;

/// One call has found no room, and it is looked who keeps it.
#[derive(Default)]
pub(super) struct Shortage {
    /// How often it was looked, and at which look calls found no room last.
    pub(super) looks: u32,
    pub(super) last: u32,
    debts: HashMap<u64, Debt>,
}

/// What a client owes for what it keeps.
struct Debt {
    kept: usize,
    moved: usize,
    /// Bytes times seconds: what was kept for a second is added, what went on in it is taken off.
    owed: usize,
}

impl Shortage {
    /// A second has passed. Whoever keeps anything only now owes nothing yet.
    pub(super) fn reckon<'a>(&mut self, clients: impl Iterator<Item = (&'a u64, &'a Arc<Inbound<Request>>)>) {
        let mut before = std::mem::take(&mut self.debts);
        for (&token, client) in clients {
            let (kept, moved) = client.connection.idle();
            if kept <= LITTLE {
                continue;
            }
            let owed = before.remove(&token).map_or(0, |before| {
                let paid = moved.wrapping_sub(before.moved).saturating_mul(PAID);
                (before.owed + before.kept.min(kept)).saturating_sub(paid)
            });
            self.debts.insert(token, Debt { kept, moved, owed });
        }
    }

    /// Those who owe anything, and what they keep; who owes most is first.
    pub(super) fn debtors(&self) -> Vec<(u64, usize)> {
        let mut debtors: Vec<_> = self.debts.iter().filter(|(_, debt)| debt.owed > 0).collect();
        debtors.sort_unstable_by_key(|(_, debt)| Reverse(debt.owed));
        debtors.into_iter().map(|(&token, debt)| (token, debt.kept)).collect()
    }
}
