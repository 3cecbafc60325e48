//! Endpoints that are there for replies only. Any sender says where replies to its messages go, so these are few, keep little,
//! and end by themselves: when nobody is there, when the receiver hangs up, and after a pause.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nearcall_core::lock::Mutex;

use crate::endpoint::Endpoint;
use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// The most of them.
const MOST: usize = 256;
/// The most that have no connection. A sender that takes replies is there, so that is a matter of moments.
const MOST_UNCONNECTED: usize = 16;
/// The most whose threads have not ended. Those that are closed may still send for a moment, or resolve a name.
const MOST_ALIVE: usize = MOST + 64;
/// How long a receiver is looked for.
const FOR_CONNECTION: Duration = Duration::from_secs(1);
/// After so long without a reply an endpoint ends.
const PAUSE: Duration = Duration::from_secs(15);
/// How long an endpoint that makes room for another one may still send what waits.
const LEFT_TIME: Duration = Duration::from_millis(500);
/// What waits in all of them together is at most so many times what may wait in one.
const QUEUES: usize = 16;

/// All of them that a node has.
#[derive(Debug)]
pub(crate) struct Replies {
    used: Mutex<Used>,
    /// Those whose threads have not ended.
    alive: AtomicUsize,
    /// Bytes that wait in all of them.
    bytes: AtomicUsize,
    /// The most of these.
    most_bytes: usize,
}

#[derive(Debug, Default)]
struct Used {
    /// By the address; with the number of the last use.
    endpoints: HashMap<String, (Arc<Endpoint>, u64)>,
    uses: u64,
}

impl Replies {
    /// None yet; `queue` is how many bytes may wait for one endpoint.
    pub(crate) fn new(queue: usize) -> Arc<Self> {
        Arc::new(Self {
            used: Mutex::default(),
            alive: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            most_bytes: queue.saturating_mul(QUEUES),
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
        // Relaxed: a bound that another thread may pass by one.
        if self.alive.fetch_add(1, Ordering::Relaxed) >= MOST_ALIVE {
            self.alive.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Brief { replies: Arc::downgrade(self), refused_at: AtomicU64::new(u64::MAX) })
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
        let idle = if unreached.is_none() { oldest(&used, MOST, |_| true) } else { None };
        for gone in unreached.iter().chain(&idle) {
            used.endpoints.remove(gone.name());
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

/// What such an endpoint has beside others.
#[derive(Debug)]
pub(crate) struct Brief {
    replies: Weak<Replies>,
    /// How many messages were sent when the last reply was refused; `u64::MAX` if none was.
    refused_at: AtomicU64,
}

impl Brief {
    /// A reply was refused for want of room, after so many were sent.
    pub(crate) fn note_refused(&self, sent: u64) {
        // Relaxed: a hint for who would wait.
        self.refused_at.store(sent, Ordering::Relaxed);
    }

    /// Whether a reply was refused when as many were sent as now.
    pub(crate) fn was_refused_at(&self, sent: u64) -> bool {
        // Relaxed: likewise.
        self.refused_at.load(Ordering::Relaxed) == sent
    }

    /// Whether so many bytes more may wait. One reply may, however long.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        // Relaxed, here and below: a bound, which threads that add at once may pass by a message each.
        self.replies.upgrade().is_some_and(|replies| match replies.bytes.load(Ordering::Relaxed) {
            0 => true,
            waiting => waiting.saturating_add(bytes) <= replies.most_bytes,
        })
    }

    pub(crate) fn add_bytes(&self, bytes: usize) {
        self.replies.upgrade().inspect(|replies| _ = replies.bytes.fetch_add(bytes, Ordering::Relaxed));
    }

    pub(crate) fn take_bytes(&self, bytes: usize) {
        self.replies.upgrade().inspect(|replies| _ = replies.bytes.fetch_sub(bytes, Ordering::Relaxed));
    }

    /// The endpoint has ended.
    pub(crate) fn leave(&self, endpoint: &Endpoint) {
        let Some(replies) = self.replies.upgrade() else { return };
        let mut used = replies.used.lock();
        if used.endpoints.get(endpoint.name()).is_some_and(|(found, _)| std::ptr::eq(&raw const **found, endpoint)) {
            used.endpoints.remove(endpoint.name());
        }
    }
}

impl Drop for Brief {
    fn drop(&mut self) {
        // Relaxed: as in `begin`.
        self.replies.upgrade().inspect(|replies| _ = replies.alive.fetch_sub(1, Ordering::Relaxed));
    }
}

/// How long such an endpoint lives.
#[derive(Debug)]
pub(crate) struct Life {
    was_connected: bool,
    sent: u64,
    end: Instant,
}

impl Life {
    pub(crate) fn begin() -> Self {
        Self { was_connected: false, sent: 0, end: Instant::now() + FOR_CONNECTION }
    }

    /// Whether it is over for an endpoint that is connected or not, and has sent so many messages.
    pub(crate) fn is_over(&mut self, connected: bool, sent: u64, is_empty: bool) -> bool {
        let now = Instant::now();
        if !connected {
            return self.was_connected || self.end <= now;
        }
        if !self.was_connected || self.sent != sent || !is_empty {
            *self = Self { was_connected: true, sent, end: now + PAUSE };
            return false;
        }
        self.end <= now
    }

    /// When to look whether it is over.
    pub(crate) fn end(&self) -> Instant {
        self.end
    }
}
