//! Connections that keep items of streams back, to send them together with the next ones. An alarm limits how long the
//! items wait.

use std::time::Duration;

use nearcall_platform::descriptors::{self, Alarm};
use nearcall_platform::lock::Mutex;

/// About how long an item waits if no other follows. If others follow, a link also sends the items that it has kept for
/// this time.
const SOON: Duration = Duration::from_micros(100);
/// An item that comes at most so many nanoseconds after the last one of its stream is taken for one of many, which go
/// out together.
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

    /// Adds a connection. The connection marks itself, so that it is added once.
    #[cold]
    pub(in crate::server) fn add(&self, token: u64) {
        let mut tokens = self.tokens.lock();
        if tokens.is_empty() {
            descriptors::set_alarm(&self.alarm, SOON);
        }
        tokens.push(token);
    }

    /// The alarm has rung: takes all tokens. For the receiving thread.
    pub(in crate::server) fn take(&self) -> Vec<u64> {
        let mut tokens = self.tokens.lock();
        descriptors::clear(&self.alarm);
        std::mem::take(&mut tokens)
    }
}
