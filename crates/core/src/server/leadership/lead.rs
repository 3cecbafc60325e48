//! Who receives. The worker that received a request runs its handler at once, still holding the lead; if the handler
//! takes long, the lead is taken from it, so that a slow handler never keeps others waiting. The thread of the event
//! loop may hold it, too: it is offered to the loop when the work is the loop's, and taken from a loop that is blocked.

use crate::sync::{AtomicU64, Ordering, thread_number};

/// One word: the thread that holds the lead, how often it has moved, and what its holder does. So a thread holds it
/// exactly while its number is in it: there is nothing else to be remembered, and nothing that can be out of date.
#[derive(Debug, Default)]
pub(in crate::server) struct Lead(AtomicU64);

const MODE: u64 = 7;
const VACANT: u64 = 0;
/// The holder looks at the connections, or sleeps in the system's poller.
const RECEIVING: u64 = 1;
/// The holder runs a handler.
const BUSY: u64 = 2;
/// A worker has left it to the event loop, which has not taken it yet.
const OFFERED: u64 = 3;
/// The event loop has it, and comes back to it when the connections have something and the loop's other work allows.
const LISTENING: u64 = 4;
/// One move. The count is compared only with what was seen a moment ago: it may wrap.
const STEP: u64 = 8;
const STEPS: u64 = 0xFFFF_FFF8;
/// Where the number of the holder begins; nobody's is 0.
const HOLDER: u32 = 32;

impl Lead {
    /// The word, if this thread holds it.
    #[inline]
    fn held(&self) -> Option<u64> {
        // Relaxed: this thread sees what it wrote itself, and only it writes its number.
        let word = self.0.load(Ordering::Relaxed);
        (word >> HOLDER == u64::from(thread_number())).then_some(word)
    }

    /// Moves the lead on from `word`, if nobody else did.
    #[inline]
    fn swap(&self, word: u64, mode: u64) -> bool {
        let holder = if mode == VACANT || mode == OFFERED { 0 } else { u64::from(thread_number()) };
        let next = (holder << HOLDER) | (word.wrapping_add(STEP) & STEPS) | mode;
        // AcqRel, with the same of the next move: what the last holder did happens before what the next one does. Acquire
        // also pairs with the Release of `settle`.
        self.0.compare_exchange(word, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether this thread holds it.
    #[inline]
    pub(in crate::server) fn is_held(&self) -> bool {
        self.held().is_some()
    }

    /// Takes the lead if nobody has it.
    pub(in crate::server) fn try_take(&self) -> bool {
        let word = self.look();
        word & MODE == VACANT && self.swap(word, RECEIVING)
    }

    /// The holder leaves it to the event loop: whether it did.
    pub(in crate::server) fn offer(&self) -> bool {
        self.held().is_some_and(|word| self.swap(word, OFFERED))
    }

    /// The event loop takes it, if it was offered.
    pub(in crate::server) fn take_offered(&self) -> bool {
        let word = self.look();
        word & MODE == OFFERED && self.swap(word, RECEIVING)
    }

    /// The event loop keeps it while it does other work or sleeps: whether it did.
    pub(in crate::server) fn listen(&self) -> bool {
        self.held().is_some_and(|word| self.swap(word, LISTENING))
    }

    /// Whether the event loop holds it and does not receive at the moment.
    pub(in crate::server) fn is_listening(word: u64) -> bool {
        word & MODE == LISTENING
    }

    /// Whether its holder looks for requests: there is nothing to be watched.
    pub(in crate::server) fn is_receiving(word: u64) -> bool {
        word & MODE == RECEIVING
    }

    /// The holder begins to run a handler: whether it still has the lead then.
    #[inline]
    pub(in crate::server) fn busy(&self) -> bool {
        self.held().is_some_and(|word| self.swap(word, BUSY))
    }

    /// The handler is done: whether this thread still holds the lead, and receives again.
    #[inline]
    pub(in crate::server) fn back(&self) -> bool {
        self.held().is_some_and(|word| self.swap(word, RECEIVING))
    }

    /// The holder is going to wait for something other than requests. Whether the lead became free by this.
    pub(in crate::server) fn give_up(&self) -> bool {
        self.held().is_some_and(|word| self.swap(word, VACANT))
    }

    /// The word as it is.
    pub(in crate::server) fn look(&self) -> u64 {
        // Relaxed: whoever moves on from it does so with `swap`.
        self.0.load(Ordering::Relaxed)
    }

    /// The word as it is, for a watcher that has just said that it sleeps: either it sees a move here, or whoever makes one
    /// sees after it what the watcher said.
    pub(in crate::server) fn settle(&self) -> u64 {
        // Release, with the Acquire of `swap`. An exchange that changes nothing: it is before or after each move, where a
        // load could be both.
        self.0.fetch_or(0, Ordering::Release)
    }

    pub(in crate::server) fn is_vacant(&self) -> bool {
        self.look() & MODE == VACANT
    }

    /// Takes the lead away from a holder that has run one handler since the watcher saw `word`, or from a loop that has
    /// not come for it.
    pub(in crate::server) fn steal(&self, word: u64) -> bool {
        matches!(word & MODE, BUSY | OFFERED | LISTENING) && self.swap(word, VACANT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_handler_loses_the_lead_and_notices() {
        let lead = Lead::default();
        assert!(lead.try_take());
        assert!(!lead.try_take());
        assert!(!lead.steal(lead.look()), "a holder that receives keeps it");
        assert!(lead.busy());
        let seen = lead.look();
        assert!(
            std::thread::scope(|scope| scope.spawn(|| lead.steal(seen) && lead.try_take()).join()).expect("no panic")
        );
        assert!(!lead.back());
        assert!(!lead.is_held());
    }

    #[test]
    fn an_offer_is_taken_once_and_a_listener_can_lose_it() {
        let lead = Lead::default();
        assert!(!lead.take_offered(), "nobody has offered it");
        assert!(lead.try_take());
        lead.offer();
        assert!(!lead.is_held());
        assert!(!lead.try_take(), "it is the loop's");
        assert!(lead.take_offered());
        assert!(!lead.take_offered());
        assert!(!lead.steal(lead.look()), "a holder that receives keeps it");
        lead.listen();
        assert!(Lead::is_listening(lead.look()));
        assert!(lead.back());
        lead.listen();
        assert!(lead.steal(lead.look()));
        assert!(!lead.back());
    }

    #[test]
    fn a_quick_handler_keeps_it() {
        let lead = Lead::default();
        assert!(lead.try_take());
        lead.busy();
        let seen = lead.look();
        assert!(lead.back());
        assert!(!lead.steal(seen), "the word has moved on");
        assert!(lead.give_up());
        assert!(lead.is_vacant());
    }

    #[test]
    fn a_thread_holds_the_one_that_it_took_and_no_other() {
        let (first, second) = (Lead::default(), Lead::default());
        assert!(first.try_take() && !second.is_held());
        assert!(second.try_take());
        assert!(first.is_held(), "a thread may hold two");
        assert!(second.give_up() && first.is_held());
        assert!(!std::thread::scope(|scope| scope.spawn(|| first.is_held()).join()).expect("no panic"));
    }

    #[test]
    fn a_later_one_in_the_same_place_is_another_one() {
        let mut place = Lead::default();
        assert!(place.try_take());
        place = Lead::default();
        assert!(!place.is_held() && !place.back());
    }
}
