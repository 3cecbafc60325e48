//! Which thread receives: the one that has the lead. The other workers stand by: they sleep until the lead is free, and one
//! of them watches who has it.

pub(in crate::server) mod lead;

use std::sync::Arc;
use std::time::Duration;

use nearcall_platform::descriptors::{self, Alarm, EventDescriptor, Poller};
use nearcall_platform::lock::{Condvar, Mutex, MutexGuard};

use crate::server::leadership::lead::Lead;
use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// How long a handler may run before another worker receives in its stead.
pub(in crate::server) const PATIENCE: Duration = Duration::from_millis(1);

/// The lead, and those who wait for it.
#[derive(Debug)]
pub(in crate::server) struct Leadership {
    lead: Lead,
    standby: Mutex<Standby>,
    /// The lead is free.
    changed: Condvar,
    /// The one that watches sleeps until the alarm rings. Whoever moves the lead sets it: to wake a thread for a handler that
    /// returns in a microsecond would cost more than the handler.
    watcher_sleeps: AtomicBool,
    alarm: Alarm,
    /// The lead as it was when the alarm was set.
    alarmed: AtomicU64,
    /// A moment has passed, in which the holder ran handlers.
    tick: AtomicBool,
    /// Wakes the one that watches before that.
    event: EventDescriptor,
    /// The system's poller of the reactor.
    poller: Arc<Poller>,
}

/// What the workers share that stand by.
#[derive(Debug, Default)]
struct Standby {
    /// One of them watches the holder.
    watched: bool,
    /// It sleeps at descriptors.
    at_alarm: bool,
}

impl Leadership {
    pub(in crate::server) fn new(event: EventDescriptor, alarm: Alarm, poller: Arc<Poller>) -> Self {
        Self {
            lead: Lead::default(),
            standby: Mutex::default(),
            changed: Condvar::new(),
            watcher_sleeps: AtomicBool::new(false),
            alarm,
            alarmed: AtomicU64::new(0),
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
            self.wake_watcher_later();
        }
    }

    /// The next handlers need not do so: the watcher has woken by then, and sees them.
    #[cold]
    fn wake_watcher_later(&self) {
        // Relaxed, both: a watcher that sees an old word compares it with the lead in vain, and looks once more.
        self.watcher_sleeps.store(false, Ordering::Relaxed);
        self.alarmed.store(self.lead.look(), Ordering::Relaxed);
        descriptors::set_alarm(&self.alarm, PATIENCE);
    }

    /// The thread that has the lead is going to sleep, and for long: there is nothing to be watched. Otherwise the watcher
    /// would wake after the handlers of a server that is called now and then, and find that they have returned.
    pub(in crate::server) fn rest(&self) {
        // Relaxed, all: only who has the lead sets the alarm and takes it back. A watcher that wakes at this moment finds
        // that nothing runs, and says by itself that it sleeps.
        if self.lead.is_held() && !self.watcher_sleeps.load(Ordering::Relaxed) {
            descriptors::take_back(&self.alarm);
            self.watcher_sleeps.store(true, Ordering::Relaxed);
        }
    }

    fn wake(&self, standby: &Standby) {
        self.changed.notify_all();
        if standby.at_alarm {
            descriptors::signal(&self.event);
        }
    }

    /// Sleeps until the lead is free, or everything is `over`. One of the sleepers watches the holder meanwhile.
    pub(in crate::server) fn stand_by(&self, over: impl Fn() -> bool) {
        let mut standby = self.standby.lock();
        let mut watching = false;
        while !over() && !self.lead.is_vacant() {
            if !watching && standby.watched {
                self.changed.wait(&mut standby);
                continue;
            }
            standby.watched = true;
            watching = true;
            if self.watch(&mut standby, &over) {
                break;
            }
        }
        if watching {
            standby.watched = false;
            self.watcher_sleeps.store(false, Ordering::Relaxed);
            self.changed.notify_all();
        }
    }

    /// Sleeps until a moment after the lead has moved. Takes it from a holder that has done the same since: whether it did.
    fn watch(&self, standby: &mut MutexGuard<'_, Standby>, over: &impl Fn() -> bool) -> bool {
        // Relaxed: `settle` orders it.
        self.watcher_sleeps.store(true, Ordering::Relaxed);
        let seen = self.lead.settle();
        if Lead::is_listening(seen) {
            return self.watch_loop(standby, seen, over);
        }
        let seen = if Lead::is_receiving(seen) {
            self.sleep(standby, None);
            // Relaxed: see `wake_watcher_later`.
            self.alarmed.load(Ordering::Relaxed)
        } else {
            // Whoever moved it did not know that somebody sleeps.
            self.changed.wait_for(standby, PATIENCE);
            seen
        };
        // Relaxed: see `take_tick`.
        self.tick.store(true, Ordering::Relaxed);
        !Lead::is_listening(seen) && self.lead.look() == seen && self.lead.steal(seen)
    }

    /// The event loop is to receive when something comes, and may sleep for long: sleeps beside it in the same poller. If
    /// something is there, and the loop has not come for it a moment later, takes the lead from it: whether it did.
    fn watch_loop(&self, standby: &mut MutexGuard<'_, Standby>, seen: u64, over: &impl Fn() -> bool) -> bool {
        self.sleep(standby, Some(&self.poller));
        if self.lead.look() != seen || over() {
            return false;
        }
        self.changed.wait_for(standby, PATIENCE);
        // A loop that has come and gone again meanwhile has changed the word.
        self.lead.look() == seen && descriptors::is_readable(&self.poller) && self.lead.steal(seen)
    }

    /// Sleeps at the alarm, and in the poller if there is one.
    fn sleep(&self, standby: &mut MutexGuard<'_, Standby>, poller: Option<&Poller>) {
        standby.at_alarm = true;
        MutexGuard::unlocked(standby, || descriptors::sleep(poller, &self.alarm, &self.event));
        standby.at_alarm = false;
    }
}
