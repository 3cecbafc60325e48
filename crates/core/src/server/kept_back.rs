//! Items that were kept back, to go out with those that follow: an alarm sees to it that they do not wait for long.

use std::time::Duration;

use nearcall_platform::descriptors::{self, Alarm};
use nearcall_platform::lock::Mutex;

/// How long an item waits at most, about, if nothing follows. A link sends what it has kept so long, too, with what follows.
const SOON: Duration = Duration::from_micros(100);
/// An item that comes so soon after the last one of its stream, nanoseconds, is taken for one of many: they go out together.
pub(in crate::server) const QUICK_NS: u64 = 20_000;

/// The connections that have kept items back, by their tokens.
#[derive(Debug)]
pub(in crate::server) struct KeptBack {
    alarm: Alarm,
    tokens: Mutex<Vec<u64>>,
}

impl KeptBack {
    pub(in crate::server) fn new(alarm: Alarm) -> Self {
        Self { alarm, tokens: Mutex::new(Vec::new()) }
    }

    /// Becomes readable when [`take`](Self::take) is to be called.
    pub(in crate::server) fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    /// One of them, which marks itself: it is there once.
    #[cold]
    pub(in crate::server) fn add(&self, token: u64) {
        let mut tokens = self.tokens.lock();
        if tokens.is_empty() {
            descriptors::set_alarm(&self.alarm, SOON);
        }
        tokens.push(token);
    }

    /// The alarm has rung: all of them. For whoever receives.
    pub(in crate::server) fn take(&self) -> Vec<u64> {
        let mut tokens = self.tokens.lock();
        descriptors::clear(&self.alarm);
        std::mem::take(&mut tokens)
    }
}
