//! Calls that end early: nobody waits for the result any more while the handler still runs, because the caller has
//! given the call up or is gone, or because the deadline has passed. A handler can leave an errand, to be run when that
//! happens.
//!
//! The thread that finds an early end is mostly the receiving thread, and an errand may take long. So the finder only
//! queues the errand, and wakes the one thread that runs errands: the caller of [`EarlyEnds::next`].

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nearcall_platform::lock::{Condvar, Mutex, OuterMutex};

/// What is to be done about a call that has ended early.
pub type Errand = Box<dyn Any + Send>;

/// The calls for which an errand was left, and the errands that are due.
#[derive(Debug, Default)]
pub struct EarlyEnds {
    state: Mutex<WatchedState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WatchedState {
    /// The last number that was given to a watched call.
    numbers: u64,
    /// The errands of calls whose handlers still run.
    watched: BTreeMap<Place, Errand>,
    /// The errands of calls that have ended early.
    errands: VecDeque<Errand>,
}

/// A watched call's place among the others: its deadline, or [`NEVER`] from when it was put there; and its number.
pub(in crate::server) type Place = (Instant, u64);

/// The errands left for one call: where each was left, and its place there.
#[derive(Debug, Default)]
pub(in crate::server) struct Watched(OuterMutex<Watchers>);

#[derive(Debug, Default)]
struct Watchers {
    all: Vec<(Weak<EarlyEnds>, Place)>,
    /// The handler has returned: no errand is run any more.
    over: bool,
}

/// Which of a connection's calls one is: the client's number of it, and its ordinal. Several calls may have one number: a
/// client that has given up a call may use its number again while the handler still runs.
pub(in crate::server) type WhichCall = (u32, u64);

/// The watched calls of one connection.
#[derive(Debug, Default)]
pub(in crate::server) struct WatchedCalls(Mutex<BTreeMap<WhichCall, Arc<Watched>>>);

impl EarlyEnds {
    /// Waits for the next call that ends early, and returns its errand. Returns `None` after `until`, once no call is
    /// watched. Only one thread may call this.
    pub fn next(&self, until: Instant) -> Option<Errand> {
        let mut state = self.state.lock();
        loop {
            if let Some(errand) = state.errands.pop_front() {
                return Some(errand);
            }
            let now = Instant::now();
            let wake = match state.watched.first_entry() {
                Some(first) if first.key().0 <= now => return Some(first.remove()),
                Some(first) => first.key().0,
                None if until <= now => return None,
                None => until,
            };
            self.changed.wait_for(&mut state, wake.saturating_duration_since(now));
        }
    }

    /// Whether no call is watched, and no errand waits.
    pub fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.watched.is_empty() && state.errands.is_empty()
    }

    /// Watches a call. At its deadline the call has ended early. Returns the call's place here.
    pub(in crate::server) fn put(&self, deadline: Option<Instant>, errand: Errand) -> Place {
        let deadline = deadline.unwrap_or_else(|| Instant::now() + NEVER);
        let mut state = self.state.lock();
        state.numbers += 1;
        let place = (deadline, state.numbers);
        state.watched.insert(place, errand);
        drop(state);
        self.changed.notify_all();
        place
    }

    /// A call has ended early.
    pub(in crate::server) fn note(&self, place: Place) {
        let mut state = self.state.lock();
        if let Some(errand) = state.watched.remove(&place) {
            state.errands.push_back(errand);
            drop(state);
            self.changed.notify_all();
        }
    }

    /// The handler of a watched call has returned in time: drops the errand.
    pub(in crate::server) fn forget(&self, place: Place) {
        let errand = self.state.lock().watched.remove(&place);
        // Outside the lock: the drop may run any code.
        drop(errand);
    }
}

/// The time left to a call that has no deadline. It overflows no sum, and nobody waits that long.
const NEVER: Duration = Duration::from_secs(1_000_000_000);

