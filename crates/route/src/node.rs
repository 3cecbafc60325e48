//! A node: it sends messages where its table says, and takes those that others send.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use nearcall_core::Failure;
use nearcall_core::lock::Mutex;
use nearcall_platform::sys::random;
use nearcall_transport::Taking;
use smallvec::SmallVec;

use crate::bell::Bell;
use crate::brief::Brief;
use crate::calls::{Calls, Waiter};
use crate::durable;
use crate::endpoint::{Counts, Endpoint, Offered, Outbound, WhenFull};
use crate::in_force::{InForce, Known, close_all};
use crate::inbox::Inbox;
use crate::left::Left;
use crate::message::{Envelope, Heads, TooLong, Transaction};
use crate::passing::{Letter, SendError, attempt, full, pass};
use crate::pending::Pending;
use crate::replies::Replies;
use crate::rmr_side::{RmrOptions, RmrSide};
use crate::sync::{AtomicBool, AtomicU64, Ordering};
use crate::table::{EndpointId, Table, check_endpoint, check_reply_address};
use crate::way::Way;
use crate::work::{Dialler, Starter, Work};

/// The most endpoints that are in use without being in the table.
const MOST_DIRECT: usize = 256;
/// Bytes of a payload that is copied behind the head.
const SHORT: usize = 1024;
/// How long what is queued for an endpoint that is no longer used may still be sent.
const LEFT_TIME: Duration = Duration::from_secs(5);
/// How long a table waits at most for the first connections of its new endpoints.
const FIRST_CONNECTIONS: Duration = Duration::from_millis(250);

thread_local! {
    /// Memory for what is sent next.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Sends and takes messages.
pub struct Node {
    when_full: WhenFull,
    /// Bytes that may wait for an endpoint.
    queue: usize,
    dial: Dialler,
    start: Starter,
    inbox: Arc<Inbox>,
    rmr: RmrSide,
    calls: Arc<Calls>,
    /// What this node's messages begin with.
    heads: ArcSwap<Heads>,
    bell: Arc<Bell>,
    in_force: ArcSwapOption<InForce>,
    known: Arc<Mutex<Known>>,
    replies: Arc<Replies>,
    /// What those have done that are no longer in use.
    left: Arc<Left>,
    /// How addresses begin that only a node may use which is itself there.
    shared: Mutex<Vec<String>>,
    closed: AtomicBool,
    transactions: AtomicU64,
    /// What the transaction numbers of this node begin with.
    salt: [u8; 8],
    /// Messages that no entry of the table takes.
    unrouted: AtomicU64,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("heads", &self.heads.load()).finish_non_exhaustive()
    }
}

impl Node {
    /// A node without a table.
    ///
    /// # Errors
    /// Its name is too long.
    pub fn new(
        name: &str,
        when_full: WhenFull,
        queue: usize,
        rmr: RmrOptions,
        dial: Dialler,
        start: Starter,
    ) -> Result<Arc<Self>, TooLong> {
        let calls = Arc::<Calls>::default();
        let inbox = Inbox::new(Arc::clone(&calls));
        let left = Arc::<Left>::default();
        let rmr = RmrSide::new(name, rmr, Arc::clone(&inbox), Arc::clone(&start));
        // Without random numbers of the system, the time tells this node's numbers from others'.
        let salt = random().unwrap_or_else(|_| nearcall_core::monotonic_seconds().to_bits().to_ne_bytes());
        Ok(Arc::new(Self {
            when_full,
            queue,
            dial,
            start,
            inbox,
            rmr,
            calls,
            heads: ArcSwap::from_pointee(Heads::new(name, "")?),
            bell: Arc::default(),
            in_force: ArcSwapOption::empty(),
            known: Arc::new(Mutex::new(Known { left: Arc::clone(&left), ..Known::default() })),
            replies: Replies::new(queue, Arc::clone(&left)),
            left,
            shared: Mutex::default(),
            closed: AtomicBool::new(false),
            transactions: AtomicU64::new(0),
            salt,
            unrouted: AtomicU64::new(0),
        }))
    }

