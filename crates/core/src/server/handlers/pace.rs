//! Which methods are slow. One handler of many is timed.
//!
//! A worker that is to run a slow handler leaves the lead to another one first. That costs a wake-up, so it is not done for
//! handlers that compute for less than the watcher's patience: another thread would only wait for the interpreter.

use std::time::Duration;

use crate::server::threads::leadership::PATIENCE;
use crate::sync::{AtomicU8, Ordering};

/// A worker times one of so many handlers of quick methods, and all others.
pub(in crate::server) const RUNS_PER_TIMED: u32 = 64;
/// A handler that sleeps for so long is slow: the next requests can be received meanwhile.
const LONG_SLEEP: Duration = Duration::from_micros(250);
/// Numbers of methods are told apart up to here at least. Objects of a client's own have numbers of their server's.
const MIN_METHODS: usize = 64;

/// What is known of the handlers of a method. Each that is timed moves this by one step, as one alone may have been slow by
/// chance: it may have waited for the interpreter, or for the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::server) enum Pace {
    Unknown,
    Quick,
    InDoubt,
    Slow,
}

impl Pace {
    fn after(self, was_slow: bool) -> Self {
        match self {
            Self::InDoubt | Self::Slow if was_slow => Self::Slow,
            _ if was_slow => Self::InDoubt,
            Self::Slow => Self::InDoubt,
            _ => Self::Quick,
        }
    }
}

/// The paces of methods by their numbers. Methods with the same remainder share one: it is only a hint.
#[derive(Debug)]
pub(in crate::server) struct Paces(Box<[AtomicU8]>);

impl Paces {
    pub(super) fn new(methods: usize) -> Self {
        Self((0..methods.max(MIN_METHODS)).map(|_| AtomicU8::new(Pace::Unknown as u8)).collect())
    }

    #[inline]
    fn entry(&self, method: u16) -> &AtomicU8 {
        &self.0[usize::from(method) % self.0.len()]
    }

    #[inline]
    pub(in crate::server) fn of(&self, method: u16) -> Pace {
        // Relaxed, and below: a hint.
        match self.entry(method).load(Ordering::Relaxed) {
            0 => Pace::Unknown,
            1 => Pace::Quick,
            2 => Pace::InDoubt,
            _ => Pace::Slow,
        }
    }

    /// A handler of the method was slow, or not.
    pub(in crate::server) fn note(&self, method: u16, was_slow: bool) {
        let (before, entry) = (self.of(method), self.entry(method));
        let after = before.after(was_slow);
        if after != before {
            entry.store(after as u8, Ordering::Relaxed);
        }
    }
}

/// Whether a handler was slow that took so long, and used so much processor time.
pub(in crate::server) fn is_slow(took: Duration, used: Duration) -> bool {
    took >= PATIENCE || took.saturating_sub(used) >= LONG_SLEEP
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_slow_after_two_slow_handlers_and_quick_after_two_quick_ones() {
        let paces = Paces::new(2);
        let mut after = |was_slow| {
            paces.note(1, was_slow);
            paces.of(1)
        };
        assert_eq!([false, true, false].map(&mut after), [Pace::Quick, Pace::InDoubt, Pace::Quick]);
        assert_eq!([true, true, true].map(&mut after), [Pace::InDoubt, Pace::Slow, Pace::Slow]);
        assert_eq!([false, false, false].map(&mut after), [Pace::InDoubt, Pace::Quick, Pace::Quick]);
        assert_eq!((paces.of(0), paces.of(1 + MIN_METHODS as u16)), (Pace::Unknown, Pace::Quick));
    }

    #[test]
    fn who_sleeps_is_slow_sooner_than_who_computes() {
        let us = Duration::from_micros;
        assert!(is_slow(us(300), us(20)) && is_slow(us(1100), us(1100)));
        assert!(!is_slow(us(600), us(500)) && !is_slow(us(100), us(0)));
    }
}
