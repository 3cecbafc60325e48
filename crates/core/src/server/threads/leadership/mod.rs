//! Which thread receives: the thread that holds the lead. The other workers stand by: they sleep until the lead is
//! free. One of them, the watcher, takes the lead away from a holder that is busy for too long.

pub(in crate::server) mod lead;

use std::sync::Arc;
use std::time::Duration;

use nearcall_platform::cpu::ThreadClock;
use nearcall_platform::descriptors::{self, Alarm, EventDescriptor, Poller};
use nearcall_platform::lock::{Condvar, Mutex, MutexGuard};

use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use lead::Lead;

/// How long a handler may run, or an event loop be at other work, before another worker receives in its stead.
const PATIENCE: Duration = Duration::from_millis(1);
/// The same for a handler that sleeps, where handlers do. Beside one that computes others could seldom run, and would
/// only get in its way.
pub(in crate::server) const GLANCE: Duration = Duration::from_micros(250);

/// The lead, and the workers that wait for it.
#[derive(Debug)]
pub(in crate::server) struct Leadership {
    lead: Lead,
    standby: Mutex<Standby>,
    /// The lead is free.
    changed: Condvar,
    /// The watcher sleeps, and the alarm is not set: the thread that moves the lead sets it. To wake the watcher at
    /// once would cost more than a handler that returns in a microsecond.
    watcher_sleeps: AtomicBool,
    alarm: Alarm,
    /// The lead as it was when the alarm was set.
    alarmed: AtomicU64,
    /// The processor time that the holder had used then, in nanoseconds.
    alarmed_used: AtomicU64,
    /// The clock of the holder's processor time.
    holder: AtomicU32,
    /// The holder has a handler to run, and waits for the interpreter.
    starting: AtomicBool,
    /// When the watcher last looked, a handler slept: it looks after a `GLANCE`, and not only after its `PATIENCE`.
    sleepy: AtomicBool,
    /// The watcher has woken, some time after the holder began to run handlers.
    tick: AtomicBool,
    /// Wakes the watcher before the alarm rings.
    event: EventDescriptor,
    /// The system's poller of the reactor.
    poller: Arc<Poller>,
}

/// What the workers that stand by share.
#[derive(Debug, Default)]
struct Standby {
    /// One of the workers is the watcher.
    watched: bool,
    /// The watcher sleeps on the alarm and the event descriptor, not on `changed`.
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
            alarmed_used: AtomicU64::new(0),
            holder: AtomicU32::new(0),
            starting: AtomicBool::new(false),
            sleepy: AtomicBool::new(false),
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

    /// Whether the watcher has woken since the last call of this, or a handler asked for this: handlers have then run
    /// for some time.
    #[inline]
    pub(in crate::server) fn take_tick(&self) -> bool {
        // Relaxed: the flag decides only when the reactor next asks the poller.
        self.tick.load(Ordering::Relaxed) && self.tick.swap(false, Ordering::Relaxed)
    }

    /// The reactor is to ask the poller before the next request: this one took longer than most.
    #[inline]
    pub(in crate::server) fn set_tick(&self) {
        // Relaxed: see `take_tick`.
        self.tick.store(true, Ordering::Relaxed);
    }

    /// Takes the lead if nobody has it.
    pub(in crate::server) fn try_take(&self) -> bool {
        self.holds(self.lead.try_take())
    }

    /// Takes the lead for the event loop, or for a caller that waits for a reply, if a worker has offered it.
    pub(in crate::server) fn take_offered(&self) -> bool {
        self.holds(self.lead.take_offered())
    }

    /// Notes whose processor time the watcher is to read.
    fn holds(&self, taken: bool) -> bool {
        if taken {
            // Relaxed: a watcher that reads another thread's clock once takes the lead too early, or later.
            self.holder.store(ThreadClock::mine().to_bits(), Ordering::Relaxed);
        }
        taken
    }

    /// The calling thread has received a request whose handler needs the interpreter: it waits for that before
    /// [`Leadership::begun`]. Such a wait is no sleep: who took the lead would wait as well.
    #[inline]
    pub(in crate::server) fn starting(&self) {
        // Relaxed, as in `begun`: a watcher that sees an old value takes the lead too early, or later.
        self.starting.store(true, Ordering::Relaxed);
    }

    /// See [`Leadership::starting`].
    #[inline]
    pub(in crate::server) fn begun(&self) {
        self.starting.store(false, Ordering::Relaxed);
    }

    /// For how long the watcher sleeps when a handler has begun.
    pub(in crate::server) fn patience(&self) -> Duration {
        // Relaxed: decides only how soon the watcher looks.
        if self.sleepy.load(Ordering::Relaxed) { GLANCE } else { PATIENCE }
    }

    /// Whether the holder, in the state `seen`, has slept for most of `time`, before which it had used so much
    /// processor time.
    fn has_slept(&self, seen: u64, used: u64, time: Duration) -> bool {
        // Relaxed: see `starting`.
        Lead::is_busy(seen)
            && !self.starting.load(Ordering::Relaxed)
            && u128::from(self.used().saturating_sub(used)) < time.as_nanos() / 2
    }

    /// The processor time that the holder has used, in nanoseconds.
    fn used(&self) -> u64 {
        // Relaxed: see `holds`.
        let used = ThreadClock::from_bits(self.holder.load(Ordering::Relaxed)).time().unwrap_or_default();
        u64::try_from(used.as_nanos()).unwrap_or(u64::MAX)
    }