    /// Where arrived messages wait.
    #[must_use]
    pub fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    /// What concerns programs of RMR.
    #[must_use]
    pub fn rmr(&self) -> &RmrSide {
        &self.rmr
    }

    /// What an event loop waits for.
    #[must_use]
    pub fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Sets its name, and where this node takes replies. `shared` is how addresses begin for which it has to be there itself:
    /// `inproc://`, and a NATS server, which a sender could else choose to be told this node's password.
    ///
    /// # Errors
    /// It is too long.
    pub fn set_address(&self, name: &str, address: &str, shared: Vec<String>) -> Result<(), TooLong> {
        *self.shared.lock() = shared;
        self.heads.store(Arc::new(Heads::new(name, address)?));
        Ok(())
    }

    /// Puts a table in force, in the place of the one before. What was queued for endpoints that it no longer names is
    /// still sent, for at most `grace`. If it `may_wait`, new endpoints have tried to connect once before the table takes
    /// another one's place, so that messages do not wait for them.
    ///
    /// # Errors
    /// An endpoint cannot be used at all; the table before stays in force.
    pub fn install(&self, table: Table, grace: Duration, may_wait: bool) -> Result<(), Failure> {
        let until = Instant::now() + grace;
        let missing: Vec<&String> = {
            let known = self.known.lock();
            table.endpoints().iter().filter(|name| !known.endpoints.contains_key(*name)).collect()
        };
        // Without the lock: to make them takes the interpreter.
        let mut made = HashMap::new();
        for name in missing {
            made.insert(name.clone(), self.make(name, None).inspect_err(|_| close_all(made.values(), until))?);
        }
        if may_wait && self.with_table(Table::is_complete) == Some(true) {
            let until = Instant::now() + FIRST_CONNECTIONS;
            for endpoint in made.values() {
                endpoint.await_attempt(until);
            }
        }
        let mut known = self.known.lock();
        let mut endpoints = Vec::new();
        for name in table.endpoints() {
            let found = known.endpoints.get(name).cloned().or_else(|| made.remove(name));
            // Another thread may have removed it meanwhile.
            let Some(endpoint) = found else {
                drop(known);
                close_all(made.values(), until);
                return self.install(table, grace, may_wait);
            };
            known.endpoints.insert(name.clone(), Arc::clone(&endpoint));
            endpoints.push(endpoint);
        }
        for endpoint in &endpoints {
            endpoint.begin_use();
        }
        drop(known);
        let in_force = InForce { table, endpoints, known: Arc::clone(&self.known), grace };
        // The one before ends here, or with the last sender that uses it.
        self.in_force.store(Some(Arc::new(in_force)));
        close_all(made.values(), until);
        let gone = std::mem::take(&mut self.known.lock().gone);
        drop(gone);
        Ok(())
    }

    /// An endpoint, with a thread that works for it.
    fn make(&self, name: &str, brief: Option<Brief>) -> Result<Arc<Endpoint>, Failure> {
        let way = self
            .rmr
            .way(name)
            .or_else(|| durable::way(&self.dial, name))
            .unwrap_or_else(|| (self.dial)(name).map(Way::from))?;
        let (bell, calls) = (Arc::clone(&self.bell), Arc::clone(&self.calls));
        let endpoint = Endpoint::new(name, way, self.when_full, self.queue, bell, calls, brief);
        (self.start)(Work::Endpoint(Arc::clone(&endpoint), Arc::clone(&self.left)))?;
        Ok(endpoint)
    }

    /// Takes messages that are kept at a URL, as a member of a group, from now on until what is returned is dropped.
    ///
    /// # Errors
    /// The NATS server is not there, keeps no messages, or does not let this process in; or the URL is none of these.
    pub fn take_durable(&self, url: &str, group: &str) -> Result<Taking, Failure> {
        durable::take(&self.dial, url, group, &self.inbox)
    }

    /// What the table in force says, if there is one.
    pub fn with_table<R>(&self, read: impl FnOnce(&Table) -> R) -> Option<R> {
        self.in_force.load().as_ref().map(|in_force| read(&in_force.table))
    }

