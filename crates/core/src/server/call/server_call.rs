//! A call on the server for which more frames may come: stream items, credit, cancellation.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use nearcall_platform::clock::{self, is_past};
use nearcall_platform::fault::contained;
use nearcall_platform::lock::{Condvar, Mutex};
use nearcall_transport::{Body, Incoming, LinkError, Outgoing};
use nearcall_wire::Kind;

use crate::exports::MethodRouting;
use crate::flow::{TakenItems, WINDOW, cost, granted};
use crate::given::given_in;
use crate::server::call::waiting_items::WaitingItems;
use crate::server::connection::ServerConnection;
use crate::server::connection::values::ValuesCharge;
use crate::server::shared::statistics::Measured;
use crate::sync::{AtomicU32, Ordering, thread_number};

/// An item that comes at most so many nanoseconds after the last one of its stream is taken for one of many, which go
/// out together.
const QUICK_NS: u64 = 20_000;

/// The state of a call that its handler and the receiving worker share.
pub struct ServerCall {
    connection: Arc<ServerConnection>,
    id: u32,
    state: Mutex<CallState>,
    changed: Condvar,
    /// Told first of news, besides the threads that wait for the call: the event loop that handles it, or its native
    /// handler.
    observer: Option<Arc<dyn CallObserver>>,
    /// Present if the call is measured.
    measured: Option<Arc<Measured>>,
    /// The kind of the method.
    pub(in crate::server) routing: MethodRouting,
    /// What the last item that was taken takes as values, in the client's account.
    values: ValuesCharge,
    /// Sends the call's items once the handler is through.
    keeper: OnceLock<Weak<dyn CallObserver>>,
    /// The number of the worker's thread that runs the handler; 0 if none does.
    handler_thread: AtomicU32,
}

/// Told when something has come for a call: the client has given it up, there is room for more items, or the server
/// begins to stop. The observer asks the call and the server what it was. None of this may wait for anything.
pub trait CallObserver: Send + Sync {
    /// Something has come.
    fn changed(&self, _call: &Arc<ServerCall>) {}
}

#[derive(Debug, Default)]
struct CallState {
    items: WaitingItems,
    ended: bool,
    cancelled: bool,
    /// The last frame of the call is sent, or will never be.
    over: bool,
    /// What the handler may still send, bytes.
    credit: i64,
    /// The length of the item that was last tried.
    tried: usize,
    /// When the handler has sent its last item, nanoseconds on the monotonic clock; 0 if it has asked for one since.
    last_sent_ns: u64,
    /// What the client may still send, bytes: it may begin an item as long as anything is left.
    allowance: i64,
    taken: TakenItems,
    /// Whether the item that was taken last came compressed; `None`: none was.
    was_compressed: Option<bool>,
    /// How often anything has changed: tells a waiter that it looked too early.
    changes: u64,
}

/// What came of asking for the next item of the client's stream.
#[derive(Debug)]
pub enum NextItem {
    /// An item.
    Item(Incoming),
    /// The stream is complete.
    End,
    /// The client gave the call up, or is gone.
    Cancelled,
    /// The call is over.
    Over,
    /// Nothing yet.
    Pending,
    /// The call's deadline has passed.
    Late,
}

/// What came of sending an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemOutcome {
    /// It is on its way.
    Sent,
    /// The client gave the call up, or is gone.
    Cancelled,
    /// The client must take items first.
    NoCredit,
    /// The call's deadline has passed.
    Late,
}

impl fmt::Debug for ServerCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCall").field("id", &self.id).finish_non_exhaustive()
    }
}

impl CallState {
    /// Whether an item comes so soon after the last one that others will follow.
    fn follows_quickly(&mut self) -> bool {
        let now = clock::monotonic_ns();
        now - std::mem::replace(&mut self.last_sent_ns, now) < QUICK_NS
    }
}

impl ServerCall {
    pub(in crate::server) fn new(
        connection: Arc<ServerConnection>,
        id: u32,
        observer: Option<Arc<dyn CallObserver>>,
        measured: Option<Arc<Measured>>,
        routing: MethodRouting,
    ) -> Self {
        let state = CallState { credit: WINDOW, allowance: WINDOW, ..CallState::default() };
        let (state, changed, keeper) = (Mutex::new(state), Condvar::new(), OnceLock::new());
        let (values, handler_thread) = (ValuesCharge::default(), AtomicU32::new(0));
        Self { connection, id, state, changed, observer, measured, routing, values, keeper, handler_thread }
    }

