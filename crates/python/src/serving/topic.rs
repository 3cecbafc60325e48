//! Topics: an item that is published once goes to all subscribers, and none of them costs a thread or a coroutine.
//!
//! A handler returns a [`Subscription`]. Its call then goes on without the handler: the topic keeps the request, and
//! the publishing thread sends the items. An item is encoded once for each method in a codec ([`Channel`]), and is kept
//! in one log for all subscribers of that channel. Each subscriber has a place in that log. A subscriber that does not
//! read falls behind there, and so costs no memory of its own. The bytes in the log are limited.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Instant;

use nearcall_core::lock::{Mutex, around_sleep};
use nearcall_core::server::{CallObserver, ItemOutcome, Request, ServerCall};
use nearcall_core::{Body, Charge, Failure, Kind, LinkError, Outgoing};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use smallvec::SmallVec;

use crate::gil::interpreter::detach;
use crate::serving::context::Call;
use crate::serving::served::{describe_for, end_late, late, too_long_failure};
use crate::values::encoded::Encoded;
use crate::values::plan::Method;

/// The key of the trailing metadata that says how many items a subscriber has missed.
const MISSED: &str = "nearcall-missed";

/// An item, encoded.
struct Item {
    body: Vec<u8>,
    buffers: Option<Vec<Vec<u8>>>,
}

impl Item {
    fn of(encoded: &Encoded<'_>) -> Self {
        encoded.with(|body| match body {
            Body::Whole(body) => Self { body: body.to_vec(), buffers: None },
            Body::Pieces(pieces) => Self { body: pieces.concat(), buffers: None },
            Body::Parts(body, buffers) => {
                let buffers = buffers.iter().map(|buffer| buffer.to_vec()).collect();
                Self { body: body.to_vec(), buffers: Some(buffers) }
            }
        })
    }

    /// How many bytes it costs to keep the item.
    fn cost(&self) -> usize {
        let buffers = self.buffers.iter().flatten().map(|buffer| size_of::<Vec<u8>>() + buffer.len());
        size_of::<Self>() + self.body.len() + buffers.sum::<usize>()
    }

    fn send(&self, call: &ServerCall, until: Option<Instant>) -> Result<ItemOutcome, LinkError> {
        let Some(buffers) = &self.buffers else {
            return call.try_send_item(&Outgoing::new(Kind::Item, Body::Whole(&self.body)), until);
        };
        let slices: SmallVec<[&[u8]; 4]> = buffers.iter().map(Vec::as_slice).collect();
        call.try_send_item(&Outgoing::new(Kind::Item, Body::Parts(&self.body, &slices)), until)
    }
}

/// The items that a subscriber has still to get, in order.
struct Log {
    items: VecDeque<Arc<Item>>,
    /// How many items there were before the first of them.
    first: u64,
    /// The bytes of `items`. They count among the bytes that the server keeps for its clients.
    kept: Charge,
    /// How many of the last ones are kept for new subscribers: one, or none.
    for_new: usize,
    /// No more items will be added.
    closed: bool,
    /// Items were lost before they came here.
    lost: bool,
}

impl Log {
    fn new(kept: Charge, keeps_last: bool) -> Self {
        Self { items: VecDeque::new(), first: 0, kept, for_new: usize::from(keeps_last), closed: false, lost: false }
    }

    fn end(&self) -> u64 {
        self.first + self.items.len() as u64
    }

    /// The place at which a new subscriber begins.
    fn begin(&self) -> u64 {
        self.end() - self.items.len().min(self.for_new) as u64
    }

    fn pop(&mut self) {
        if let Some(item) = self.items.pop_front() {
            self.first += 1;
            self.kept.set(self.kept.bytes() - item.cost());
        }
    }

    /// Adds an item, and drops the oldest items while there are more than `most` bytes; never the new item.
    fn push(&mut self, item: Arc<Item>, most: usize) {
        self.kept.set(self.kept.bytes() + item.cost());
        self.items.push_back(item);
        while self.kept.bytes() > most && self.items.len() > 1 {
            self.pop();
        }
    }

