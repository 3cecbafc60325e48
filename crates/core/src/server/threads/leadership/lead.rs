//! The lead: the thread that holds it receives. A worker that has received a request runs its handler at once, and
//! still holds the lead. If the handler takes long, the watcher takes the lead away, so that no request waits for a
//! slow handler. The thread of the event loop may hold the lead, too: a worker offers it when the requests are for
//! coroutines, and the watcher takes it from a loop that is blocked.

use crate::sync::{AtomicU32, AtomicU64, Ordering, thread_number};

/// One word: the number of the thread that holds the lead, how often the lead has moved, and what its holder does. A
/// thread holds the lead exactly while its number is in the word. No thread keeps a copy that could be out of date.
#[derive(Debug, Default)]
pub(in crate::server) struct Lead(AtomicU64);

const MODE: u64 = 7;
const VACANT: u64 = 0;
/// The holder looks at the connections, or sleeps in the system's poller.
const RECEIVING: u64 = 1;
/// The holder runs a handler.
const BUSY: u64 = 2;
/// A worker has left the lead to the event loop, or to a caller that waits for replies, which has not taken it yet.
const OFFERED: u64 = 3;
/// The event loop holds the lead. It receives again when the poller has an event and the loop's other work allows.
const LISTENING: u64 = 4;
/// One move. The count may wrap: it is compared only with a value read a moment ago.
const STEP: u64 = 8;
const STEPS: u64 = 0xFFFF_FFF8;
/// The first bit of the holder's number. No thread has the number 0.
const HOLDER: u32 = 32;

impl Lead {
    /// The word, if this thread holds the lead. It is another one after each move.
    #[inline]
    pub(in crate::server) fn held(&self) -> Option<u64> {
        // Relaxed: only this thread writes its own number, and it sees its own writes.
        let word = self.0.load(Ordering::Relaxed);
        (word >> HOLDER == u64::from(thread_number())).then_some(word)
    }