    /// All endpoints in use, and others that have their names.
    fn all_endpoints(&self) -> (Vec<Arc<Endpoint>>, Vec<Arc<Endpoint>>) {
        let mut all: Vec<_> = self.known.lock().endpoints.values().cloned().collect();
        // A table may name a sender that was replied to before.
        let is_new = |one: &Arc<Endpoint>| all.iter().all(|other| other.name() != one.name());
        let (new, again): (Vec<_>, Vec<_>) = self.replies.all().into_iter().partition(is_new);
        all.extend(new);
        (all, again)
    }

    /// All endpoints in use; how many have left, and what those have done together. None is in both, or in neither.
    #[must_use]
    pub fn endpoints(&self) -> (Vec<Arc<Endpoint>>, u64, Counts) {
        loop {
            let before = self.left.number();
            let (all, again) = self.all_endpoints();
            let (number, mut left) = self.left.counts();
            if number == before {
                // Nobody uses them any more.
                for endpoint in again {
                    left += endpoint.counts();
                }
                return (all, number, left);
            }
        }
    }

    /// Messages that could not be sent, since no entry of the table took them.
    #[must_use]
    pub fn unrouted(&self) -> u64 {
        // Relaxed: a number to be shown.
        self.unrouted.load(Ordering::Relaxed)
    }