    /// The calling thread, a worker, runs the handler.
    pub(in crate::server) fn handle_here(&self) {
        // Relaxed, and below: whoever gets the call from the handler has it after this. Others would only not be told.
        self.handler_thread.store(thread_number(), Ordering::Relaxed);
    }

    /// The number of the thread that runs the handler, if a worker does, or 0.
    pub(in crate::server) fn handler_thread(&self) -> u32 {
        self.handler_thread.load(Ordering::Relaxed)
    }

    /// The client's number of the call.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Whether the client gave the call up, or is gone.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.state.lock().cancelled
    }

    pub(in crate::server) fn cancel(self: &Arc<Self>) {
        let unread = {
            let mut state = self.state.lock();
            state.cancelled = true;
            state.changes += 1;
            std::mem::take(&mut state.items)
        };
        self.let_go_of(unread);
        self.tell();
    }

    /// The client's connection.
    #[must_use]
    pub fn connection(&self) -> &Arc<ServerConnection> {
        &self.connection
    }

    /// The charge for the values of the item that was taken last.
    #[must_use]
    pub fn values(&self) -> &ValuesCharge {
        &self.values
    }

    /// The call is over: nobody reads the items that are still here, so the references given in them are released.
    /// Whoever goes on reading does not wait for more.
    pub(in crate::server) fn end(&self) {
        let items = {
            let mut state = self.state.lock();
            state.over = true;
            state.changes += 1;
            std::mem::take(&mut state.items)
        };
        // A thread that the handler has started may read, too.
        self.changed.notify_all();
        self.let_go_of(items);
    }

    /// Nobody reads these items. Their memory is free now, however long the handler goes on.
    fn let_go_of(&self, items: WaitingItems) {
        if self.routing.item_references {
            for item in items {
                self.connection.release_given(&given_in(&item.head, &item.payload));
            }
        }
    }

    pub(in crate::server) fn take_in(self: &Arc<Self>, event: Incoming) -> Result<(), LinkError> {
        let unread = {
            let mut state = self.state.lock();
            state.changes += 1;
            match event.head.kind {
                Kind::Item => {
                    if state.ended {
                        return Err(LinkError::Broken("the client sent an item after the end of its stream".into()));
                    }
                    if state.allowance <= 0 {
                        return Err(LinkError::Broken("the client sent more items than it may".into()));
                    }
                    state.allowance -= cost(event.payload.len());
                    if let Some(measured) = &self.measured {
                        measured.item_in(event.payload.len());
                    }
                    state.items.push(event, || Arc::clone(self.connection.items_account()));
                }
                Kind::End => state.ended = true,
                Kind::Cancel => state.cancelled = true,
                Kind::Credit => {
                    let more = event.payload.inline().and_then(granted);
                    let more = more.ok_or_else(|| LinkError::Broken("a credit frame is malformed".into()))?;
                    state.credit = state.credit.saturating_add(more);
                }
                _ => {}
            }
            state.cancelled.then(|| std::mem::take(&mut state.items))
        };
        if let Some(unread) = unread {
            self.let_go_of(unread);
        }
        self.tell();
        Ok(())
    }

    fn tell(self: &Arc<Self>) {
        self.changed.notify_all();
        // The one who tells has other calls to tell of news, too.
        let told = contained(|| match self.keeper.get() {
            Some(keeper) => _ = keeper.upgrade().inspect(|keeper| keeper.changed(self)),
            None => _ = self.observer.as_ref().inspect(|observer| observer.changed(self)),
        });
        if let Err(fault) = told {
            self.connection.tell_end(&fault.into());
            self.connection.link.close();
        }
    }

    /// From now on only `keeper` is told of news. It must look once by itself for what came before.
    pub(in crate::server) fn keep(&self, keeper: Weak<dyn CallObserver>) {
        // A call is kept once: its handler is through.
        let _ = self.keeper.set(keeper);
        // A thread that stops the server locks this state, too. Either it finds the keeper afterwards, or the keeper
        // sees that the server stops.
        self.state.lock().changes += 1;
    }

    /// Whether a keeper has taken the call over from its handler.
    pub(in crate::server) fn is_kept(&self) -> bool {
        drop(self.state.lock());
        self.keeper.get().is_some()
    }

    /// There may be room again to send.
    pub(in crate::server) fn nudge(self: &Arc<Self>) {
        self.state.lock().changes += 1;
        self.tell();
    }

    /// The next item of the client's stream, if it is here.
    pub fn try_next_item(&self) -> NextItem {
        let (next, credit) = {
            let mut state = self.state.lock();
            // The client may wait for the handler's next item before it sends more. That item must not be kept back.
            state.last_sent_ns = 0;
            let next = self.next(&mut state);
            let credit = match &next {
                Some(NextItem::Item(item)) => {
                    state.was_compressed = Some(Incoming::was_compressed(&item.head));
                    state.taken.count(item.payload.len())
                }
                _ => None,
            };
            state.allowance += credit.unwrap_or(0) as i64;
            (next.unwrap_or(NextItem::Pending), credit)
        };
        if matches!(next, NextItem::Pending) {
            self.connection.release_own();
        }
        if let Some(credit) = credit {
            let bytes = credit.to_le_bytes();
            // If it cannot be sent the client is gone, which the next item reports.
            let _ = self.connection.send(self.id, &Outgoing::new(Kind::Credit, Body::Whole(&bytes)));
        }
        next
    }

    /// Whether the item that was taken last came compressed; `None`: none was.
    pub(in crate::server) fn was_compressed(&self) -> Option<bool> {
        self.state.lock().was_compressed
    }

    fn next(&self, state: &mut CallState) -> Option<NextItem> {
        if state.cancelled {
            return Some(NextItem::Cancelled);
        }
        if state.over {
            return Some(NextItem::Over);
        }
        match state.items.pop(|| Arc::clone(self.connection.items_account())) {
            Some(mut item) => {
                item.begin_work();
                Some(NextItem::Item(item))
            }
            None if state.ended => Some(NextItem::End),
            None => None,
        }
    }

    /// Whether [`ServerCall::try_next_item`] has something to say.
    pub(in crate::server) fn has_next(&self) -> bool {
        let state = self.state.lock();
        state.cancelled || state.over || state.ended || !state.items.is_empty()
    }

    /// Sends an item if the call's deadline, `until`, has not passed, there is credit for the item, and the client reads
    /// what it is sent. After the deadline a caller gets nothing but word of that.
    ///
    /// # Errors
    /// As [`Request::reply`](crate::server::Request::reply).
    pub fn try_send_item(&self, item: &Outgoing<'_>, until: Option<Instant>) -> Result<ItemOutcome, LinkError> {
        if is_past(until) {
            return Ok(ItemOutcome::Late);
        }
        let is_one_of_many = {
            let mut state = self.state.lock();
            if state.cancelled || state.over {
                return Ok(ItemOutcome::Cancelled);
            }
            state.tried = item.len();
            if state.credit <= 0 {
                drop(state);
                self.connection.release_own();
                return Ok(ItemOutcome::NoCredit);
            }
            state.credit -= cost(item.len());
            // Shared memory has no system call that could be saved.
            !self.connection.looking_is_cheap() && state.follows_quickly()
        };
        // The link's lock is not waited for with the call's held. Asked last: a stream without credit could not use the room
        // that it is told of.
        if !self.connection.takes_item_or_tells(self.id, item.len()) {
            self.state.lock().credit += cost(item.len());
            self.connection.release_own();
            return Ok(ItemOutcome::NoCredit);
        }
        let sent = if is_one_of_many {
            self.connection.send_together(self.id, item)
        } else {
            self.connection.send(self.id, item)
        };
        match sent {
            Ok(()) => {
                if let Some(measured) = &self.measured {
                    measured.item_out(item.len());
                }
                Ok(ItemOutcome::Sent)
            }
            Err(error) if error.spares_connection() => Err(error),
            Err(_) => Ok(ItemOutcome::Cancelled),
        }
    }

    /// Whether [`ServerCall::try_send_item`] would send one. If only room is missing, the call is told when the client
    /// has read.
    pub(in crate::server) fn may_send(&self) -> bool {
        let (ends, has_credit, len) = {
            let state = self.state.lock();
            (state.cancelled || state.over, state.credit > 0, state.tried)
        };
        ends || (has_credit && self.connection.takes_item_or_tells(self.id, len))
    }

    /// Sleeps until something has come for the call, or it is `ready`, but no longer than `timeout`.
    pub(in crate::server) fn wait_changed(&self, ready: impl Fn(&Self) -> bool, timeout: Duration) {
        let seen = self.state.lock().changes;
        // `ready` locks the state itself, so it is asked outside; a change in between is seen by the count.
        if ready(self) {
            return;
        }
        let mut state = self.state.lock();
        if state.changes == seen {
            self.changed.wait_for(&mut state, timeout);
        }
    }
}
