//! Notices that the event loop of the coroutine handlers does not turn: something holds its thread up, and every coroutine
//! waits for that. A thread of its own watches. The loop pays nothing while it turns but a look at a flag for each call; now
//! and then it is asked for a turn. While no call is under way in the loop, nothing happens at all.

use std::time::Duration;

use nearcall_platform::lock::{Condvar, Mutex, MutexGuard};

use crate::sync::{AtomicBool, AtomicU64, Instant, Ordering};

/// The watch over one event loop.
#[derive(Debug, Default)]
pub struct LoopWatch {
    /// How often the loop has come for its news.
    turns: AtomicU64,
    /// The watching thread sleeps until the loop, or a worker that has something for it, tells of a call.
    asleep: AtomicBool,
    state: Mutex<WatchState>,
    /// There is a call, or the watch is over.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WatchState {
    over: bool,
    /// Since when the loop is known not to turn, and how often it had turned by then.
    held: Option<(Instant, u64)>,
}

/// What the watching thread asks of the loop.
pub trait Watchable {
    /// Whether calls are under way in the loop, or wait for it.
    fn is_busy(&self) -> bool;
    /// Makes the loop turn once, and call [`LoopWatch::note_turn`], as soon as it can.
    fn wake(&self);
}

impl LoopWatch {
    /// The loop begins a call, or gets one.
    #[inline]
    pub fn note_call(&self) {
        // Relaxed: see `sleep`.
        if self.asleep.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // Under the lock: the watching thread may be about to sleep.
        let _state = self.state.lock();
        self.asleep.store(false, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// The loop has come for its news.
    pub fn note_turn(&self) {
        // Relaxed, as all below: a count that says only that there was a turn.
        self.turns.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the watch: [`LoopWatch::watch`] returns.
    pub fn end(&self) {
        self.state.lock().over = true;
        self.changed.notify_all();
    }

    /// For how long the loop has not turned, if it is known to be held up and has not turned since.
    #[must_use]
    pub fn held(&self) -> Option<Duration> {
        let state = self.state.lock();
        state.held.filter(|(_, seen)| self.turns() == *seen).map(|(since, _)| since.elapsed())
    }

    /// Watches the loop until it has not turned for `limit`, and returns since when it has not; `None` if the watch is over
    /// before. It is noticed between one and two times `limit` after the last turn.
    pub fn watch(&self, limit: Duration, of: &dyn Watchable) -> Option<Instant> {
        let mut state = self.state.lock();
        while !state.over {
            self.sleep(&mut state, of);
            self.pause(&mut state, limit / 2);
            if !MutexGuard::unlocked(&mut state, || of.is_busy()) {
                continue;
            }
            let (seen, asked) = (self.turns(), Instant::now());
            MutexGuard::unlocked(&mut state, || of.wake());
            // In two parts: if the process itself was stopped meanwhile, both of its threads were, and one part is over when
            // it goes on, but not the other.
            for _ in 0..2 {
                self.pause(&mut state, limit / 2);
            }
            if self.turns() == seen && !state.over {
                state.held = Some((asked, seen));
                return Some(asked);
            }
        }
        None
    }

    /// After [`LoopWatch::watch`] has returned: waits until the loop has turned, looking each `look`, and returns for
    /// how long it had not. `None` if the watch is over before.
    pub fn until_turned(&self, look: Duration) -> Option<Duration> {
        let mut state = self.state.lock();
        let (since, seen) = state.held?;
        while self.turns() == seen && !state.over {
            self.pause(&mut state, look);
        }
        state.held = None;
        if state.over { None } else { Some(since.elapsed()) }
    }

    fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// Sleeps while no call is under way.
    fn sleep(&self, state: &mut MutexGuard<'_, WatchState>, of: &dyn Watchable) {
        // Relaxed: a call that begins at this very moment may not see the flag, nor be seen here. Then the next one wakes
        // this thread: if the first holds the loop up, a worker gets the next one, and tells of it.
        self.asleep.store(true, Ordering::Relaxed);
        if MutexGuard::unlocked(state, || of.is_busy()) {
            self.asleep.store(false, Ordering::Relaxed);
        }
        while self.asleep.load(Ordering::Relaxed) && !state.over {
            self.changed.wait(state);
        }
    }

    /// Waits for so long, or until the watch is over.
    fn pause(&self, state: &mut MutexGuard<'_, WatchState>, time: Duration) {
        let end = Instant::now() + time;
        while !state.over {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            self.changed.wait_for(state, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sync::thread;

    const LIMIT: Duration = Duration::from_millis(20);

    struct Loop {
        watch: Arc<LoopWatch>,
        turns: bool,
        asked: Arc<AtomicU64>,
    }

    impl Watchable for Loop {
        fn is_busy(&self) -> bool {
            true
        }

        fn wake(&self) {
            if self.turns {
                self.watch.note_turn();
            }
            self.asked.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_loop_that_turns_is_asked_again_and_one_that_does_not_is_held_up() {
        for turns in [true, false] {
            let (watch, asked) = (Arc::new(LoopWatch::default()), Arc::new(AtomicU64::new(0)));
            let watched = Loop { watch: Arc::clone(&watch), turns, asked: Arc::clone(&asked) };
            let watching = thread::spawn(move || {
                let held = watched.watch.watch(LIMIT, &watched);
                (held.is_some(), watched.watch.until_turned(LIMIT))
            });
            if turns {
                while asked.load(Ordering::Relaxed) < 2 {
                    thread::yield_now();
                }
                assert_eq!(watch.held(), None);
                watch.end();
                assert_eq!(watching.join().expect("no panic"), (false, None));
            } else {
                while watch.held().is_none() {
                    thread::yield_now();
                }
                watch.note_turn();
                let (held, turned) = watching.join().expect("no panic");
                assert!(held && turned.is_some_and(|time| time >= LIMIT));
                assert_eq!(watch.held(), None);
            }
        }
    }
}