    /// Whether a table is in force, and all its endpoints are connected.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let in_force = self.in_force.load();
        in_force.as_ref().is_some_and(|in_force| {
            in_force.table.is_complete() && in_force.endpoints.iter().all(|endpoint| endpoint.is_connected())
        })
    }

    /// Sends a message to the endpoint `to`, or else where the table says: to one member of each group. Waits for room until
    /// `until` as the policy says, and asks `go_on` after each short wait.
    ///
    /// # Errors
    /// The first group that did not take the message; others may have it.
    #[inline]
    pub fn send(
        &self,
        to: Option<&str>,
        envelope: &Envelope<'_>,
        payload: &[u8],
        until: Option<Instant>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), SendError> {
        self.encoded(envelope, payload, |pieces| {
            let call = self.calls.of(envelope.transaction);
            let letter = Letter { pieces, call: call.as_ref() };
            self.each(to, envelope, |group, first| pass(group, first, letter, until, go_on))
        })
    }

    /// The same without waiting. What is left to be done if somebody has no room, and senders wait for it.
    ///
    /// # Errors
    /// The first group that did not take the message; others may have it.
    pub fn begin(
        &self,
        to: Option<&str>,
        envelope: &Envelope<'_>,
        payload: &[u8],
    ) -> Result<Option<Pending>, SendError> {
        self.encoded(envelope, payload, |pieces| {
            let mut left = Vec::new();
            let call = self.calls.of(envelope.transaction);
            let letter = Letter { pieces, call: call.as_ref() };
            let result = self.each(to, envelope, |group, first| {
                if !attempt(group, first, letter)? {
                    left.push((group.iter().copied().cloned().collect(), first));
                }
                Ok(())
            });
            if left.is_empty() {
                return result.map(|()| None);
            }
            Ok(Some(Pending::new(pieces.concat(), left, result, call, Arc::clone(&self.bell))))
        })
    }

    /// Sends a reply to the address that the sender of a message has given. Waits for room until then, but never for a
    /// receiver that cannot be reached, or that takes nothing.
    ///
    /// # Errors
    /// It was not sent.
    pub fn reply(
        &self,
        address: &str,
        envelope: &Envelope<'_>,
        payload: &[u8],
        until: Instant,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), SendError> {
        self.encoded(envelope, payload, |pieces| {
            loop {
                let Some((endpoint, may_wait)) = self.offer_reply(address, pieces)? else { return Ok(()) };
                if !may_wait || !go_on() || !endpoint.await_room(pieces[0].len() + pieces[1].len(), Some(until)) {
                    return Err(full(&endpoint));
                }
            }
        })
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// It was not sent.
    pub fn begin_reply(
        &self,
        address: &str,
        envelope: &Envelope<'_>,
        payload: &[u8],
    ) -> Result<Option<Pending>, SendError> {
        self.encoded(envelope, payload, |pieces| {
            Ok(match self.offer_reply(address, pieces)? {
                None => None,
                Some((endpoint, false)) => return Err(full(&endpoint)),
                Some((endpoint, true)) => {
                    let left = vec![(vec![endpoint], 0)];
                    Some(Pending::new(pieces.concat(), left, Ok(()), None, Arc::clone(&self.bell)))
                }
            })
        })
    }

    /// Passes a reply to an endpoint. Returns that, and whether to wait, if it has no room.
    fn offer_reply(&self, address: &str, pieces: &[&[u8]; 2]) -> Result<Option<(Arc<Endpoint>, bool)>, SendError> {
        let message = Outbound { pieces, group: &[], call: None };
        loop {
            let endpoint = self.way_back(address)?;
            if endpoint.offer(message, None).map_err(SendError::Failed)? == Offered::Taken {
                return Ok(None);
            }
            match endpoint.insist(message) {
                Offered::Taken => return Ok(None),
                Offered::Full => {
                    let may_wait = self.when_full == WhenFull::Block && endpoint.makes_room();
                    return Ok(Some((endpoint, may_wait)));
                }
                // It has just ended: the next one is another.
                Offered::Down => endpoint.leave(),
            }
        }
    }

    /// The endpoint to the sender of a message.
    fn way_back(&self, address: &str) -> Result<Arc<Endpoint>, SendError> {
        if address.is_empty() {
            return Err(SendError::NoAddress);
        }
        let known = self.known.lock().endpoints.get(address).cloned();
        if let Some(endpoint) = known.or_else(|| self.replies.get(address)) {
            return Ok(endpoint);
        }
        if self.is_closed() {
            return Err(SendError::Closed);
        }
        if nearcall_transport::durable(address).is_some() {
            return Err(SendError::BadAddress("no reply goes to where messages are kept".to_owned()));
        }
        if let Some(scheme) = ["inproc://", "nats://", "nats+tls://"].iter().find(|&scheme| address.starts_with(scheme))
            && !self.shared.lock().iter().any(|place| address.starts_with(place))
        {
            let why = format!("no reply goes to {scheme}, because this node is not served there");
            return Err(SendError::BadAddress(why));
        }
        check_reply_address(address).map_err(SendError::BadAddress)?;
        let brief = self.replies.begin().ok_or(SendError::Crowded)?;
        Ok(self.replies.enter(self.make(address, Some(brief)).map_err(SendError::Failed)?))
    }

    /// Calls a function with each group that a message goes to, and with the place of the member whose turn it is.
    #[inline]
    fn each(
        &self,
        to: Option<&str>,
        envelope: &Envelope<'_>,
        mut pass: impl FnMut(&[&Arc<Endpoint>], usize) -> Result<(), SendError>,
    ) -> Result<(), SendError> {
        if let Some(name) = to {
            if name.is_empty() {
                return Err(SendError::NoAddress);
            }
            return pass(&[&self.direct(name)?], 0);
        }
        let in_force = self.in_force.load();
        let (kind, subscription) = (envelope.kind, envelope.subscription);
        let Some(InForce { table, endpoints, .. }) = in_force.as_deref() else {
            return self.unrouted_as(SendError::NoTable { kind });
        };
        let endpoint = |id: &EndpointId| &endpoints[id.0 as usize];
        let table_id = || table.id().to_owned();
        let Some(route) = table.lookup(kind, subscription) else {
            return self.unrouted_as(SendError::NoEndpoint { kind, subscription, table: table_id() });
        };
        if route.by_entity {
            let Some(owner) = table.owner(envelope.entity) else {
                let entity = envelope.entity.to_owned();
                return self.unrouted_as(SendError::NoOwner { kind, entity, table: table_id() });
            };
            return pass(&[endpoint(&owner)], 0);
        }
        if route.groups.is_empty() {
            return self.unrouted_as(SendError::Nowhere { kind, table: table_id() });
        }
        let mut result = Ok(());
        for group in &route.groups {
            let passed = match &*group.members {
                [one] => pass(&[endpoint(one)], 0),
                several => {
                    let members: SmallVec<[&Arc<Endpoint>; 8]> = several.iter().map(endpoint).collect();
                    pass(&members, group.next())
                }
            };
            result = result.and(passed);
        }
        result
    }

    #[cold]
    fn unrouted_as(&self, error: SendError) -> Result<(), SendError> {
        // Relaxed: a number to be shown.
        self.unrouted.fetch_add(1, Ordering::Relaxed);
        Err(error)
    }

    /// The endpoint of that name, whether the table names it or not.
    ///
    /// # Errors
    /// It cannot be used at all.
    pub fn direct(&self, name: &str) -> Result<Arc<Endpoint>, SendError> {
        if let Some(endpoint) = self.known.lock().endpoints.get(name) {
            return Ok(Arc::clone(endpoint));
        }
        if self.is_closed() {
            return Err(SendError::Closed);
        }
        check_endpoint(name).map_err(SendError::BadAddress)?;
        // Without the lock: to make it takes the interpreter.
        let made = self.make(name, None).map_err(SendError::Failed)?;
        let mut known = self.known.lock();
        if let Some(endpoint) = known.endpoints.get(name) {
            let endpoint = Arc::clone(endpoint);
            drop(known);
            made.close(Instant::now());
            return Ok(endpoint);
        }
        made.begin_use();
        known.endpoints.insert(name.to_owned(), Arc::clone(&made));
        known.direct.push_back(Arc::clone(&made));
        let oldest = (known.direct.len() > MOST_DIRECT).then(|| known.direct.pop_front()).flatten();
        let oldest = oldest.filter(|oldest| known.leave(oldest));
        drop(known);
        close_all(&oldest, Instant::now() + LEFT_TIME);
        Ok(made)
    }

    /// Begins to wait for the reply to the message with this transaction number; in an event loop the [`Bell`] tells of it.
    ///
    /// # Errors
    /// A call with that number is under way.
    pub fn expect(&self, transaction: Transaction, for_loop: bool) -> Result<Waiter, SendError> {
        let bell = for_loop.then(|| Arc::clone(&self.bell));
        self.calls.begin(transaction, bell).ok_or_else(|| {
            let text = "a call with this transaction number is under way: choose another, or none";
            SendError::Failed(Failure::new(Failure::ALREADY_EXISTS, text))
        })
    }

    /// A transaction number that no other node uses.
    pub fn transaction(&self) -> Transaction {
        // Relaxed: only different numbers are wanted.
        let number = self.transactions.fetch_add(1, Ordering::Relaxed);
        let mut out = Transaction::from_slice(&self.salt);
        out.extend_from_slice(&number.to_be_bytes());
        out
    }

    /// Calls a function with what is sent, in two pieces. The second is empty if the payload is short: one piece is sent
    /// faster than two.
    #[inline]
    fn encoded<R>(
        &self,
        envelope: &Envelope<'_>,
        payload: &[u8],
        send: impl FnOnce(&[&[u8]; 2]) -> Result<R, SendError>,
    ) -> Result<R, SendError> {
        if self.is_closed() {
            return Err(SendError::Closed);
        }
        // Taken, not borrowed: who waits for room may run code that sends another message.
        let mut first = SPARE.take();
        first.clear();
        let result =
            self.heads.load().encode(&mut first, envelope, payload.len()).map_err(SendError::TooLong).and_then(|()| {
                if payload.len() > SHORT {
                    return send(&[&first, payload]);
                }
                first.extend_from_slice(payload);
                send(&[&first, &[]])
            });
        if first.capacity() <= 4 * SHORT {
            SPARE.set(first);
        }
        result
    }

    /// Whether [`close`](Self::close) was called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        // Relaxed: a sender that does not see it yet finds closed endpoints.
        self.closed.load(Ordering::Relaxed)
    }

    /// Sends nothing more. What is queued is still sent, for at most `grace`; the rest is counted as dropped.
    pub fn close(&self, grace: Duration) {
        // Relaxed: as in `is_closed`.
        self.closed.store(true, Ordering::Relaxed);
        let until = Instant::now() + grace;
        let (all, again) = self.all_endpoints();
        close_all(all.iter().chain(&again), until);
    }
}
