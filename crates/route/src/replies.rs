//! Endpoints that are there for replies only. Any sender says where replies to its messages go, so these are few, keep little,
//! and end by themselves: when nobody is there, when the receiver hangs up, and after a pause.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nearcall_core::lock::Mutex;

use crate::brief::{Brief, Home, Room};
use crate::endpoint::Endpoint;
use crate::left::Left;
use crate::sync::AtomicUsize;

/// The most of them.
const MAX_RECEIVERS: usize = 256;
/// The most that have no connection. A sender that takes replies is there, so that is a matter of moments.
const MOST_UNCONNECTED: usize = 16;
/// The most whose threads have not ended. Those that are closed may still send for a moment, or resolve a name.
const MOST_ALIVE: usize = MAX_RECEIVERS + 64;
/// How long an endpoint that makes room for another one may still send what waits.
const LEFT_TIME: Duration = Duration::from_millis(500);
/// What waits in all of them together is at most so many times what may wait in one.
const QUEUES: usize = 16;

/// All of them that a node has.
#[derive(Debug)]
pub(crate) struct Replies {
    used: Mutex<Used>,
    room: Room,
    left: Arc<Left>,
}

#[derive(Debug, Default)]
struct Used {
    /// By the address; with the number of the last use.
    endpoints: HashMap<String, (Arc<Endpoint>, u64)>,
    uses: u64,
}

impl Replies {
    /// None yet; `queue` is how many bytes may wait for one endpoint. Those that leave are entered in `left`.
    pub(crate) fn new(queue: usize, left: Arc<Left>) -> Arc<Self> {
        Arc::new(Self {
            used: Mutex::default(),
            room: Room {
                alive: AtomicUsize::new(0),
                bytes: AtomicUsize::new(0),
                most_bytes: queue.saturating_mul(QUEUES),
            },
            left,
        })
    }

    /// The endpoint of that address, if there is one.
    pub(crate) fn get(&self, address: &str) -> Option<Arc<Endpoint>> {
        let mut used = self.used.lock();
        used.uses += 1;
        let now = used.uses;
        let (endpoint, last) = used.endpoints.get_mut(address)?;
        *last = now;
        Some(Arc::clone(endpoint))
    }

    /// What makes an endpoint one of these. `None` if there are too many.
    pub(crate) fn begin(self: &Arc<Self>) -> Option<Brief> {
        let home: Weak<Self> = Arc::downgrade(self);
        Brief::begin(home, MOST_ALIVE)
    }

    /// Enters a new endpoint. Returns it, or another one of that address that another thread has entered meanwhile. Those
    /// that have not been used for the longest time make room.
    pub(crate) fn enter(&self, made: Arc<Endpoint>) -> Arc<Endpoint> {
        let mut used = self.used.lock();
        if let Some((found, _)) = used.endpoints.get(made.name()) {
            let found = Arc::clone(found);
            drop(used);
            made.close(Instant::now());
            return found;
        }
        used.uses += 1;
        let entry = (Arc::clone(&made), used.uses);
        used.endpoints.insert(made.name().to_owned(), entry);
        let oldest = |used: &Used, most: usize, counts: fn(&Endpoint) -> bool| {
            let counted = used.endpoints.values().filter(|(each, _)| counts(each));
            let oldest = counted.clone().min_by_key(|(_, last)| *last).filter(|_| counted.count() > most);
            oldest.map(|(endpoint, _)| Arc::clone(endpoint))
        };
        let unreached = oldest(&used, MOST_UNCONNECTED, |endpoint| !endpoint.is_connected());
        let idle = if unreached.is_none() { oldest(&used, MAX_RECEIVERS, |_| true) } else { None };
        for gone in unreached.iter().chain(&idle) {
            used.endpoints.remove(gone.name());
            self.left.enter(Arc::clone(gone));
        }
        drop(used);
        unreached.inspect(|unreached| unreached.close(Instant::now()));
        idle.inspect(|idle| idle.close(Instant::now() + LEFT_TIME));
        made
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<Endpoint>> {
        self.used.lock().endpoints.values().map(|(endpoint, _)| Arc::clone(endpoint)).collect()
    }
}

impl Home for Replies {
    fn room(&self) -> &Room {
        &self.room
    }

    fn leave(&self, address: &str, brief: &Brief) {
        let mut used = self.used.lock();
        let is_it = |found: &Endpoint| found.brief.as_ref().is_some_and(|found| std::ptr::eq(found, brief));
        if used.endpoints.get(address).is_some_and(|(found, _)| is_it(found))
            && let Some((gone, _)) = used.endpoints.remove(address)
        {
            self.left.enter(gone);
        }
    }
}
