//! Which thread receives: the one that has the lead. The other workers stand by: they sleep until the lead is free, and one
//! of them watches who has it.

pub(in crate::server) mod lead;

use std::sync::Arc;
use std::time::Duration;

use nearcall_platform::descriptors::{self, EventDescriptor, Poller};
use nearcall_platform::lock::{Condvar, Mutex, MutexGuard};

use crate::server::leadership::lead::Lead;
use crate::sync::{AtomicBool, Ordering, QUIET};

/// How long a handler may run before another worker receives in its stead.
const PATIENCE: Duration = Duration::from_millis(1);

/// The lead, and those who wait for it.
#[derive(Debug)]
pub(in crate::server) struct Leadership {
    lead: Lead,
    standby: Mutex<Standby>,
    /// The lead is free, or must be watched again.
    changed: Condvar,
    /// The one that watches sleeps until it is told that the lead has moved.
    watcher_sleeps: AtomicBool,
    /// A moment has passed, in which the holder ran handlers.
    tick: AtomicBool,
    /// Wakes the one that watches while it sleeps beside the event loop.
    event: EventDescriptor,
    /// The system's poller of the reactor.
    poller: Arc<Poller>,
}

/// What the workers share that stand by.
#[derive(Debug, Default)]
struct Standby {
    /// One of them watches the holder.
    watched: bool,
    /// It does so in the system's poller.
    polls: bool,
}

impl Leadership {
    pub(in crate::server) fn new(event: EventDescriptor, poller: Arc<Poller>) -> Self {
        Self {
            lead: Lead::default(),
            standby: Mutex::default(),
            changed: Condvar::new(),
            watcher_sleeps: AtomicBool::new(false),
            tick: AtomicBool::new(false),
            event,
            poller,
        }
    }

    /// Whether this thread has the lead.
    #[inline]
    pub(in crate::server) fn is_mine(&self) -> bool {
        self.lead.is_held()
    }

    /// Whether a moment has passed since this was asked, while handlers ran. As exact as the one that watches is.
    #[inline]
    pub(in crate::server) fn take_tick(&self) -> bool {
        // Relaxed: nothing hangs on it but the time of a look at the poller.
        self.tick.load(Ordering::Relaxed) && self.tick.swap(false, Ordering::Relaxed)
    }

    /// Takes the lead if nobody has it.
    pub(in crate::server) fn try_take(&self) -> bool {
        self.lead.try_take()
    }

    /// The event loop takes the lead, if it was offered.
    pub(in crate::server) fn take_offered(&self) -> bool {
        self.lead.take_offered()
    }

    /// The thread that has the lead begins to run a handler. It may lose the lead by that.
    #[inline]
    pub(in crate::server) fn busy(&self) {
        self.let_watch(self.lead.busy());
    }

    /// The handler is done: whether this thread still has the lead.
    #[inline]
    pub(in crate::server) fn back(&self) -> bool {
        self.lead.back()
    }

    /// The worker that has the lead leaves it to the event loop.
    pub(in crate::server) fn offer(&self) {
        self.let_watch(self.lead.offer());
    }

    /// The event loop keeps the lead while it does other work or sleeps. It may lose it by that.
    pub(in crate::server) fn listen(&self) {
        self.let_watch(self.lead.listen());
    }

    /// Lets another worker receive: the caller is going to wait for something else.
    pub(in crate::server) fn release(&self) {
        if self.lead.give_up() {
            self.announce();
        }
    }

    /// Wakes all that stand by.
    pub(in crate::server) fn announce(&self) {
        let standby = self.standby.lock();
        self.wake(&standby);
    }

    #[inline]
    fn let_watch(&self, moved: bool) {
        // Relaxed: after the lead's move; see `Lead::settle`.
        if moved && self.watcher_sleeps.load(Ordering::Relaxed) {
            self.wake_watcher();
        }
    }

    #[cold]
    fn wake_watcher(&self) {
        let standby = self.standby.lock();
        self.watcher_sleeps.store(false, Ordering::Relaxed);
        self.wake(&standby);
    }

    fn wake(&self, standby: &Standby) {
        self.changed.notify_all();
        if standby.polls {
            descriptors::signal(&self.event);
        }
    }

    /// Sleeps until the lead is free, or everything is `over`. One of the sleepers watches the holder meanwhile.
    pub(in crate::server) fn stand_by(&self, over: impl Fn() -> bool) {
        let mut standby = self.standby.lock();
        let mut watching = false;
        let (mut seen, mut quiet) = (self.lead.look(), 0);
        while !over() && !self.lead.is_vacant() {
            if !watching && !standby.watched {
                standby.watched = true;
                watching = true;
            }
            if watching && Lead::is_listening(self.lead.look()) {
                if self.watch_loop(&mut standby, &over) {
                    break;
                }
                (seen, quiet) = (self.lead.look(), 0);
                continue;
            }
            // Relaxed: changed under the lock only.
            if !watching || self.watcher_sleeps.load(Ordering::Relaxed) {
                self.changed.wait(&mut standby);
                (seen, quiet) = (self.lead.look(), 0);
                continue;
            }
            self.changed.wait_for(&mut standby, PATIENCE);
            let now = self.lead.look();
            // Relaxed: see `take_tick`.
            self.tick.store(true, Ordering::Relaxed);
            if now != seen {
                (seen, quiet) = (now, 0);
            } else if self.lead.steal(now) {
                break;
            } else {
                quiet += 1;
                if quiet >= QUIET {
                    // Relaxed: `settle` orders it.
                    self.watcher_sleeps.store(true, Ordering::Relaxed);
                    if self.lead.settle() != seen {
                        self.watcher_sleeps.store(false, Ordering::Relaxed);
                    }
                }
            }
        }
        if watching {
            standby.watched = false;
            self.watcher_sleeps.store(false, Ordering::Relaxed);
            self.changed.notify_all();
        }
    }

    /// The event loop is to receive when something comes, and may sleep for long: sleeps beside it in the same poller. If
    /// something is there, and the loop has not come for it a moment later, takes the lead from it: whether it did.
    fn watch_loop(&self, standby: &mut MutexGuard<'_, Standby>, over: &impl Fn() -> bool) -> bool {
        // Relaxed: `settle` orders it.
        self.watcher_sleeps.store(true, Ordering::Relaxed);
        let seen = self.lead.settle();
        standby.polls = true;
        if Lead::is_listening(seen) {
            MutexGuard::unlocked(standby, || descriptors::wait_for_either(&self.poller, &self.event));
        }
        standby.polls = false;
        self.watcher_sleeps.store(false, Ordering::Relaxed);
        if self.lead.look() != seen || over() {
            return false;
        }
        self.changed.wait_for(standby, PATIENCE);
        // A loop that has come and gone again meanwhile has changed the word.
        self.lead.look() == seen && descriptors::is_readable(&self.poller) && self.lead.steal(seen)
    }
}
