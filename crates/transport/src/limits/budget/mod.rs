//! Limits how much memory peers can make this process use.
//!
//! What a peer sends, and what waits to be sent because the peer does not read, is charged to the account of its
//! connection while it is kept, and through the account to the budget of the whole server.
//!
//! Nothing that is charged is ever taken back from its peer while the connection lasts. So each account may have only a
//! part of what all others leave: however many peers keep as much as they may, something is left for the next one.

use std::sync::{Arc, Weak};

use nearcall_platform::descriptors::{self, EventDescriptor};

use crate::sync::{AtomicBool, AtomicUsize, Ordering};

/// Bytes that each connection may use however full the budget is, so that no peer can shut the others out. With so many
/// connections that this would come to another whole budget, each may use its share of the budget, but at least
/// [`SMALL_CALL`].
pub(crate) const ALWAYS: usize = 1 << 20;
/// As much as any call without long messages needs.
const SMALL_CALL: usize = 64 << 10;

/// The most mappings of peers' memory that messages may keep, over all connections: half of what Linux allows a process
/// by default (`vm.max_map_count`), because beyond that limit mappings fail for every thread. One connection may have a
/// quarter.
const MOST_MAPPED: usize = 1 << 15;
/// Mappings that every connection may have, however many the others have: more than one message needs.
const ALWAYS_MAPPED: usize = 64;

/// A bit in the word of used bytes: a thread waits for bytes to be freed.
const AWAITED: usize = 1 << (usize::BITS - 1);

/// The bytes that all connections together may use.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    /// Bytes in use, and the mark [`AWAITED`] in the same word. A thread that frees bytes sees the mark by the same
    /// step, and a thread that sets the mark sees what was freed before.
    used: AtomicUsize,
    /// Wakes the thread that waits for bytes to be freed. Charges may outlive it.
    wake: Weak<EventDescriptor>,
    /// The bytes in use for messages that have begun to arrive and may never end.
    unfinished: AtomicUsize,
    /// Mappings that messages keep, and the most they may keep.
    mapped: AtomicUsize,
    most_mapped: usize,
    /// Connections that have an account.
    accounts: AtomicUsize,
    /// Bytes of peers' memory that are kept between messages, for speed only: at most a quarter of the limit.
    kept: AtomicUsize,
    /// One call found no room, because of what all keep together.
    short: AtomicBool,
}

impl Budget {
    /// A budget of `limit` bytes. `usize::MAX` means no limit, neither on bytes nor on mappings: a client reads
    /// whatever it has asked for.
    #[must_use]
    pub fn new(limit: usize) -> Arc<Self> {
        Self::waking(limit, &Weak::new())
    }

    /// Like `new`; `wake` wakes the thread that [waits](Budget::await_room).
    #[must_use]
    pub fn waking(limit: usize, wake: &Weak<EventDescriptor>) -> Arc<Self> {
        let most_mapped = if limit == usize::MAX { limit } else { MOST_MAPPED };
        let [used, unfinished, mapped, accounts, kept] = [const { 0 }; 5].map(AtomicUsize::new);
        let (wake, short) = (Weak::clone(wake), AtomicBool::new(false));
        Arc::new(Self { limit, used, wake, unfinished, mapped, most_mapped, accounts, kept, short })
    }

    /// Bytes kept now.
    #[must_use]
    pub fn used(&self) -> usize {
        // Relaxed: bounds on memory that need not be exact. They order nothing.
        self.used.load(Ordering::Relaxed) & !AWAITED
    }

    /// Asks for a wake-up, once, when bytes are next freed. Returns whether no wake-up was asked for before: then bytes
    /// may have been freed since the caller was refused, and it has to look once more.
    #[must_use]
    pub fn await_room(&self) -> bool {
        // AcqRel: the acquire pairs with the release in `free`.
        self.used.fetch_or(AWAITED, Ordering::AcqRel) & AWAITED == 0
    }

    /// Frees bytes, which the accounts have already subtracted.
    fn free(&self, bytes: usize) {
        // Release: a thread that sets the mark after this sees what was freed, in the accounts as well.
        if self.used.fetch_sub(bytes, Ordering::Release) & AWAITED != 0 {
            self.tell();
        }
    }

    #[cold]
    fn tell(&self) {
        // Relaxed: one of several threads that freed bytes is enough. The event orders what they did.
        if self.used.fetch_and(!AWAITED, Ordering::Relaxed) & AWAITED != 0 {
            self.signal();
        }
    }

