//! Which of several servers is called next.

use std::fmt::Debug;
use std::sync::Arc;

use crate::client::Connection;
use crate::sync::{AtomicUsize, Ordering};

/// Chooses the server of each call, among those that are connected.
pub trait Picker: Debug + Send + Sync {
    /// The index in `ready` of the connection for a call. There is at least one. A connection may be lost by the time that
    /// the call is sent.
    fn pick(&self, call: &Picked<'_>, ready: &[&Arc<Connection>]) -> usize;
}

/// What is known of a call that has no connection yet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Picked<'a> {
    /// The connections that other copies of the call have gone to. They are not among those that are ready as long as there is
    /// another one.
    pub asked: &'a [Arc<Connection>],
}

/// The name that users choose a picker by, and what makes one for a channel.
type Entry = (&'static str, fn() -> Box<dyn Picker>);

/// All pickers.
const PICKERS: &[Entry] =
    &[("round_robin", || Box::<RoundRobin>::default()), ("least_calls", || Box::<LeastCalls>::default())];

/// A new picker of that name, if there is one.
#[must_use]
pub fn picker_named(name: &str) -> Option<Box<dyn Picker>> {
    PICKERS.iter().find(|(known, _)| *known == name).map(|(_, make)| make())
}

/// One server after the other.
#[derive(Debug, Default)]
struct RoundRobin(AtomicUsize);

impl Picker for RoundRobin {
    fn pick(&self, _call: &Picked<'_>, ready: &[&Arc<Connection>]) -> usize {
        // Relaxed: the count only chooses the next server.
        self.0.fetch_add(1, Ordering::Relaxed) % ready.len()
    }
}

/// The server with the fewest calls of this client under way; of several, the next in turn.
#[derive(Debug, Default)]
struct LeastCalls(RoundRobin);

impl Picker for LeastCalls {
    fn pick(&self, call: &Picked<'_>, ready: &[&Arc<Connection>]) -> usize {
        let first = self.0.pick(call, ready);
        let in_turn = (first..ready.len()).chain(0..first);
        in_turn.min_by_key(|&index| ready[index].in_flight()).unwrap_or(first)
    }
}
