//! A node: it sends messages where its table says, and takes those that others send.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use nearcall_core::Failure;
use nearcall_core::lock::Mutex;
use smallvec::SmallVec;

use crate::calls::{Calls, Transaction, Waiter};
use crate::endpoint::{Endpoint, Offered, WhenFull};
use crate::inbox::Inbox;
use crate::letter::{Letter, RmrSender};
use crate::message::{Envelope, Sender, TooLong};
use crate::rmr::Exchange;
use crate::rmr_side::{RmrOptions, RmrSide};
use crate::sync::{AtomicBool, AtomicU64, Ordering};
use crate::table::{EndpointId, Group, Table};
use crate::way::Way;

/// The most endpoints that are in use without being in the table.
const MOST_DIRECT: usize = 256;
/// How long what is queued for an endpoint that is no longer used may still be sent.
const LEFT_TIME: Duration = Duration::from_secs(5);

/// Makes the way to an endpoint of that name.
pub type Dialler = Box<dyn Fn(&str) -> Result<Way, Failure> + Send + Sync>;
/// Starts a thread that does some work.
pub type Starter = Box<dyn Fn(Work) -> Result<(), Failure> + Send + Sync>;

/// What a thread of its own has to do.
#[derive(Debug, Clone)]
pub enum Work {
    /// To connect an endpoint, and to send what waits for it.
    Endpoint(Arc<Endpoint>),
    /// To serve the sockets over which programs of RMR are spoken with.
    Exchange(Arc<Exchange>),
}

impl Work {
    /// A name for the thread.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Endpoint(endpoint) => endpoint.name(),
            Self::Exchange(_) => "rmr",
        }
    }

    /// Does it, until the node is closed.
    pub fn run(&self) {
        match self {
            Self::Endpoint(endpoint) => endpoint.work(),
            Self::Exchange(exchange) => exchange.work(),
        }
    }
}

/// Where a message could not go, or why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// No table is in force.
    #[error("no table is in force, so nobody is known who takes messages of type {kind}")]
    NoTable {
        /// The message's type.
        kind: i32,
    },
    /// The table has no entry for the message.
    #[error("table {table:?} has no entry for type {kind} and subscription {subscription}")]
    NoEndpoint {
        /// The message's type.
        kind: i32,
        /// Its subscription.
        subscription: i32,
        /// The table's id.
        table: String,
    },
    /// The table's entry leads nowhere from this node.
    #[error(
        "table {table:?} sends type {kind} nowhere from here: its entry names this node only, which is reached by \
         send_to(), or takes the type away from this sender"
    )]
    Nowhere {
        /// The message's type.
        kind: i32,
        /// The table's id.
        table: String,
    },
    /// The table names no owner of the message's managed entity.
    #[error("table {table:?} sends type {kind} to the owner of the managed entity, and names none for {entity:?}")]
    NoOwner {
        /// The message's type.
        kind: i32,
        /// Its managed entity.
        entity: String,
        /// The table's id.
        table: String,
    },
    /// The queue of an endpoint has no room.
    #[error("the queue for {endpoint} is full, because it takes messages more slowly than they are sent")]
    Full {
        /// The endpoint's name.
        endpoint: String,
    },
    /// The message does not say where replies go.
    #[error("the sender of this message takes no replies: it gave no address")]
    NoAddress,
    /// A part of the message is too long.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// The node is closed.
    #[error("the node is closed")]
    Closed,
    /// An endpoint cannot be used, or does not take the message.
    #[error("{}", .0.message)]
    Failed(Failure),
}

/// A table, with the endpoints that it names. They are used until the last sender that has read it is done.
struct InForce {
    table: Table,
    endpoints: Vec<Arc<Endpoint>>,
    known: Arc<Mutex<Known>>,
    /// How long what is queued for endpoints that nobody uses then may still be sent.
    grace: Duration,
}

impl Drop for InForce {
    fn drop(&mut self) {
        let mut unused = std::mem::take(&mut self.endpoints);
        let mut known = self.known.lock();
        unused.retain(|endpoint| known.leave(endpoint));
        drop(known);
        close_all(&unused, Instant::now() + self.grace);
    }
}

/// The endpoints in use.
#[derive(Default)]
struct Known {
    endpoints: HashMap<String, Arc<Endpoint>>,
    /// Those that are used without being in the table, in the order of their first use.
    direct: VecDeque<Arc<Endpoint>>,
}

impl Known {
    /// One less uses an endpoint. Whether that was the last.
    fn leave(&mut self, endpoint: &Endpoint) -> bool {
        let last = endpoint.end_use();
        if last {
            self.endpoints.remove(endpoint.name());
        }
        last
    }
}

fn close_all<'a>(endpoints: impl IntoIterator<Item = &'a Arc<Endpoint>>, until: Instant) {
    endpoints.into_iter().for_each(|endpoint| endpoint.close(until));
}