    /// Items were lost before they came here, and with them those that wait.
    fn skip(&mut self, count: u64) {
        self.first = self.end() + count;
        self.items.clear();
        self.kept.set(0);
        self.lost = true;
    }

    /// Drops the items before `place`, which all subscribers have got, except those for new subscribers.
    fn forget_before(&mut self, place: u64) {
        while self.first < place && self.items.len() > self.for_new {
            self.pop();
        }
    }
}

/// What is next for a subscriber.
enum Next {
    Item(Arc<Item>),
    /// The subscriber has got all items.
    Nothing,
    /// The subscriber has fallen behind the items that are kept.
    Behind,
    Closed,
}

/// The subscribers of one method in one codec, and the items for them.
struct Channel {
    method: Arc<Py<Method>>,
    policy: Policy,
    log: Mutex<Log>,
    /// By the addresses of their calls.
    members: Mutex<HashMap<usize, Arc<Subscriber>>>,
}

/// What happens to subscribers that do not read.
#[derive(Clone, Copy)]
struct Policy {
    /// The most bytes of items that wait for them.
    max_buffer: usize,
    /// Slow subscribers miss the oldest items; otherwise their subscriptions end.
    drops: bool,
}

impl Channel {
    /// Sends all subscribers the items that they have still to get. The caller lets no other thread publish meanwhile.
    fn send(&self) {
        let everybody: Vec<_> = self.members.lock().values().map(Arc::clone).collect();
        let places = everybody.iter().filter_map(|subscriber| subscriber.send(self));
        let slowest = places.min();
        let mut log = self.log.lock();
        let end = log.end();
        // A subscriber that has joined meanwhile begins at the end.
        log.forget_before(slowest.unwrap_or(end));
    }

    fn next(&self, place: &mut Place) -> Next {
        let log = self.log.lock();
        let behind = log.first.saturating_sub(place.next);
        if behind > 0 {
            if !self.policy.drops {
                return Next::Behind;
            }
            place.missed += behind;
            place.next = log.first;
        }
        match log.items.get((place.next - log.first) as usize) {
            Some(item) => Next::Item(Arc::clone(item)),
            None if log.closed => Next::Closed,
            None => Next::Nothing,
        }
    }

    /// Adds a call whose handler has returned a subscription.
    fn join(self: &Arc<Self>, owner: Box<dyn Owner>) {
        let Some(call) = owner.request().call.clone() else { return };
        let key = Arc::as_ptr(&call).addr();
        let log = self.log.lock();
        let place = Place { next: log.begin(), missed: 0, owner: Some(owner) };
        let subscriber = Arc::new(Subscriber { channel: Arc::downgrade(self), call, place: Mutex::new(place) });
        self.members.lock().insert(key, Arc::clone(&subscriber));
        drop(log);
        subscriber.begin();
        subscriber.send(self);
    }

    fn close(&self) {
        self.log.lock().closed = true;
        self.send();
    }
}

/// Owns the request of a call that a topic has taken over: the request itself if a thread ran the handler, a `LoopCall`
/// if an event loop did.
pub(crate) trait Owner: Send {
    fn request(&self) -> &Request;
}

impl Owner for Box<Request> {
    fn request(&self) -> &Request {
        self
    }
}

/// A call that gets a topic's items.
struct Subscriber {
    channel: Weak<Channel>,
    call: Arc<ServerCall>,
    place: Mutex<Place>,
}

struct Place {
    /// The number of the item that the subscriber gets next.
    next: u64,
    /// How many items the subscriber has missed because it was slow.
    missed: u64,
    /// `None`: the subscription is over.
    owner: Option<Box<dyn Owner>>,
}

/// Why a subscription is over.
enum End {
    /// The client has given the call up, or is gone.
    Gone,
    Closed,
    Failed(Failure),
}

