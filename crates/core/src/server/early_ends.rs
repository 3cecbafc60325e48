//! Who wants to know that nobody waits for a call any more, although its handler is not through: the caller has given it
//! up or is gone, or its deadline has passed.
//!
//! Whoever finds that out only notes it, and wakes the one thread that tells: it receives for everybody, and what is told may
//! take long.

use std::any::Any;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nearcall_platform::lock::{Condvar, Mutex};

/// What is to be done about a call that has ended early.
pub type Errand = Box<dyn Any + Send>;

/// Calls that somebody watches.
#[derive(Debug, Default)]
pub struct EarlyEnds {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// How many were watched so far.
    numbers: u64,
    /// Those whose handlers are not through, and when they end by themselves.
    watched: HashMap<u64, (Option<Instant>, Errand)>,
    deadlines: BTreeSet<(Instant, u64)>,
    /// Of those that have ended early.
    errands: VecDeque<Errand>,
}

impl State {
    /// It is watched no longer. What was to be done, if it was.
    fn forget(&mut self, number: u64) -> Option<Errand> {
        let (deadline, errand) = self.watched.remove(&number)?;
        if let Some(deadline) = deadline {
            self.deadlines.remove(&(deadline, number));
        }
        Some(errand)
    }
}

/// Who watches one call.
#[derive(Debug, Default)]
pub(super) struct Watched(Mutex<Watchers>);

#[derive(Debug)]
enum Watchers {
    /// Its handler is not through.
    Open(Vec<(Weak<EarlyEnds>, u64)>),
    /// It is, and nobody is told any more.
    Over,
}

/// The calls of one connection that somebody watches, by number.
#[derive(Debug, Default)]
pub(super) struct WatchedCalls(Mutex<Vec<(u32, Arc<Watched>)>>);

impl Default for Watchers {
    fn default() -> Self {
        Self::Open(Vec::new())
    }
}

impl EarlyEnds {
    /// What is to be done for the next call that has ended early; waits for that, or until `until` if none is watched then.
    /// For one thread.
    pub fn next(&self, until: Instant) -> Option<Errand> {
        let mut state = self.state.lock();
        loop {
            if let Some(errand) = state.errands.pop_front() {
                return Some(errand);
            }
            let now = Instant::now();
            let first = state.deadlines.first().copied();
            if let Some((deadline, number)) = first
                && deadline <= now
            {
                let errand = state.forget(number);
                state.errands.extend(errand);
                continue;
            }
            let wake = match first {
                Some((deadline, _)) => deadline,
                None if !state.watched.is_empty() => now + LONG,
                None if until <= now => return None,
                None => until,
            };
            self.changed.wait_for(&mut state, wake.saturating_duration_since(now));
        }
    }

    /// Whether no call is watched, and nothing is to be done.
    pub fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.watched.is_empty() && state.errands.is_empty()
    }

    /// Watches a call, which ends by itself at its deadline; its number here.
    pub(super) fn put(&self, deadline: Option<Instant>, errand: Errand) -> u64 {
        let mut state = self.state.lock();
        state.numbers += 1;
        let number = state.numbers;
        state.watched.insert(number, (deadline, errand));
        state.deadlines.extend(deadline.map(|deadline| (deadline, number)));
        drop(state);
        self.changed.notify_all();
        number
    }

    /// A call has ended early.
    pub(super) fn note(&self, number: u64) {
        let mut state = self.state.lock();
        if let Some(errand) = state.forget(number) {
            state.errands.push_back(errand);
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Its handler is through.
    pub(super) fn forget(&self, number: u64) {
        let errand = self.state.lock().forget(number);
        // Outside the lock: it is not known what happens then.
        drop(errand);
    }
}

/// How long a thread sleeps in one go.
const LONG: Duration = Duration::from_secs(3600);

impl Watched {
    /// `call` is its number among those of its connection. `false` if the handler is through.
    pub(super) fn add(self: &Arc<Self>, ends: &Arc<EarlyEnds>, number: u64, call: u32, calls: &WatchedCalls) -> bool {
        {
            let mut watchers = self.0.lock();
            let Watchers::Open(all) = &mut *watchers else { return false };
            all.push((Arc::downgrade(ends), number));
            if all.len() > 1 {
                return true;
            }
        }
        calls.0.lock().push((call, Arc::clone(self)));
        true
    }

    /// Nobody waits for the call any more.
    fn tell(&self) {
        let all = match &*self.0.lock() {
            Watchers::Open(all) => all.clone(),
            Watchers::Over => return,
        };
        for (ends, number) in all {
            if let Some(ends) = ends.upgrade() {
                ends.note(number);
            }
        }
    }

    /// The handler is through. If nobody waits for the call, which `is_early` finds out, that is told.
    pub(super) fn dismiss(&self, calls: &WatchedCalls, is_early: impl FnOnce() -> bool) {
        let before = std::mem::replace(&mut *self.0.lock(), Watchers::Over);
        let Watchers::Open(all) = before else { return };
        if all.is_empty() {
            return;
        }
        calls.0.lock().retain(|(_, watched)| !std::ptr::eq(&raw const **watched, self));
        let is_early = is_early();
        for (ends, number) in all {
            match ends.upgrade() {
                Some(ends) if is_early => ends.note(number),
                Some(ends) => ends.forget(number),
                None => {}
            }
        }
    }
}

impl WatchedCalls {
    /// The client has given up the call of that number, of those that have come so far, or, without one, is gone.
    pub(super) fn tell(&self, call: Option<u32>) {
        let watched = self.0.lock().clone();
        for (number, watched) in watched {
            if call.is_none_or(|call| call == number) {
                watched.tell();
            }
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
        let cancelled = ends.put(Some(now + LONG), errand(1));
        let through = ends.put(Some(now), errand(2));
        let late = ends.put(Some(now), errand(3));
        ends.note(cancelled);
        ends.forget(through);
        assert_eq!(number(ends.next(now)), Some(1));
        assert_eq!(number(ends.next(now)), Some(3));
        ends.note(late);
        ends.note(cancelled);
        assert_eq!(number(ends.next(now)), None, "nothing is watched any more");
        assert!(ends.state.lock().deadlines.is_empty());
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
