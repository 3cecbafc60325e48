//! For whom the last frames were: by this the receiving worker decides whom it leaves the lead to.

use crate::sync::{AtomicU32, Ordering};

/// The loop is offered the lead after so many requests for it in a row. So if both kinds of handlers are called in
/// turn, a worker goes on receiving.
const RUN: u32 = 8;
/// A reply to a thread that waited for it was the first frame after a request.
const REPLIED: u32 = u32::MAX - 1;
/// There were such replies only.
const REPLIES: u32 = u32::MAX;

/// Up to here the number of requests for the event loop since the last one for a worker, or one of the values above.
/// Written by the receiving thread only, and read by it: it loads and stores.
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