impl Subscriber {
    /// From now on, `changed` is called when something changes for the call.
    fn begin(self: &Arc<Self>) {
        let keeper: Weak<dyn CallObserver> = Arc::downgrade(self) as Weak<dyn CallObserver>;
        if let Some(owner) = &self.place.lock().owner {
            owner.request().outlive_handler(keeper);
        }
    }

    /// Sends the items that the subscriber has still to get, as far as the client takes them. Returns the subscriber's
    /// place after that; `None` if the subscription is over.
    fn send(&self, channel: &Channel) -> Option<u64> {
        let mut place = self.place.lock();
        let request = place.owner.as_ref()?.request();
        let (connection, until) = (Arc::clone(request.connection()), request.deadline);
        let end = loop {
            if self.call.is_cancelled() {
                break End::Gone;
            }
            if connection.is_stopping() {
                break End::Failed(Failure::new(Failure::UNAVAILABLE, "the server is stopping"));
            }
            let item = match channel.next(&mut place) {
                Next::Item(item) => item,
                Next::Nothing => return Some(place.next),
                Next::Behind => break End::Failed(channel.too_slow()),
                Next::Closed => break End::Closed,
            };
            match item.send(&self.call, until) {
                Ok(ItemOutcome::Sent) => place.next += 1,
                // `changed` is called when there is room.
                Ok(ItemOutcome::NoCredit) => return Some(place.next),
                Ok(ItemOutcome::Cancelled) => break End::Gone,
                Ok(ItemOutcome::Late) => break End::Failed(late(&channel.method.get().name)),
                Err(error) => break End::Failed(too_long_failure(&channel.method.get().name, &error)),
            }
        };
        let (owner, missed) = (place.owner.take(), place.missed);
        drop(place);
        channel.members.lock().remove(&Arc::as_ptr(&self.call).addr());
        if let Some(owner) = owner {
            let request = owner.request();
            if missed > 0 {
                request.context().trailing.lock().push(MISSED, missed.to_string().as_bytes());
            }
            match end {
                End::Gone => request.forget(),
                // If the end cannot be sent, there is nobody left to send it to.
                End::Closed => {
                    if end_late(channel.method.get(), request).is_none() {
                        drop(request.end_stream());
                    }
                }
                End::Failed(failure) => request.fail(&failure),
            }
            request.finish();
        }
        None
    }
}

impl Channel {
    fn too_slow(&self) -> Failure {
        let why = if self.log.lock().lost {
            "items were lost on their way from another worker of the server, since this one was too slow for them; listen \
             again, or let the Topic drop the oldest (when_full=\"drop_oldest\")"
                .to_owned()
        } else {
            format!(
                "the client reads too slowly: more than {} bytes of items waited for it; raise max_buffer of the Topic at \
                 the server, or let it drop the oldest (when_full=\"drop_oldest\")",
                self.policy.max_buffer
            )
        };
        Failure::new(Failure::RESOURCE_EXHAUSTED, format!("{}: {why}", self.method.get().name))
    }
}

impl CallObserver for Subscriber {
    fn changed(&self, _call: &Arc<ServerCall>) {
        match self.channel.upgrade() {
            Some(channel) => drop(self.send(&channel)),
            // The topic is gone, and has ended the subscription before.
            None => drop(self.place.lock().owner.take()),
        }
    }
}

/// What the topic and its subscriptions share.
struct State {
    policy: Policy,
    keeps_last: bool,
    shared: Mutex<Shared>,
}

#[derive(Default)]
struct Shared {
    channels: Vec<Arc<Channel>>,
    /// The last published item, if it is kept: for the first subscriber of a method in a codec.
    last: Option<Arc<Py<PyAny>>>,
    closed: bool,
}

impl Shared {
    /// Takes out the channels that have no subscribers any more.
    fn take_deserted(&mut self) -> Vec<Arc<Channel>> {
        let (kept, deserted) = self.channels.drain(..).partition(|channel| !channel.members.lock().is_empty());
        self.channels = kept;
        deserted
    }

