//! Which thread receives: the thread that holds the lead. The workers that neither receive nor run a handler are parked.
//! One of them is called when the lead is free. The first of them, the watcher, takes the lead from a holder that is busy
//! for too long.

pub(in crate::server) mod lead;
mod parked;

use std::sync::Arc;
use std::time::Duration;

use nearcall_platform::descriptors::{self, Alarm, EventDescriptor, Poller};
use nearcall_platform::lock::{Condvar, Mutex, MutexGuard};

use crate::sync::{AtomicU64, AtomicUsize, Ordering};
use lead::Lead;
use parked::{KEPT_WORKERS, Parked};

/// How long a handler may run, or an event loop be at other work, before another worker receives in its stead.
pub(in crate::server) const PATIENCE: Duration = Duration::from_millis(1);

/// So long a worker that nobody calls stays, if there are more than are kept. To start a thread takes the interpreter
/// several times, and the next slow handlers may need this one.
const STAY: Duration = Duration::from_secs(1);

/// The watcher sleeps, and the alarm is not set. No state of a lead that was ever taken is 0.
const ASLEEP: u64 = 0;

/// The lead, and the workers that may be needed to take it.
#[derive(Debug)]
pub(in crate::server) struct Leadership {
    /// Moved by itself where that concerns no worker that is parked, and not the watcher.
    pub(in crate::server) lead: Lead,
    parked: Mutex<Parked>,
    /// What [`Parked::ready`] says, for threads that are about to run a handler.
    ready: AtomicUsize,
    /// The lead as it was when the alarm was set, or [`ASLEEP`]: then the thread that moves the lead sets the alarm. To
    /// wake the watcher at once would cost more than a handler that returns in a microsecond.
    watched: AtomicU64,
    alarm: Alarm,
    /// Wakes the watcher before the alarm rings.
    event: EventDescriptor,
    /// The system's poller of the reactor.
    poller: Arc<Poller>,
}

impl Leadership {
    pub(in crate::server) fn new(event: EventDescriptor, alarm: Alarm, poller: Arc<Poller>) -> Self {
        Self {
            lead: Lead::default(),
            parked: Mutex::default(),
            ready: AtomicUsize::new(0),
            watched: AtomicU64::new(ASLEEP),
            alarm,
            event,
            poller,
        }
    }

    /// The calling thread waits for frames of a call whose handler the thread with that number runs, or this one. That one
    /// may wait for this one, so it does not keep the lead from it. Whether this thread holds the lead now.
    pub(in crate::server) fn lead_beside(&self, handler: u32) -> bool {
        self.lead.back() || self.lead.take_from(handler)
    }

