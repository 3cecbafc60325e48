//! Messages that wait for replies: a reply has the transaction number of its message.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use nearcall_core::lock::{Condvar, Mutex};

use crate::arrived::Arrived;
use crate::bell::Bell;
use crate::message::Transaction;
use crate::rmr::frame::without_zeros;
use crate::sync::{AtomicUsize, Ordering};

/// All who wait for replies. Zeros at the end of a number say nothing: RMR fills it up with them.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    waiting: Mutex<HashMap<Transaction, Arc<Place>>>,
    /// How many there are, so that a message looks for its call only if there is one.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Place {
    reply: Mutex<Option<Arrived>>,
    come: Condvar,
    /// What rings if the reply is awaited in an event loop, with the number as it is known there.
    bell: Option<(Arc<Bell>, Transaction)>,
}

/// One who waits for a reply, until this is dropped.
#[derive(Debug)]
pub struct Waiter {
    calls: Arc<Calls>,
    transaction: Transaction,
    place: Arc<Place>,
}

impl Calls {
    /// Waits for the reply with this number from now on; `bell` rings if it is awaited in an event loop. `None` if
    /// somebody waits for that already.
    pub(crate) fn begin(self: &Arc<Self>, transaction: Transaction, bell: Option<Arc<Bell>>) -> Option<Waiter> {
        use std::collections::hash_map::Entry;
        let key = Transaction::from_slice(without_zeros(&transaction));
        let place = Arc::new(Place { bell: bell.map(|bell| (bell, transaction)), ..Place::default() });
        let mut waiting = self.waiting.lock();
        let Entry::Vacant(vacant) = waiting.entry(key.clone()) else { return None };
        vacant.insert(Arc::clone(&place));
        // Release: who sees the count finds the entry. The message is sent later, so its reply finds both.
        self.count.fetch_add(1, Ordering::Release);
        drop(waiting);
        Some(Waiter { calls: Arc::clone(self), transaction: key, place })
    }

    /// Whether somebody waits for the reply with this number.
    pub(crate) fn expects(&self, transaction: &[u8]) -> bool {
        // Acquire: after the Release of `begin`.
        self.count.load(Ordering::Acquire) != 0 && self.waiting.lock().contains_key(without_zeros(transaction))
    }

    /// Gives a message to who waits for it. Gives it back if nobody does, or if that one has a reply already.
    pub(crate) fn give(&self, arrived: Arrived) -> Option<Arrived> {
        // Acquire: after the Release of `begin`.
        if self.count.load(Ordering::Acquire) == 0 || arrived.transaction().is_empty() {
            return Some(arrived);
        }
        let place = self.waiting.lock().get(without_zeros(arrived.transaction())).cloned();
        let Some(place) = place else { return Some(arrived) };
        let mut reply = place.reply.lock();
        if reply.is_some() {
            return Some(arrived);
        }
        *reply = Some(arrived);
        drop(reply);
        match &place.bell {
            Some((bell, transaction)) => bell.ring_for_reply(transaction.clone()),
            None => {
                place.come.notify_all();
            }
        }
        None
    }
}

impl Waiter {
    /// The reply, if it has come.
    #[must_use]
    pub fn take(&self) -> Option<Arrived> {
        self.place.reply.lock().take()
    }

    /// Waits for the reply until then. `None` if none has come.
    #[must_use]
    pub fn wait(&self, until: Option<Instant>) -> Option<Arrived> {
        let mut reply = self.place.reply.lock();
        loop {
            if let Some(arrived) = reply.take() {
                return Some(arrived);
            }
            let Some(until) = until else {
                self.place.come.wait(&mut reply);
                continue;
            };
            let now = Instant::now();
            if until <= now {
                return None;
            }
            self.place.come.wait_for(&mut reply, until - now);
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let removed = self.calls.waiting.lock().remove(&self.transaction);
        // Relaxed: a count that is too high for a moment only makes somebody look.
        self.calls.count.fetch_sub(1, Ordering::Relaxed);
        drop(removed);
    }
}