impl Watched {
    /// Adds an errand with this `place` in `ends`. `false` if the handler has returned.
    pub(in crate::server) fn add(
        self: &Arc<Self>,
        ends: &Arc<EarlyEnds>,
        place: Place,
        call: WhichCall,
        calls: &WatchedCalls,
    ) -> bool {
        let mut watchers = self.0.lock();
        if watchers.over {
            return false;
        }
        if watchers.all.is_empty() {
            // Within the lock: a thread that finds a watcher here must also find the call in `calls`.
            calls.0.lock().insert(call, Arc::clone(self));
        }
        watchers.all.push((Arc::downgrade(ends), place));
        true
    }

    /// Nobody waits for the call any more: its errands are due.
    fn tell(&self) {
        let all = self.0.lock().all.clone();
        for (ends, place) in all {
            if let Some(ends) = ends.upgrade() {
                ends.note(place);
            }
        }
    }

    /// The handler has returned. If `is_early` finds that nobody waits for the call, its errands are due; otherwise
    /// they are dropped.
    pub(in crate::server) fn dismiss(&self, call: WhichCall, calls: &WatchedCalls, is_early: impl FnOnce() -> bool) {
        let before = std::mem::replace(&mut *self.0.lock(), Watchers { all: Vec::new(), over: true });
        if before.all.is_empty() {
            return;
        }
        calls.0.lock().remove(&call);
        let is_early = is_early();
        for (ends, place) in before.all {
            match ends.upgrade() {
                Some(ends) if is_early => ends.note(place),
                Some(ends) => ends.forget(place),
                None => {}
            }
        }
    }
}

impl WatchedCalls {
    /// The client has given up the calls with this number that have arrived so far. Without a number: the client is
    /// gone, and all calls end.
    pub(in crate::server) fn tell(&self, call: Option<u32>) {
        let (first, last) = call.map_or((0, u32::MAX), |call| (call, call));
        let calls = self.0.lock();
        let ended: Vec<_> =
            calls.range((first, 0)..=(last, u64::MAX)).map(|(_, watched)| Arc::clone(watched)).collect();
        drop(calls);
        for watched in &ended {
            watched.tell();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errand(number: u8) -> Errand {
        Box::new(number)
    }

    fn number(errand: Option<Errand>) -> Option<u8> {
        errand.and_then(|errand| errand.downcast().ok()).map(|number| *number)
    }

    #[test]
    fn each_is_told_once_by_whatever_ends_it_first() {
        let ends = EarlyEnds::default();
        let now = Instant::now();
        let cancelled = ends.put(Some(now + NEVER), errand(1));
        let through = ends.put(Some(now), errand(2));
        let late = ends.put(Some(now), errand(3));
        ends.note(cancelled);
        ends.forget(through);
        assert_eq!(number(ends.next(now)), Some(1));
        assert_eq!(number(ends.next(now)), Some(3));
        ends.note(late);
        ends.note(cancelled);
        assert_eq!(number(ends.next(now)), None, "nothing is watched any more");
        assert!(ends.state.lock().watched.is_empty());
    }

    #[test]
    fn calls_of_one_number_are_told_apart_by_their_handlers() {
        let (ends, calls) = (Arc::new(EarlyEnds::default()), WatchedCalls::default());
        let (first, second) = (Arc::new(Watched::default()), Arc::new(Watched::default()));
        let now = Instant::now();
        let (one, other, third) = ((5, 0), (5, 1), (6, 2));
        for (watched, call, what) in
            [(&first, one, 1), (&first, one, 2), (&second, other, 3), (&Arc::default(), third, 4)]
        {
            assert!(watched.add(&ends, ends.put(Some(now + NEVER), errand(what)), call, &calls));
        }
        first.dismiss(one, &calls, || false);
        assert!(!first.add(&ends, (now, 0), one, &calls), "its handler is through");
        calls.tell(Some(5));
        assert_eq!(number(ends.next(now)), Some(3));
        second.dismiss(other, &calls, || false);
        calls.tell(None);
        assert_eq!(number(ends.next(now)), Some(4));
        assert_eq!(calls.0.lock().keys().collect::<Vec<_>>(), [&third]);
    }

    #[test]
    fn who_waits_is_woken() {
        let ends = EarlyEnds::default();
        let watched = ends.put(None, errand(7));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| number(ends.next(Instant::now())));
            ends.note(watched);
            assert_eq!(waiting.join().expect("it ends"), Some(7));
        });
    }
}