    /// The thread that holds the lead begins to run a handler. If the handler takes long, the watcher takes the lead.
    /// What [`Lead::held`] says from here on, until the lead moves.
    #[inline]
    pub(in crate::server) fn busy(&self) -> Option<u64> {
        self.let_watch(self.lead.busy());
        self.lead.held()
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

    /// Frees the lead, and calls a worker that is parked: the calling thread is about to wait for something else.
    pub(in crate::server) fn release(&self) {
        if self.lead.give_up() {
            self.call(self.parked.lock());
        }
    }

    /// The same, if a worker is parked that can take the lead at once. Whether it did.
    pub(in crate::server) fn leave(&self) -> bool {
        let parked = self.parked.lock();
        let leaves = parked.len() > 0 && self.lead.give_up();
        if leaves {
            self.call(parked);
        }
        leaves
    }

    /// Calls the worker that was parked last.
    fn call(&self, mut parked: MutexGuard<'_, Parked>) {
        let Some(one) = parked.sleepers.pop() else { return };
        self.note_ready(&parked);
        let was_watcher = parked.len() == 0;
        drop(parked);
        one.notify_all();
        if was_watcher {
            descriptors::signal(&self.event);
        }
    }

    fn note_ready(&self, parked: &Parked) {
        // Relaxed: says only whether to start a thread. A wrong answer is corrected when this is asked again.
        self.ready.store(parked.ready(), Ordering::Relaxed);
    }

    /// How many workers are parked, or will soon be there.
    #[inline]
    pub(in crate::server) fn ready(&self) -> usize {
        // Relaxed: see `note_ready`.
        self.ready.load(Ordering::Relaxed)
    }

    /// Whether a worker that parks would lack another one beside it.
    pub(in crate::server) fn lacks_second(&self) -> bool {
        self.ready() + 1 < KEPT_WORKERS
    }

    /// A thread is to be started that will be a worker, if there are not more than `most`. Whether it may be.
    pub(in crate::server) fn begin_starting(&self, most: usize) -> bool {
        let mut parked = self.parked.lock();
        let may = parked.workers + parked.starting <= most;
        parked.starting += usize::from(may);
        self.note_ready(&parked);
        may
    }

    /// That thread could not be started.
    pub(in crate::server) fn cancel_starting(&self) {
        let mut parked = self.parked.lock();
        parked.starting = parked.starting.saturating_sub(1);
        self.note_ready(&parked);
    }

    /// The calling thread has become a worker, whether it was announced or not.
    pub(in crate::server) fn join(&self) {
        let mut parked = self.parked.lock();
        parked.workers += 1;
        parked.starting = parked.starting.saturating_sub(1);
        self.note_ready(&parked);
    }

    /// The calling thread is no worker any more.
    pub(in crate::server) fn resign(&self) {
        self.parked.lock().workers -= 1;
    }

    /// How many workers there are, and how many of them are parked.
    pub(in crate::server) fn workers(&self) -> (usize, usize) {
        let parked = self.parked.lock();
        (parked.workers, parked.len())
    }

    /// From here on somebody seems to be parked who does nothing when called.
    #[cfg(test)]
    pub(in crate::server) fn park_nobody(&self) {
        self.parked.lock().sleepers.push(Arc::default());
    }

    /// The server has stopped: all that are parked return, and whoever would park.
    pub(in crate::server) fn close(&self) {
        let mut parked = self.parked.lock();
        parked.is_closed = true;
        parked.sleepers.drain(..).for_each(|one| one.notify_all());
        self.note_ready(&parked);
        descriptors::signal(&self.event);
    }

    /// The calling worker sleeps until it may take the lead. The one that has slept longest watches the holder meanwhile.
    /// `false`: this worker is one too many, or the server has stopped.
    pub(in crate::server) fn park(&self) -> bool {
        let own = Arc::new(Condvar::new());
        let mut parked = self.parked.lock();
        // Whoever frees the lead after this look finds this worker in the list.
        if parked.is_closed || self.lead.is_vacant() {
            return !parked.is_closed;
        }
        parked.sleepers.push(Arc::clone(&own));
        self.note_ready(&parked);
        let mut is_called = true;
        while let Some(position) = parked.position(&own) {
            let leaves = match position {
                0 if !parked.is_watched => {
                    parked.is_watched = true;
                    let takes = self.watch(&mut parked, &own);
                    parked.is_watched = false;
                    takes
                }
                position if position < KEPT_WORKERS => {
                    own.wait(&mut parked);
                    false
                }
                _ => {
                    own.wait_for(&mut parked, STAY);
                    // Nobody has called it, and none that came before has gone.
                    is_called = parked.position(&own).is_none_or(|position| position < KEPT_WORKERS);
                    !is_called
                }
            };
            if leaves && let Some(position) = parked.position(&own) {
                parked.sleepers.remove(position);
                self.note_ready(&parked);
            }
        }
        if let Some(next) = parked.sleepers.first().filter(|_| !parked.is_watched) {
            // It is the watcher now.
            next.notify_all();
        }
        is_called && !parked.is_closed
    }

    /// Sleeps until some time after the lead has moved. If it has not moved since, takes it from its holder. Whether it
    /// did.
    fn watch(&self, parked: &mut MutexGuard<'_, Parked>, own: &Arc<Condvar>) -> bool {
        // Relaxed: `settle` orders this store before its look at the lead.
        self.watched.store(ASLEEP, Ordering::Relaxed);
        let seen = self.lead.settle();
        if Lead::is_listening(seen) {
            // The event loop may sleep for long. It is to come for what the poller has.
            self.sleep(parked, Some(&self.poller));
            if self.lead.look() != seen || parked.position(own).is_none() {
                return false;
            }
        }
        if !Lead::is_receiving(seen) {
            // The thread that moved the lead may not have seen `ASLEEP`.
            self.set_alarm(seen);
        }
        self.sleep(parked, None);
        // Relaxed: see `set_alarm`.
        let seen = self.watched.load(Ordering::Relaxed);
        // A loop that has received meanwhile, and sleeps again, has moved the lead.
        let is_idle = Lead::is_listening(seen) && !descriptors::is_readable(&self.poller);
        parked.position(own).is_some() && self.lead.look() == seen && !is_idle && self.lead.steal(seen)
    }

    /// Sleeps until the alarm rings, the watcher is woken, or `poller`, if there is one, has an event.
    fn sleep(&self, parked: &mut MutexGuard<'_, Parked>, poller: Option<&Poller>) {
        MutexGuard::unlocked(parked, || descriptors::sleep(poller, &self.alarm, &self.event));
    }

    #[inline]
    fn let_watch(&self, moved: bool) {
        // Relaxed: `Lead::settle` orders this load after the lead's move.
        if moved && self.watched.load(Ordering::Relaxed) == ASLEEP {
            self.set_alarm(self.lead.look());
        }
    }

    /// Sets the alarm for the lead as it is. The handlers that begin before it rings need not set it again: the watcher
    /// sees them when it wakes.
    #[cold]
    fn set_alarm(&self, seen: u64) {
        // Relaxed: an old word is not equal to the lead's any more, so that the watcher only looks once more.
        self.watched.store(seen, Ordering::Relaxed);
        descriptors::set_alarm(&self.alarm, PATIENCE);
    }

    /// Stops the alarm, if the calling thread holds the lead: it is about to sleep for long, so there is no handler to
    /// watch. Otherwise, on a server that is called now and then, the watcher would wake after each handler has
    /// returned.
    pub(in crate::server) fn rest(&self) {
        // Relaxed, both: a watcher that wakes at this moment finds that no handler runs, and sets `ASLEEP` itself.
        if self.lead.is_held() && self.watched.load(Ordering::Relaxed) != ASLEEP {
            descriptors::take_back(&self.alarm);
            self.watched.store(ASLEEP, Ordering::Relaxed);
        }
    }

    /// Whether the watcher has woken since this was last called with `before`: handlers have then run for some time.
    #[inline]
    pub(in crate::server) fn has_watched(&self, before: &mut u64) -> bool {
        // Relaxed: decides only when the reactor next asks the poller.
        let now = self.watched.load(Ordering::Relaxed);
        let before = std::mem::replace(before, now);
        before != ASLEEP && before != now
    }
}