    fn find(&self, method: &Py<Method>) -> Option<&Arc<Channel>> {
        self.channels.iter().find(|channel| channel.method.is(method))
    }
}

impl State {
    /// Takes over a call whose handler has returned.
    fn join(&self, py: Python<'_>, method: &Py<Method>, owner: Box<dyn Owner>) {
        // Behind an `Arc`, because references are counted below without the interpreter.
        let method = Arc::new(method.clone_ref(py));
        let mut owner = Some(owner);
        let mut known: Option<(Arc<Py<PyAny>>, Arc<Item>)> = None;
        loop {
            let step = detach(py, || {
                let mut shared = self.shared.lock();
                let channel = if let Some(channel) = shared.find(&method) {
                    Arc::clone(channel)
                } else {
                    let last = match (&shared.last, &known) {
                        (None, _) => None,
                        (Some(value), Some((encoded, item))) if Arc::ptr_eq(value, encoded) => Some(Arc::clone(item)),
                        (Some(value), _) => return Some(Arc::clone(value)),
                    };
                    let kept = owner.as_ref()?.request().connection().charge_to_all();
                    let mut log = Log::new(kept, self.keeps_last);
                    if let Some(item) = last {
                        log.push(item, self.policy.max_buffer);
                    }
                    log.closed = shared.closed;
                    let (method, policy) = (Arc::clone(&method), self.policy);
                    let channel = Channel { method, policy, log: Mutex::new(log), members: Mutex::default() };
                    let channel = Arc::new(channel);
                    shared.channels.push(Arc::clone(&channel));
                    channel
                };
                if let Some(owner) = owner.take() {
                    channel.join(owner);
                }
                None
            });
            let Some(value) = step else { return };
            match method.get().reply.encode(value.bind(py).clone()) {
                Ok(encoded) => known = Some((value, Arc::new(Item::of(&encoded)))),
                Err(error) => {
                    let Some(owner) = &owner else { return };
                    let (request, method) = (owner.request(), method.get());
                    let failure = describe_for(py, method, Call::new(request, method), &error);
                    request.fail(&failure);
                    request.finish();
                    return;
                }
            }
        }
    }
}

/// Where items are published.
#[pyclass(frozen, module = "nearcall._core")]
pub(crate) struct Topic {
    state: Arc<State>,
}

#[pymethods]
impl Topic {
    #[new]
    #[pyo3(signature = (*, max_buffer, drops, keeps_last))]
    fn new(max_buffer: usize, drops: bool, keeps_last: bool) -> Self {
        let policy = Policy { max_buffer, drops };
        Self { state: Arc::new(State { policy, keeps_last, shared: Mutex::default() }) }
    }

    /// Sends an item to all subscribers, and returns how many there are. Never waits for any of them.
    fn publish(&self, py: Python<'_>, item: &Bound<'_, PyAny>) -> PyResult<usize> {
        let value = Arc::new(item.clone().unbind());
        let mut encoded: Vec<(Arc<Channel>, Arc<Item>)> = Vec::new();
        loop {
            let (published, deserted) = detach(py, || self.state.publish(&value, &encoded));
            // Here, with the interpreter, because the channels hold Python's methods.
            drop(deserted);
            match published {
                Published::To(count) => return Ok(count),
                Published::Closed => {
                    return Err(PyRuntimeError::new_err("the topic is closed: nobody listens any more"));
                }
                Published::Encode(channels) => {
                    for channel in channels {
                        let item = channel.method.get().reply.encode(item.clone())?;
                        let item = Arc::new(Item::of(&item));
                        encoded.push((channel, item));
                    }
                }
            }
        }
    }

    /// So many items were lost before they came here; with 0 nobody knows how many. Subscribers that may miss items have missed
    /// them, and what still waited for them. All others are behind.
    fn skip(&self, py: Python<'_>, count: u64) {
        detach(py, || self.state.skip(count));
    }

