//! Whose turn it is to receive. The workers that have no turn stand by: they sleep until the baton is free, and one of them
//! watches who holds it.

use std::sync::Arc;
use std::time::Duration;

use nearcall_platform::descriptors::{self, EventDescriptor, Poller};
use nearcall_platform::lock::{Condvar, Mutex, MutexGuard};

use super::baton::Baton;
use crate::sync::{AtomicBool, Ordering, QUIET};

/// How long a handler may run before another worker receives in its stead.
const PATIENCE: Duration = Duration::from_millis(1);

/// The baton, and those who wait for it.
#[derive(Debug)]
pub(super) struct Turn {
    baton: Baton,
    standby: Mutex<Standby>,
    /// The baton is free, or must be watched again.
    changed: Condvar,
    /// The one that watches sleeps until it is told that the baton has moved.
    watcher_sleeps: AtomicBool,
    /// A moment has passed, in which the holder ran handlers.
    tick: AtomicBool,
    /// Wakes the one that watches while it sleeps beside the event loop.
    event: EventDescriptor,
    /// The system's poller of the reception.
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

impl Turn {
    pub(super) fn new(event: EventDescriptor, poller: Arc<Poller>) -> Self {
        Self {
            baton: Baton::default(),
            standby: Mutex::default(),
            changed: Condvar::new(),
            watcher_sleeps: AtomicBool::new(false),
            tick: AtomicBool::new(false),
            event,
            poller,
        }
    }

    /// Whether it is this thread's turn.
    #[inline]
    pub(super) fn is_mine(&self) -> bool {
        self.baton.is_held()
    }

    /// Whether a moment has passed since this was asked, while handlers ran. As exact as the one that watches is.
    #[inline]
    pub(super) fn take_tick(&self) -> bool {
        // Relaxed: nothing hangs on it but the time of a look at the poller.
        self.tick.load(Ordering::Relaxed) && self.tick.swap(false, Ordering::Relaxed)
    }

    /// Takes the turn if nobody has it.
    pub(super) fn try_take(&self) -> bool {
        self.baton.try_take()
    }

    /// The event loop takes the turn, if it was offered.
    pub(super) fn take_offered(&self) -> bool {
        self.baton.take_offered()
    }

    /// The one that had the turn begins to run a handler. It may lose the turn by that.
    #[inline]
    pub(super) fn busy(&self) {
        self.let_watch(self.baton.busy());
    }

    /// The handler is done: whether it is still this thread's turn.
    #[inline]
    pub(super) fn back(&self) -> bool {
        self.baton.back()
    }

    /// The worker whose turn it is leaves it to the event loop.
    pub(super) fn offer(&self) {
        self.let_watch(self.baton.offer());
    }

    /// The event loop keeps the turn while it does other work or sleeps. It may lose it by that.
    pub(super) fn listen(&self) {
        self.let_watch(self.baton.listen());
    }

    /// Lets another worker receive: the caller is going to wait for something else.
    pub(super) fn release(&self) {
        if self.baton.give_up() {
            self.announce();
        }
    }

    /// Wakes all that stand by.
    pub(super) fn announce(&self) {
        let standby = self.standby.lock();
        self.wake(&standby);
    }

    #[inline]
    fn let_watch(&self, moved: bool) {
        // Relaxed: after the baton's move; see `Baton::settle`.
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

    /// Sleeps until the baton is free, or everything is `over`. One of the sleepers watches the holder meanwhile.
    pub(super) fn stand_by(&self, over: impl Fn() -> bool) {
        let mut standby = self.standby.lock();
        let mut watching = false;
        let (mut seen, mut quiet) = (self.baton.look(), 0);
        while !over() && !self.baton.is_vacant() {
            if !watching && !standby.watched {
                standby.watched = true;
                watching = true;
            }
            if watching && Baton::is_listening(self.baton.look()) {
                if self.watch_loop(&mut standby, &over) {
                    break;
                }
                (seen, quiet) = (self.baton.look(), 0);
                continue;
            }
            // Relaxed: changed under the lock only.
            if !watching || self.watcher_sleeps.load(Ordering::Relaxed) {
                self.changed.wait(&mut standby);
                (seen, quiet) = (self.baton.look(), 0);
                continue;
            }
            self.changed.wait_for(&mut standby, PATIENCE);
            let now = self.baton.look();
            // Relaxed: see `take_tick`.
            self.tick.store(true, Ordering::Relaxed);
            if now != seen {
                (seen, quiet) = (now, 0);
            } else if self.baton.steal(now) {
                break;
            } else {
                quiet += 1;
                if quiet >= QUIET {
                    // Relaxed: `settle` orders it.
                    self.watcher_sleeps.store(true, Ordering::Relaxed);
                    if self.baton.settle() != seen {
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
    /// something is there, and the loop has not come for it a moment later, takes the baton from it: whether it did.
    fn watch_loop(&self, standby: &mut MutexGuard<'_, Standby>, over: &impl Fn() -> bool) -> bool {
        // Relaxed: `settle` orders it.
        self.watcher_sleeps.store(true, Ordering::Relaxed);
        let seen = self.baton.settle();
        standby.polls = true;
        if Baton::is_listening(seen) {
            MutexGuard::unlocked(standby, || descriptors::wait_for_either(&self.poller, &self.event));
        }
        standby.polls = false;
        self.watcher_sleeps.store(false, Ordering::Relaxed);
        if self.baton.look() != seen || over() {
            return false;
        }
        self.changed.wait_for(standby, PATIENCE);
        // A loop that has come and gone again meanwhile has changed the word.
        self.baton.look() == seen && descriptors::is_readable(&self.poller) && self.baton.steal(seen)
    }
}