/// Sends and takes messages.
pub struct Node {
    name: Box<str>,
    when_full: WhenFull,
    /// Bytes that may wait for an endpoint.
    queue: usize,
    dial: Dialler,
    start: Starter,
    inbox: Arc<Inbox>,
    rmr: RmrSide,
    calls: Arc<Calls>,
    /// Where this node takes replies.
    address: ArcSwap<Box<str>>,
    /// Where it takes those of RMR's programs.
    rmr_sender: ArcSwap<RmrSender>,
    in_force: ArcSwapOption<InForce>,
    known: Arc<Mutex<Known>>,
    closed: AtomicBool,
    transactions: AtomicU64,
    /// What the transaction numbers of this node begin with.
    salt: [u8; 8],
    /// Messages that no entry of the table takes.
    unrouted: AtomicU64,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Node {
    /// A node without a table.
    #[must_use]
    pub fn new(
        name: &str,
        when_full: WhenFull,
        queue: usize,
        rmr: RmrOptions,
        dial: Dialler,
        start: Starter,
    ) -> Arc<Self> {
        let calls = Arc::<Calls>::default();
        let inbox = Inbox::new(Arc::clone(&calls));
        let mut salt = [0; 8];
        // Without random numbers of the system, the time tells this node's numbers from others'.
        if rustix::rand::getrandom(&mut salt, rustix::rand::GetRandomFlags::empty()) != Ok(salt.len()) {
            salt = nearcall_core::monotonic_seconds().to_bits().to_ne_bytes();
        }
        Arc::new(Self {
            name: name.into(),
            when_full,
            queue,
            dial,
            start,
            rmr: RmrSide::new(rmr, Arc::clone(&inbox)),
            inbox,
            calls,
            address: ArcSwap::from_pointee("".into()),
            rmr_sender: ArcSwap::from_pointee(RmrSender { source: name.to_owned(), address: String::new() }),
            in_force: ArcSwapOption::empty(),
            known: Arc::default(),
            closed: AtomicBool::new(false),
            transactions: AtomicU64::new(0),
            salt,
            unrouted: AtomicU64::new(0),
        })
    }

    /// Where arrived messages wait.
    #[must_use]
    pub fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    /// Where tables wait that a route manager of RMR has pushed.
    #[must_use]
    pub fn tables(&self) -> &Arc<Inbox> {
        self.rmr.tables()
    }

    /// Sets where this node takes replies.
    pub fn set_address(&self, address: &str) {
        self.address.store(Arc::new(address.into()));
    }

    /// Sets where this node takes what programs of RMR send: each part has at most 63 bytes.
    pub fn set_rmr_sender(&self, sender: RmrSender) {
        self.rmr_sender.store(Arc::new(sender));
    }

    /// Puts a table in force, in the place of the one before. What was queued for endpoints that it no longer names is
    /// still sent, for at most `grace`.
    ///
    /// # Errors
    /// An endpoint cannot be used at all; the table before stays in force.
    pub fn install(&self, table: Table, grace: Duration) -> Result<(), Failure> {
        let until = Instant::now() + grace;
        let missing: Vec<&String> = {
            let known = self.known.lock();
            table.endpoints().iter().filter(|name| !known.endpoints.contains_key(*name)).collect()
        };
        // Without the lock: to make them takes the interpreter.
        let mut made = HashMap::new();
        for name in missing {
            made.insert(name.clone(), self.make(name).inspect_err(|_| close_all(made.values(), until))?);
        }
        let mut known = self.known.lock();
        let mut endpoints = Vec::new();
        for name in table.endpoints() {
            let found = known.endpoints.get(name).cloned().or_else(|| made.remove(name));
            // Another thread may have removed it meanwhile.
            let Some(endpoint) = found else {
                drop(known);
                close_all(made.values(), until);
                return self.install(table, grace);
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
        Ok(())
    }

    /// An endpoint, with a thread that works for it.
    fn make(&self, name: &str) -> Result<Arc<Endpoint>, Failure> {
        let way = match self.rmr.places(name) {
            Some(places) => self.rmr.link(places, self.exchange_starter())?.into(),
            None => (self.dial)(name)?,
        };
        let endpoint = Endpoint::new(name, way, self.when_full, self.queue);
        (self.start)(Work::Endpoint(Arc::clone(&endpoint)))?;
        Ok(endpoint)
    }

    fn exchange_starter(&self) -> impl FnOnce(Arc<Exchange>) -> Result<(), Failure> {
        |exchange| (self.start)(Work::Exchange(exchange))
    }

    /// Takes messages of RMR's programs from now on at `host:port`. Returns that with the port that the system chose, if it
    /// was 0.
    ///
    /// # Errors
    /// The place cannot be had.
    pub fn listen_rmr(&self, place: &str) -> Result<String, Failure> {
        self.rmr.listen(place, self.exchange_starter())
    }

    /// The sockets over which RMR's programs are spoken with, if there are any.
    #[must_use]
    pub fn exchange(&self) -> Option<Arc<Exchange>> {
        self.rmr.current()
    }

    /// What the table in force says, if there is one.
    pub fn with_table<R>(&self, read: impl FnOnce(&Table) -> R) -> Option<R> {
        self.in_force.load().as_ref().map(|in_force| read(&in_force.table))
    }

    /// All endpoints in use.
    #[must_use]
    pub fn endpoints(&self) -> Vec<Arc<Endpoint>> {
        self.known.lock().endpoints.values().cloned().collect()
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

    /// Sends a message where the table says: to one member of each group. Waits for room until `until` as the policy says,
    /// and asks `go_on` after each short wait.
    ///
    /// # Errors
    /// The first group that did not take the message; others may have it.
    pub fn send(
        &self,
        envelope: &Envelope<'_>,
        payload: &[u8],
        until: Option<Instant>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), SendError> {
        let in_force = self.in_force.load();
        let (kind, subscription) = (envelope.kind, envelope.subscription);
        let unrouted = |error| {
            // Relaxed: a number to be shown.
            self.unrouted.fetch_add(1, Ordering::Relaxed);
            Err(error)
        };
        let Some(InForce { table, endpoints, .. }) = in_force.as_deref() else {
            return unrouted(SendError::NoTable { kind });
        };
        let (address, rmr_sender) = (self.address.load(), self.rmr_sender.load());
        let sender = self.sender(&address)?;
        let letter = Letter::new(envelope, &sender, &rmr_sender, payload)?;
        let endpoint = |id: &EndpointId| &endpoints[id.0 as usize];
        let table_id = || table.id().to_owned();
        let Some(route) = table.lookup(kind, subscription) else {
            return unrouted(SendError::NoEndpoint { kind, subscription, table: table_id() });
        };
        if route.groups.is_empty() && !route.by_entity {
            return unrouted(SendError::Nowhere { kind, table: table_id() });
        }
        if route.by_entity {
            let Some(owner) = table.owner(envelope.entity) else {
                let entity = envelope.entity.to_owned();
                return unrouted(SendError::NoOwner { kind, entity, table: table_id() });
            };
            return pass(&[endpoint(&owner)], 0, &letter, until, go_on);
        }
        let mut result = Ok(());
        for group in &route.groups {
            let members: SmallVec<[&Arc<Endpoint>; 8]> = group.members.iter().map(endpoint).collect();
            let passed = pass(&members, turn(group), &letter, until, go_on);
            result = result.and(passed);
        }
        result
    }

    /// Sends a message to an endpoint, whatever the table says.
    ///
    /// # Errors
    /// The endpoint cannot be used, or has no room.
    pub fn send_to(
        &self,
        name: &str,
        envelope: &Envelope<'_>,
        payload: &[u8],
        until: Option<Instant>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), SendError> {
        if name.is_empty() {
            return Err(SendError::NoAddress);
        }
        let (address, rmr_sender) = (self.address.load(), self.rmr_sender.load());
        let sender = self.sender(&address)?;
        let letter = Letter::new(envelope, &sender, &rmr_sender, payload)?;
        pass(&[&self.direct(name)?], 0, &letter, until, go_on)
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
        // Without the lock: to make it takes the interpreter.
        let made = self.make(name).map_err(SendError::Failed)?;
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

    /// Begins to wait for the reply to the message with this transaction number.
    ///
    /// # Errors
    /// A call with that number is under way.
    pub fn expect(&self, transaction: &[u8]) -> Result<Waiter, SendError> {
        self.calls.begin(transaction).ok_or_else(|| {
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

    /// What messages say of this node.
    fn sender<'a>(&'a self, address: &'a str) -> Result<Sender<'a>, SendError> {
        if self.is_closed() { Err(SendError::Closed) } else { Ok(Sender { source: &self.name, address }) }
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
        close_all(&self.endpoints(), Instant::now() + grace);
    }
}

/// Where the turn of a group begins.
fn turn(group: &Group) -> usize {
    if group.members.len() > 1 { group.next() } else { 0 }
}

/// Passes a message to one of the members of a group: from `first` on, to the next that is connected and has room. If there
/// is none, to the first that is connected, or the first, as the policy says.
fn pass(
    members: &[&Arc<Endpoint>],
    first: usize,
    letter: &Letter<'_>,
    until: Option<Instant>,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<(), SendError> {
    let in_turn = || (0..members.len()).map(|at| members[(first + at) % members.len()]);
    loop {
        let mut full = None;
        for endpoint in in_turn() {
            match endpoint.offer(letter, None).map_err(SendError::Failed)? {
                Offered::Taken => return Ok(()),
                Offered::Full => full = full.or(Some(endpoint)),
                Offered::Down => {}
            }
        }
        let endpoint = full.unwrap_or(members[first % members.len()]);
        let waits = endpoint.when_full() == WhenFull::Block;
        let mut may_wait = || until.is_none_or(|until| until > Instant::now()) && go_on();
        let offered = match full {
            // The transport has no room, or a queue is before it.
            Some(endpoint) if waits => endpoint.offer(letter, Some(&mut may_wait)).map_err(SendError::Failed)?,
            _ => endpoint.insist(letter),
        };
        if offered == Offered::Taken {
            return Ok(());
        }
        if !waits || !may_wait() || !endpoint.await_room(letter, until) {
            endpoint.count_refused();
            return Err(SendError::Full { endpoint: endpoint.name().to_owned() });
        }
    }
}