    fn signal(&self) {
        if let Some(wake) = self.wake.upgrade() {
            descriptors::signal(&wake);
        }
    }

    /// One call found no room: the thread that waits for bytes to be freed is to look who keeps so many.
    #[cold]
    fn note_shortage(&self) {
        // Relaxed: as above.
        if !self.short.load(Ordering::Relaxed) && !self.short.swap(true, Ordering::Relaxed) {
            self.signal();
        }
    }

    /// Whether one call found no room since this was last asked, although its own client keeps no more than one call needs.
    #[must_use]
    pub fn take_shortage(&self) -> bool {
        // Relaxed: as above.
        self.short.load(Ordering::Relaxed) && self.short.swap(false, Ordering::Relaxed)
    }

    /// Bytes that may be used.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes that each connection may use in any case.
    fn always(&self) -> usize {
        // Relaxed: a bound on memory that need not be exact.
        let accounts = self.accounts.load(Ordering::Relaxed).max(1);
        (self.limit / accounts).clamp(SMALL_CALL, ALWAYS)
    }
}

/// The memory that one connection uses.
#[derive(Debug)]
pub struct Account {
    total: Arc<Budget>,
    /// What one call needs: so many may be used for as long as there is room for all.
    least: usize,
    used: AtomicUsize,
    /// Those among the used bytes that somebody works with. The others wait for the peer, or for a handler.
    at_work: AtomicUsize,
    /// Bytes that went on: they came or went as a part of something long, or wait no longer.
    moved: AtomicUsize,
    unfinished: AtomicUsize,
    mapped: AtomicUsize,
}