    /// The thread that holds the lead begins to run a handler. If the handler takes long, the watcher takes the lead.
    #[inline]
    pub(in crate::server) fn busy(&self) {
        self.let_watch(self.lead.busy());
    }

    /// The handler has returned. Whether this thread still holds the lead.
    #[inline]
    pub(in crate::server) fn back(&self) -> bool {
        self.lead.back()
    }

    /// The worker that holds the lead leaves it to the event loop, or to a caller that has just got its reply.
    pub(in crate::server) fn offer(&self) {
        self.let_watch(self.lead.offer());
    }

    /// The event loop keeps the lead while it does other work or sleeps. If it does not come back in time, the watcher
    /// takes the lead.
    pub(in crate::server) fn listen(&self) {
        self.let_watch(self.lead.listen());
    }

    /// Frees the lead for another worker: the calling thread is about to wait for something else.
    pub(in crate::server) fn release(&self) {
        if self.lead.give_up() {
            self.announce();
        }
    }

    /// Wakes all workers that stand by.
    pub(in crate::server) fn announce(&self) {
        let standby = self.standby.lock();
        self.wake(&standby);
    }

    #[inline]
    fn let_watch(&self, moved: bool) {
        // Relaxed: `Lead::settle` orders this load after the lead's move.
        if moved && self.watcher_sleeps.load(Ordering::Relaxed) {
            self.wake_watcher_later();
        }
    }

    /// Sets the alarm. The handlers that begin before it rings need not set it again: the watcher sees them when it
    /// wakes.
    #[cold]
    fn wake_watcher_later(&self) {
        // Relaxed, all: an old word is not equal to the lead's any more, so that the watcher only looks once more.
        self.watcher_sleeps.store(false, Ordering::Relaxed);
        self.alarmed_used.store(self.used(), Ordering::Relaxed);
        self.alarmed.store(self.lead.look(), Ordering::Relaxed);
        descriptors::set_alarm(&self.alarm, self.patience());
    }

    /// Stops the alarm, if the calling thread holds the lead: it is about to sleep for long, so there is no handler to
    /// watch. Otherwise, on a server that is called now and then, the watcher would wake after each handler has
    /// returned.
    pub(in crate::server) fn rest(&self) {
        // Relaxed, all: only a thread that holds the lead, or has just offered it, sets or stops the alarm. A watcher
        // that wakes at this moment finds that no handler runs, and sets `watcher_sleeps` itself.
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

    /// Sleeps until the lead is free, or `over` returns true. One of the sleepers is the watcher.
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

    /// Sleeps until some time after the lead has moved. If the holder still runs the same handler then, frees the lead,
    /// at once or later. Whether it did.
    fn watch(&self, standby: &mut MutexGuard<'_, Standby>, over: &impl Fn() -> bool) -> bool {
        // Relaxed: `settle` orders this store before its look at the lead.
        self.watcher_sleeps.store(true, Ordering::Relaxed);
        let seen = self.lead.settle();
        if Lead::is_listening(seen) {
            return self.watch_loop(standby, seen, over);
        }
        let patience = self.patience();
        let (seen, used) = if Lead::is_receiving(seen) {
            self.sleep(standby, None);
            // Relaxed, both: see `wake_watcher_later`.
            (self.alarmed.load(Ordering::Relaxed), self.alarmed_used.load(Ordering::Relaxed))
        } else {
            // The thread that moved the lead may not have seen `watcher_sleeps`: perhaps no alarm is set.
            let used = self.used();
            self.changed.wait_for(standby, patience);
            (seen, used)
        };
        // Relaxed: see `take_tick`.
        self.tick.store(true, Ordering::Relaxed);
        let sleepy = self.has_slept(self.lead.look(), used, patience);
        // Relaxed: see `patience`.
        self.sleepy.store(sleepy, Ordering::Relaxed);
        !Lead::is_listening(seen) && self.free(standby, seen, if sleepy { PATIENCE } else { patience })
    }

    /// Frees the lead if its holder still runs the handler of `seen`, and has done so for its `PATIENCE` or then sleeps.
    /// Whether it did. The handler has run for `time`.
    fn free(&self, standby: &mut MutexGuard<'_, Standby>, seen: u64, mut time: Duration) -> bool {
        while time < PATIENCE && self.lead.look() == seen {
            let used = self.used();
            self.changed.wait_for(standby, GLANCE);
            time = if self.has_slept(seen, used, GLANCE) { PATIENCE } else { time + GLANCE };
        }
        self.lead.look() == seen && self.lead.steal(seen)
    }

    /// The event loop holds the lead, and may sleep for long: the watcher sleeps in the same poller. If the poller has
    /// an event and the loop has not come for it `PATIENCE` later, frees the lead. Whether it did.
    fn watch_loop(&self, standby: &mut MutexGuard<'_, Standby>, seen: u64, over: &impl Fn() -> bool) -> bool {
        self.sleep(standby, Some(&self.poller));
        if self.lead.look() != seen || over() {
            return false;
        }
        self.changed.wait_for(standby, PATIENCE);
        // A loop that has received meanwhile, and sleeps again, has changed the word.
        self.lead.look() == seen && descriptors::is_readable(&self.poller) && self.lead.steal(seen)
    }

    /// Sleeps until the alarm rings, the watcher is woken, or `poller`, if there is one, has an event.
    fn sleep(&self, standby: &mut MutexGuard<'_, Standby>, poller: Option<&Poller>) {
        standby.at_alarm = true;
        MutexGuard::unlocked(standby, || descriptors::sleep(poller, &self.alarm, &self.event));
        standby.at_alarm = false;
    }
}
