//! Who receives on a connection: one thread at a time, the leader. Others that wait follow it: they sleep until something
//! was delivered to them, or until the leader leaves and one of them takes over.

use std::time::Duration;

use nearcall_platform::lock::Mutex;

use crate::sync::thread::{self, Thread};
use crate::sync::{AtomicBool, AtomicU32, Ordering, fence};

/// The right to receive, and those who wait for it.
#[derive(Debug, Default)]
pub(in crate::client) struct ClientLeadership {
    led: AtomicBool,
    /// How many follow, so that leaving costs nothing while nobody does.
    following: AtomicU32,
    followers: Mutex<Vec<Thread>>,
}

/// Held by the thread that receives. When it is dropped, a follower is woken to take over.
#[derive(Debug)]
pub(in crate::client) struct ClientLead<'a>(&'a ClientLeadership);

impl ClientLeadership {
    /// Takes the lead if nobody has it.
    #[inline]
    pub(in crate::client) fn try_lead(&self) -> Option<ClientLead<'_>> {
        // Acquire: after the Release of the leader before, whose view of the link this thread continues.
        self.led.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok().then(|| ClientLead(self))
    }

    /// Whether a thread receives.
    pub(in crate::client) fn is_led(&self) -> bool {
        // Relaxed: it may be otherwise a moment later.
        self.led.load(Ordering::Relaxed)
    }

    /// Sleeps until this thread is unparked, for at most `slice`; not at all if nobody leads. Then the thread must lead, follow
    /// again, or [pass the wake-up on](ClientLeadership::pass_on).
    pub(in crate::client) fn follow(&self, slice: Duration) {
        let me = thread::current();
        let id = me.id();
        self.followers.lock().push(me);
        // Relaxed, both: the fence orders them. It pairs with that of `ClientLead::drop`: either the leader that leaves sees
        // this follower, or the follower sees that nobody leads.
        self.following.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.led.load(Ordering::Relaxed) {
            thread::park_timeout(slice);
        }
        // Relaxed: a leader that no longer sees this follower need not wake it; a leader that still does wakes it for
        // nothing.
        self.following.fetch_sub(1, Ordering::Relaxed);
        self.followers.lock().retain(|follower| follower.id() != id);
    }

    /// To be called by a follower that stops waiting without having led: it may have been woken to take over just when
    /// its own reply came.
    pub(in crate::client) fn pass_on(&self) {
        // Relaxed: the leader that woke this thread held the lock of `followers` before this thread left that list.
        if !self.led.load(Ordering::Relaxed) {
            self.wake_one();
        }
    }

    #[inline]
    fn wake_one(&self) {
        // Relaxed: see `follow` and `pass_on`.
        if self.following.load(Ordering::Relaxed) > 0 {
            let first = self.followers.lock().first().cloned();
            // Outside the lock: the woken thread takes that lock first.
            if let Some(first) = first {
                first.unpark();
            }
        }
    }
}

impl Drop for ClientLead<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: before the Acquire of the next leader.
        self.0.led.store(false, Ordering::Release);
        // Pairs with the fence in `follow`.
        fence(Ordering::SeqCst);
        self.0.wake_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;

    use super::*;

    /// Longer than the test may take.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn one_leads_at_a_time() {
        let leadership = ClientLeadership::default();
        let lead = leadership.try_lead().expect("nobody leads");
        assert!(leadership.try_lead().is_none() && leadership.is_led());
        drop(lead);
        assert!(leadership.try_lead().is_some() && !leadership.is_led());
    }

    #[test]
    fn who_follows_nobody_does_not_sleep() {
        ClientLeadership::default().follow(LONG);
    }

    #[test]
    fn everybody_gets_a_turn_when_the_one_before_leaves() {
        const THREADS: usize = 8;
        let leadership = Arc::new(ClientLeadership::default());
        let first = leadership.try_lead().expect("nobody leads");
        let (had, turns) = mpsc::channel();
        for number in 0..THREADS {
            let (leadership, had) = (Arc::clone(&leadership), had.clone());
            thread::spawn(move || {
                loop {
                    // Every other one leaves without having led.
                    let leads = leadership.try_lead();
                    if leads.is_some() || (number % 2 == 0 && !leadership.is_led()) {
                        drop(leads);
                        leadership.pass_on();
                        return had.send(());
                    }
                    leadership.follow(LONG);
                }
            });
        }
        drop(first);
        assert!((0..THREADS).all(|_| turns.recv_timeout(LONG).is_ok()), "one of them slept on");
    }
}