impl Account {
    /// An account that may use a quarter of what the others leave of the budget, or `least` bytes if that is more.
    #[must_use]
    pub fn of(total: &Arc<Budget>, least: usize) -> Arc<Self> {
        let [used, at_work, moved, unfinished, mapped] = [const { 0 }; 5].map(AtomicUsize::new);
        // Relaxed: orders nothing.
        total.accounts.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { total: Arc::clone(total), least, used, at_work, moved, unfinished, mapped })
    }

    /// Bytes used now.
    #[must_use]
    pub fn used(&self) -> usize {
        // Relaxed: as in `allows`.
        self.used.load(Ordering::Relaxed)
    }

    /// Used bytes that nobody works with: they wait for the peer, or for a handler.
    #[must_use]
    pub fn idle(&self) -> usize {
        // Relaxed: as in `allows`.
        self.used().saturating_sub(self.at_work.load(Ordering::Relaxed))
    }

    /// Bytes that have gone on here, ever: they came or went as a part of something long, or wait no longer. Of a peer that
    /// keeps bytes, the difference between two looks says whether it keeps them for nothing. Wraps around.
    #[must_use]
    pub fn moved(&self) -> usize {
        // Relaxed: as in `allows`.
        self.moved.load(Ordering::Relaxed)
    }

    /// So many bytes went on.
    pub(crate) fn note_moved(&self, bytes: usize) {
        // Relaxed: as in `allows`.
        self.moved.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The most that may be used here, of which `used` are: what one call needs, or a quarter of what the others leave. An
    /// account alone has a quarter of all. A hundred that fill theirs one after the other leave more than nothing.
    fn share(&self, used: usize) -> usize {
        let others = self.total.used().saturating_sub(used);
        self.least.max(self.total.limit.saturating_sub(others) / 4)
    }

    /// Whether `bytes` more may be used now.
    #[must_use]
    pub fn allows(&self, bytes: usize) -> bool {
        // Relaxed: bounds on memory that need not be exact. They order nothing.
        let here = self.used.load(Ordering::Relaxed);
        let (used, total) = (here.saturating_add(bytes), self.total.used().saturating_add(bytes));
        let allowed = (used <= self.share(here) && total <= self.total.limit) || used <= self.total.always();
        if !allowed && used <= self.least {
            self.total.note_shortage();
        }
        allowed
    }

    /// Why `bytes` more may not be used, and what helps: a sentence for the user.
    #[must_use]
    pub(crate) fn refusal(&self, bytes: usize) -> String {
        let (used, total, limit) = (self.used(), self.total.used(), self.total.limit);
        let share = self.share(used);
        if used.saturating_add(bytes) > share {
            return format!(
                "the message has {bytes} bytes, and the server keeps {used} bytes for this client already, of {share} that it \
                 may: messages that came and replies that were not read; read faster, make fewer calls at a time, or raise \
                 the server's max_memory"
            );
        }
        format!(
            "the message has {bytes} bytes, and the server keeps {total} of {limit} bytes for all its clients, {used} of them \
             for this one; call again later, or raise the server's max_memory"
        )
    }

    /// `None` while more may be used. Else how much may be used beyond what may be.
    #[must_use]
    pub(crate) fn spare(&self) -> Option<usize> {
        (!self.allows(0)).then(|| self.total.always())
    }

    /// How many more bytes may be used now.
    #[must_use]
    pub(crate) fn room(&self) -> usize {
        // Relaxed: as in `allows`.
        let used = self.used.load(Ordering::Relaxed);
        let total = self.total.used();
        let here = self.share(used).saturating_sub(used).min(self.total.limit.saturating_sub(total));
        here.max(self.total.always().saturating_sub(used))
    }

    /// Whether memory is full because of messages that have not arrived completely: they take half of it, and none of
    /// it is freed by itself.
    #[must_use]
    pub(crate) fn is_full_of_unfinished(&self) -> bool {
        // Relaxed: as in `allows`.
        let here = self.unfinished.load(Ordering::Relaxed);
        let total = self.total.unfinished.load(Ordering::Relaxed);
        !self.allows(0) && here > 0 && (here >= self.share(self.used()) / 2 || total >= self.total.limit / 2)
    }

    /// Charges bytes while the charge lives; `None` if they are too many.
    #[must_use]
    pub fn charge(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        self.allows(bytes).then(|| self.charge_anyway(bytes))
    }

    /// Charges the bytes of a message that lies in `mappings` mappings.
    #[must_use]
    pub(crate) fn charge_mapped(self: &Arc<Self>, bytes: usize, mappings: usize) -> Option<Charge> {
        // Checked before charging: freeing a charge again would wake a waiting thread, which may be the one that asks
        // here.
        if mappings > 0 && !self.allows_mappings(mappings) {
            return None;
        }
        let mut charge = self.charge(bytes)?;
        // Relaxed: as in `allows`.
        self.mapped.fetch_add(mappings, Ordering::Relaxed);
        self.total.mapped.fetch_add(mappings, Ordering::Relaxed);
        charge.mappings = mappings;
        Some(charge)
    }

    fn allows_mappings(&self, more: usize) -> bool {
        // Relaxed: as in `allows`.
        let here = self.mapped.load(Ordering::Relaxed) + more;
        let total = self.total.mapped.load(Ordering::Relaxed) + more;
        let most = self.total.most_mapped;
        here <= ALWAYS_MAPPED || (here <= most / 4 && total <= most)
    }

    /// Counts bytes that are kept between messages (a wrapped number subtracts). Whether all that are counted may be
    /// kept. They are counted until they are [given back](Account::give_back).
    pub(crate) fn keep(&self, bytes: usize) -> bool {
        // Relaxed: as above.
        let kept = self.total.kept.fetch_add(bytes, Ordering::Relaxed).wrapping_add(bytes);
        kept <= self.total.limit / 4
    }

    /// The bytes are no longer kept.
    pub(crate) fn give_back(&self, bytes: usize) {
        // Relaxed: as above.
        self.total.kept.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Charges bytes while the charge lives, even if they are too many.
    #[must_use]
    pub fn charge_anyway(self: &Arc<Self>, bytes: usize) -> Charge {
        // Relaxed: as above.
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.total.used.fetch_add(bytes, Ordering::Relaxed);
        Charge { account: Arc::clone(self), bytes, works: false, unfinished: 0, mappings: 0 }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        // Relaxed: as in `of`. The other connections may use more now, so `free` wakes a waiting thread.
        self.total.accounts.fetch_sub(1, Ordering::Relaxed);
        self.total.free(0);
    }
}

/// Bytes that are charged to an account while this lives.
#[derive(Debug)]
pub struct Charge {
    account: Arc<Account>,
    bytes: usize,
    /// Somebody works with the bytes.
    works: bool,
    unfinished: usize,
    mappings: usize,
}

impl Charge {
    /// Somebody works with the bytes from now on: they wait no longer.
    pub fn begin_work(&mut self) {
        if !std::mem::replace(&mut self.works, true) {
            // Relaxed: as in `Account::allows`.
            self.account.at_work.fetch_add(self.bytes, Ordering::Relaxed);
            self.account.note_moved(self.bytes);
        }
    }

    /// So many bytes of what is charged went on.
    pub(crate) fn note_moved(&self, bytes: usize) {
        self.account.note_moved(bytes);
    }

    /// Charges `bytes` more, even if they are too many.
    pub(crate) fn grow(&mut self, bytes: usize) {
        self.set(self.bytes + bytes);
    }

    /// Charges `bytes` instead, even if they are too many.
    pub fn set(&mut self, bytes: usize) {
        // Relaxed: as in `Account::allows`.
        if self.works {
            // A wrapped number subtracts.
            self.account.at_work.fetch_add(bytes.wrapping_sub(self.bytes), Ordering::Relaxed);
        }
        if let Some(more) = bytes.checked_sub(self.bytes) {
            self.account.used.fetch_add(more, Ordering::Relaxed);
            self.account.total.used.fetch_add(more, Ordering::Relaxed);
        } else {
            let freed = self.bytes - bytes;
            self.account.used.fetch_sub(freed, Ordering::Relaxed);
            if !self.works {
                self.account.note_moved(freed);
            }
            self.account.total.free(freed);
        }
        self.bytes = bytes;
    }

    /// How many of the charged bytes belong to messages that have not arrived completely.
    pub(crate) fn set_unfinished(&mut self, bytes: usize) {
        let more = bytes.wrapping_sub(self.unfinished);
        if more != 0 {
            // Relaxed: as in `set`.
            self.account.unfinished.fetch_add(more, Ordering::Relaxed);
            self.account.total.unfinished.fetch_add(more, Ordering::Relaxed);
            self.unfinished = bytes;
        }
    }

    /// How many bytes are charged.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many mappings are charged.
    pub(crate) fn mappings(&self) -> usize {
        self.mappings
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set_unfinished(0);
        // Relaxed: as in `Account::allows`.
        if self.mappings > 0 {
            self.account.mapped.fetch_sub(self.mappings, Ordering::Relaxed);
            self.account.total.mapped.fetch_sub(self.mappings, Ordering::Relaxed);
        }
        // Last: the thread that this wakes looks at all of these counters.
        self.set(0);
    }
}

/// Bytes that are charged to an account while this lives, and that threads which share it may add to.
#[derive(Debug)]
pub struct SharedCharge {
    account: Arc<Account>,
    bytes: AtomicUsize,
}

impl SharedCharge {
    /// A charge of no bytes.
    #[must_use]
    pub fn new(account: &Arc<Account>) -> Self {
        Self { account: Arc::clone(account), bytes: AtomicUsize::new(0) }
    }

    /// Charges `bytes` more. Returns `false` if they are too many: then they are not charged.
    #[must_use]
    pub fn add(&self, bytes: usize) -> bool {
        // Charged before the look, so that of several threads that ask at once each sees the others' bytes.
        // Relaxed: as in `Account::allows`.
        self.account.used.fetch_add(bytes, Ordering::Relaxed);
        self.account.total.used.fetch_add(bytes, Ordering::Relaxed);
        let allowed = self.account.allows(0);
        if allowed {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        } else {
            self.free(bytes);
        }
        allowed
    }

    /// Charges nothing any more.
    pub fn clear(&self) {
        // Relaxed: as in `Account::allows`.
        let bytes = self.bytes.swap(0, Ordering::Relaxed);
        if bytes > 0 {
            self.free(bytes);
        }
    }

    fn free(&self, bytes: usize) {
        // Relaxed: as in `Account::allows`.
        self.account.used.fetch_sub(bytes, Ordering::Relaxed);
        self.account.total.free(bytes);
    }
}

impl Drop for SharedCharge {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Bytes that are kept between messages, counted while this lives.
#[derive(Debug)]
pub(crate) struct KeptBytes {
    account: Arc<Account>,
    bytes: usize,
}

impl KeptBytes {
    /// Counts `bytes`; `None` if they are too many.
    pub(crate) fn of(account: &Arc<Account>, bytes: usize) -> Option<Self> {
        let kept = Self { account: Arc::clone(account), bytes };
        account.keep(bytes).then_some(kept)
    }
}

impl Drop for KeptBytes {
    fn drop(&mut self) {
        self.account.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests;