    /// Ends all streams successfully; those of slow subscribers after the items that they have still to get. Harmless
    /// when repeated.
    fn close(&self, py: Python<'_>) {
        detach(py, || self.state.close());
    }

    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        detach(py, || self.state.shared.lock().closed)
    }

    /// How many subscribers there are.
    #[getter]
    fn subscribers(&self, py: Python<'_>) -> usize {
        detach(py, || self.state.shared.lock().count())
    }
}

impl Drop for Topic {
    fn drop(&mut self) {
        // Otherwise the subscribers would wait for ever. The thread that drops the topic may hold the interpreter.
        let mut state = Some(Arc::clone(&self.state));
        around_sleep(&mut || {
            if let Some(state) = state.take() {
                state.close();
            }
        });
    }
}

/// How an attempt to publish ended.
enum Published {
    To(usize),
    Closed,
    /// The item must be encoded for these channels first.
    Encode(Vec<Arc<Channel>>),
}

impl State {
    /// Publishes an item that is encoded for these channels. Returns the channels that nobody listens to any more, too.
    fn publish(&self, value: &Arc<Py<PyAny>>, encoded: &[(Arc<Channel>, Arc<Item>)]) -> (Published, Vec<Arc<Channel>>) {
        let mut shared = self.shared.lock();
        if shared.closed {
            return (Published::Closed, Vec::new());
        }
        let deserted = shared.take_deserted();
        let find = |channel: &Arc<Channel>| encoded.iter().find(|(known, _)| Arc::ptr_eq(known, channel));
        let unknown: Vec<_> =
            shared.channels.iter().filter(|channel| find(channel).is_none()).map(Arc::clone).collect();
        if !unknown.is_empty() {
            return (Published::Encode(unknown), deserted);
        }
        // `shared` is locked, so items are published one after the other: no subscriber that reads falls behind because
        // another item is published at the same time.
        for (channel, item) in shared.channels.iter().filter_map(find) {
            let mut log = channel.log.lock();
            log.push(Arc::clone(item), self.policy.max_buffer);
            drop(log);
            channel.send();
        }
        if self.keeps_last {
            shared.last = Some(Arc::clone(value));
        }
        (Published::To(shared.count()), deserted)
    }

    fn skip(&self, count: u64) {
        let shared = self.shared.lock();
        for channel in &shared.channels {
            if count > 0 || !channel.policy.drops {
                channel.log.lock().skip(count.max(1));
                channel.send();
            }
        }
    }

    fn close(&self) {
        let mut shared = self.shared.lock();
        if !std::mem::replace(&mut shared.closed, true) {
            for channel in &shared.channels {
                channel.close();
            }
        }
    }
}

impl Shared {
    fn count(&self) -> usize {
        self.channels.iter().map(|channel| channel.members.lock().len()).sum()
    }
}

/// What a method returns if its caller is to get a topic's items.
#[pyclass(frozen, subclass, module = "nearcall._core")]
pub(crate) struct Subscription {
    state: Arc<State>,
}

impl Subscription {
    /// Checks that items of the method can be sent to many clients.
    ///
    /// # Errors
    /// A `TypeError` that says why not.
    pub(crate) fn check(method: &Method) -> PyResult<()> {
        if method.reply.references() {
            let message = format!(
                "{}: a topic's items cannot hold references, which belong to one client: yield them in the method itself",
                method.name
            );
            return Err(PyTypeError::new_err(message));
        }
        Ok(())
    }

    /// Takes over a call whose handler has returned.
    pub(crate) fn take(&self, py: Python<'_>, method: &Py<Method>, owner: Box<dyn Owner>) {
        self.state.join(py, method, owner);
    }
}

#[pymethods]
impl Subscription {
    #[new]
    fn new(topic: &Topic) -> Self {
        Self { state: Arc::clone(&topic.state) }
    }
}
