//! Who receives. The worker that received a request runs its handler at once, still holding the baton; if the handler
//! takes long, the baton is taken from it, so that a slow handler never keeps others waiting. The thread of the event
//! loop may hold it, too: it is offered to the loop when the work is the loop's, and taken from a loop that is blocked.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// One word: how often the baton has moved, and what its holder does.
#[derive(Debug, Default)]
pub(super) struct Baton(AtomicU64);

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
const STEP: u64 = 8;

thread_local! {
    /// The word this thread last put into the baton it holds, and which baton; zeros if it holds none.
    static HELD: Cell<(usize, u64)> = const { Cell::new((0, 0)) };
}

impl Baton {
    fn held(&self) -> Option<u64> {
        let (baton, word) = HELD.get();
        (baton == std::ptr::from_ref(self).addr()).then_some(word)
    }

    fn remember(&self, word: u64) {
        HELD.set((std::ptr::from_ref(self).addr(), word));
    }

    fn next(word: u64, mode: u64) -> u64 {
        ((word & !MODE) + STEP) | mode
    }

    /// Moves the baton on from `word`, if nobody else did.
    fn swap(&self, word: u64, mode: u64) -> bool {
        let next = Self::next(word, mode);
        // AcqRel: what the last holder did with the reception happens before what the next one does.
        let moved = self.0.compare_exchange(word, next, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if moved && mode != VACANT && mode != OFFERED {
            self.remember(next);
        } else {
            HELD.set((0, 0));
        }
        moved
    }

    /// Whether this thread holds it (or did, until it was taken away a moment ago).
    pub(super) fn is_held(&self) -> bool {
        self.held().is_some()
    }

    /// Takes the baton if nobody has it.
    pub(super) fn try_take(&self) -> bool {
        let word = self.0.load(Ordering::Acquire);
        word & MODE == VACANT && self.swap(word, RECEIVING)
    }

    /// The holder leaves it to the event loop.
    pub(super) fn offer(&self) {
        if let Some(word) = self.held() {
            self.swap(word, OFFERED);
        }
    }

    /// The event loop takes it, if it was offered.
    pub(super) fn take_offered(&self) -> bool {
        // Acquire: as in `try_take`.
        let word = self.0.load(Ordering::Acquire);
        word & MODE == OFFERED && self.swap(word, RECEIVING)
    }

    /// The event loop keeps it while it does other work or sleeps.
    pub(super) fn listen(&self) {
        if let Some(word) = self.held() {
            self.swap(word, LISTENING);
        }
    }

    /// Whether the event loop holds it and does not receive at the moment.
    pub(super) fn is_listening(word: u64) -> bool {
        word & MODE == LISTENING
    }

    /// The holder begins to run a handler.
    pub(super) fn busy(&self) {
        if let Some(word) = self.held() {
            let next = Self::next(word, BUSY);
            // SeqCst: the caller looks next whether the watcher sleeps, and the watcher sleeps only if it saw no change
            // here. While we receive nobody else changes the word.
            self.0.swap(next, Ordering::SeqCst);
            self.remember(next);
        }
    }

    /// The handler is done: whether this thread still holds the baton, and receives again.
    pub(super) fn back(&self) -> bool {
        self.held().is_some_and(|word| self.swap(word, RECEIVING))
    }

    /// The holder is going to wait for something other than requests. Whether the baton became free by this.
    pub(super) fn give_up(&self) -> bool {
        self.held().is_some_and(|word| self.swap(word, VACANT))
    }

    /// The word as it is, for the watcher.
    pub(super) fn look(&self) -> u64 {
        // SeqCst: see `busy`.
        self.0.load(Ordering::SeqCst)
    }

    pub(super) fn is_vacant(&self) -> bool {
        self.look() & MODE == VACANT
    }

    /// Takes the baton away from a holder that has run one handler since the watcher saw `word`, or from a loop that has
    /// not come for it.
    pub(super) fn steal(&self, word: u64) -> bool {
        let next = Self::next(word, VACANT);
        matches!(word & MODE, BUSY | OFFERED | LISTENING)
            && self.0.compare_exchange(word, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_handler_loses_the_baton_and_notices() {
        let baton = Baton::default();
        assert!(baton.try_take());
        assert!(!baton.try_take());
        assert!(!baton.steal(baton.look()), "a holder that receives keeps it");
        baton.busy();
        let seen = baton.look();
        assert!(
            std::thread::scope(|scope| scope.spawn(|| baton.steal(seen) && baton.try_take()).join()).expect("no panic")
        );
        assert!(!baton.back());
        assert!(!baton.is_held());
    }

    #[test]
    fn an_offer_is_taken_once_and_a_listener_can_lose_it() {
        let baton = Baton::default();
        assert!(!baton.take_offered(), "nobody has offered it");
        assert!(baton.try_take());
        baton.offer();
        assert!(!baton.is_held());
        assert!(!baton.try_take(), "it is the loop's");
        assert!(baton.take_offered());
        assert!(!baton.take_offered());
        assert!(!baton.steal(baton.look()), "a holder that receives keeps it");
        baton.listen();
        assert!(Baton::is_listening(baton.look()));
        assert!(baton.back());
        baton.listen();
        assert!(baton.steal(baton.look()));
        assert!(!baton.back());
    }

    #[test]
    fn a_quick_handler_keeps_it() {
        let baton = Baton::default();
        assert!(baton.try_take());
        baton.busy();
        let seen = baton.look();
        assert!(baton.back());
        assert!(!baton.steal(seen), "the word has moved on");
        assert!(baton.give_up());
        assert!(baton.is_vacant());
    }
}