    /// Moves the lead on from `word`, if no other thread has moved it. Whether it did.
    #[inline]
    fn swap(&self, word: u64, mode: u64) -> bool {
        let holder = if mode == VACANT || mode == OFFERED { 0 } else { u64::from(thread_number()) };
        let next = (holder << HOLDER) | (word.wrapping_add(STEP) & STEPS) | mode;
        // AcqRel, with the AcqRel of the next move: what the last holder did happens before what the next one does. The
        // Acquire also pairs with the Release of `settle`.
        self.0.compare_exchange(word, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether this thread holds the lead.
    #[inline]
    pub(in crate::server) fn is_held(&self) -> bool {
        self.held().is_some()
    }

    /// Takes the lead if nobody has it.
    pub(in crate::server) fn try_take(&self) -> bool {
        let word = self.look();
        word & MODE == VACANT && self.swap(word, RECEIVING)
    }

    /// The holder leaves the lead to the event loop or a waiting caller. Whether this thread was the holder.
    pub(in crate::server) fn offer(&self) -> bool {
        self.held().is_some_and(|word| self.swap(word, OFFERED))
    }

    /// Takes the lead, if it was offered. Whether it did.
    pub(in crate::server) fn take_offered(&self) -> bool {
        let word = self.look();
        word & MODE == OFFERED && self.swap(word, RECEIVING)
    }

    /// Takes the lead if nobody has it, or the thread with that number has it and runs a handler. Whether it did.
    pub(in crate::server) fn take_from(&self, handler: u32) -> bool {
        let word = self.look();
        let is_busy = word & MODE == BUSY && word >> HOLDER == u64::from(handler);
        (is_busy || word & MODE == VACANT) && self.swap(word, RECEIVING)
    }

    /// The event loop keeps the lead while it does other work or sleeps. Whether it still held the lead.
    pub(in crate::server) fn listen(&self) -> bool {
        self.held().is_some_and(|word| self.swap(word, LISTENING))
    }

    /// Whether the event loop holds the lead and does not receive at the moment.
    pub(in crate::server) fn is_listening(word: u64) -> bool {
        word & MODE == LISTENING
    }

    /// Whether the holder looks for requests: there is no handler to watch.
    pub(in crate::server) fn is_receiving(word: u64) -> bool {
        word & MODE == RECEIVING
    }

    /// The holder begins to run a handler. Whether this thread still held the lead.
    #[inline]
    pub(in crate::server) fn busy(&self) -> bool {
        self.held().is_some_and(|word| self.swap(word, BUSY))
    }

    /// The handler has returned. Whether this thread still holds the lead, and so receives again.
    #[inline]
    pub(in crate::server) fn back(&self) -> bool {
        self.held().is_some_and(|word| self.swap(word, RECEIVING))
    }

    /// Frees the lead: the holder is about to wait for something other than requests. Whether this thread was the
    /// holder.
    pub(in crate::server) fn give_up(&self) -> bool {
        self.held().is_some_and(|word| self.swap(word, VACANT))
    }

    /// The word as it is.
    pub(in crate::server) fn look(&self) -> u64 {
        // Relaxed: a thread that moves the lead on from this word does so with `swap`.
        self.0.load(Ordering::Relaxed)
    }

    /// The word as it is, for a watcher that has just set its flag. Of a move by another thread, either the watcher
    /// sees the move here, or that thread sees the watcher's flag after its move.
    pub(in crate::server) fn settle(&self) -> u64 {
        // Release, with the Acquire of `swap`. A read-modify-write that changes nothing has a place before or after
        // each move, which a load has not.
        self.0.fetch_or(0, Ordering::Release)
    }

    pub(in crate::server) fn is_vacant(&self) -> bool {
        self.look() & MODE == VACANT
    }

    /// Takes the lead if it has not moved since the watcher saw `word`: the holder still runs the same handler, or whoever
    /// it was left to has not come for it. Not from a holder that receives. Whether it did.
    pub(in crate::server) fn steal(&self, word: u64) -> bool {
        !Self::is_receiving(word) && self.swap(word, RECEIVING)
    }
}

/// The loop is offered the lead after so many requests for it in a row. So if both kinds of handlers are called in
/// turn, a worker goes on receiving.
const RUN: u32 = 8;
/// A reply to a thread that waited for it was the first frame after a request.
const REPLIED: u32 = u32::MAX - 1;
/// There were such replies only.
const REPLIES: u32 = u32::MAX;

/// For whom the last frames were: by this the receiving worker decides whom it leaves the lead to. Up to [`RUN`] the number of
/// requests for the event loop since the last one for a worker, or one of the values above. Written by the receiving thread only,
/// and read by it: it loads and stores.
#[derive(Debug, Default)]
pub(in crate::server) struct Trend(AtomicU32);

impl Trend {
    fn now(&self) -> u32 {
        // Relaxed, as below: a hint.
        self.0.load(Ordering::Relaxed)
    }

    /// A request for a worker was received.
    #[inline]
    pub(in crate::server) fn note_request(&self) {
        if self.now() != 0 {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    /// A request for the event loop was received. Whether the loop is to receive from now on.
    pub(in crate::server) fn note_for_loop(&self) -> bool {
        let before = if self.now() < REPLIED { self.now() } else { 0 };
        self.0.store((before + 1).min(RUN), Ordering::Relaxed);
        before >= RUN
    }

    /// A thread was woken for the reply that it waited for.
    pub(in crate::server) fn note_reply(&self) {
        self.0.store(if self.now() == 0 { REPLIED } else { REPLIES }, Ordering::Relaxed);
    }

    /// Whether the thread that has just got its reply is to receive from now on: then it gets its next reply without
    /// being woken. Not if requests come as well, because the thread would have to leave them to a worker. Asked once for
    /// each reply.
    pub(in crate::server) fn take_replies(&self) -> bool {
        let only = self.now() == REPLIES;
        if only {
            self.0.store(REPLIED, Ordering::Relaxed);
        }
        only
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
            std::thread::scope(|scope| scope.spawn(|| lead.steal(seen) && lead.is_held()).join()).expect("no panic")
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
        let seen = lead.look();
        assert!(std::thread::scope(|scope| scope.spawn(|| lead.steal(seen)).join()).expect("no panic"));
        assert!(!lead.back());
    }

    #[test]
    fn it_is_taken_from_one_handler_and_no_other() {
        let (lead, own) = (Lead::default(), thread_number());
        let takes =
            |handler| std::thread::scope(|scope| scope.spawn(|| lead.take_from(handler) && lead.give_up()).join());
        let takes = |handler| takes(handler).expect("no panic");
        assert!(takes(own), "nobody has it");
        assert!(lead.try_take() && !takes(own), "it receives");
        assert!(lead.busy() && !takes(own + 1) && !takes(0));
        assert!(takes(own) && !lead.back());
        assert!(lead.try_take() && lead.offer() && !takes(own) && !takes(0), "it is the loop's");
    }

    #[test]
    fn what_nobody_comes_for_can_be_taken() {
        let lead = Lead::default();
        assert!(lead.steal(lead.look()) && lead.is_held());
        assert!(lead.offer() && lead.steal(lead.look()));
        assert!(lead.give_up() && lead.steal(lead.look()));
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

    #[test]
    fn the_lead_goes_to_who_gets_all_that_comes() {
        let trend = Trend::default();
        assert!((0..RUN).all(|_| !trend.note_for_loop()) && trend.note_for_loop() && trend.note_for_loop());
        trend.note_request();
        assert!(!trend.note_for_loop() && !trend.take_replies());
        trend.note_request();
        trend.note_reply();
        assert!(!trend.take_replies(), "a request came before");
        trend.note_reply();
        assert!(trend.take_replies() && !trend.take_replies());
        trend.note_reply();
        assert!(trend.take_replies());
    }
}
