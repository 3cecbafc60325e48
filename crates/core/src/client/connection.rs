//! A client's connection, and the calls over it.

use crate::sync::{AtomicBool, Ordering};
use std::any::Any;
use std::num::NonZeroU64;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use nearcall_platform::descriptors::EventDescriptor;
use nearcall_platform::{fork, sys};
use nearcall_transport::{Body, CallKey, Connected, Incoming, Link, Outgoing, Peer, Room, Sent, Url};
use nearcall_wire::{Failure, Kind, Released, Welcome, flags};

use super::awaited::Sleeper;
use super::leadership::Leadership;
use super::table::{CallId, SharedTable, Waker};
use crate::exports::{Export, Exports, Identity, Methods, Object};
use crate::flow::{Taken, cost};
use crate::given::release_payloads;

/// A connection to a server, or the half of a server's connection that calls the client. Any number of threads, or one event
/// loop, may use it at once.
///
/// A client has no background thread. A thread that waits for a reply receives by itself; if another one already does, that
/// one delivers, and hands the task on when its own reply has come.
pub struct Connection {
    pub(super) this: Weak<Self>,
    pub(super) link: Arc<dyn Link>,
    /// What the server said of itself.
    pub(super) welcome: Option<Welcome>,
    /// Who is at the other end, in messages: a server's URL, or a client.
    pub(super) name: String,
    /// What the frames of calls that are made here say of who began them: [`flags::BACK`](nearcall_wire::flags::BACK) if this
    /// side has accepted the connection.
    pub(super) side: u8,
    /// Of the thread that receives.
    pub(super) receiving: Leadership,
    pub(super) table: SharedTable,
    /// The connection is lost or closed.
    pub(super) lost: AtomicBool,
    /// The server takes no new calls here.
    pub(super) going_away: AtomicBool,
    /// When it said so first.
    pub(super) parted: OnceLock<Instant>,
    pub(super) generation: u32,
    /// An event loop uses it: sending must not wait.
    pub(super) in_loop: AtomicBool,
    /// A thread sends what waits.
    pub(super) flushing: Arc<AtomicBool>,
    /// The objects that the other side may call.
    pub(super) exports: Arc<Exports>,
    /// The server that receives for it, if one does.
    pub(super) received: OnceLock<Arc<dyn Receiver>>,
    /// What the binding keeps with it.
    pub(super) attached: OnceLock<Box<dyn Any + Send + Sync>>,
    /// Wakes the event loop that makes calls here, while a server receives.
    pub(super) loop_event: OnceLock<EventDescriptor>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("name", &self.name).field("link", &self.link).finish_non_exhaustive()
    }
}

/// A server that receives for a connection, in the place of the threads that wait for replies.
pub(crate) trait Receiver: Send + Sync {
    /// The calling thread waits for a reply, and counts as none of the server's workers meanwhile. It receives, for all of the
    /// server, until that is over or for `slice`; if another thread does so, it sleeps, out of which it is woken when
    /// something has come for it.
    fn wait(&self, sleeper: &mut dyn Sleeper, slice: Duration);

    /// Whether the calling thread may wait for a reply.
    ///
    /// # Errors
    /// Too many of the server's workers do so.
    fn may_wait(&self) -> Result<(), Failure>;

    /// A thread is woken that waits for a reply.
    fn note_woken(&self);

    /// Something waits to be sent: whoever receives sends it when there is room.
    fn note_queued(&self);

    /// Something has come for a call of an event loop.
    fn tell_loop(&self, connection: &Arc<Connection>);

    /// The thread that received for the connection until now has left that.
    fn take_over(&self);
}

/// What is known of the answer to a call before it comes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expected {
    /// An event loop waits for it.
    pub in_loop: bool,
    /// It may hold references.
    pub references: bool,
}

/// Why a wait ended without an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoEvent {
    /// The deadline passed; the call is still under way.
    DeadlinePassed,
    /// A signal arrived; wait again after it was handled.
    Interrupted,
    /// The call has ended already.
    Ended,
}

impl Connection {
    pub(super) fn new(url: &Url, connected: Connected) -> Arc<Self> {
        let Connected { link, welcome } = connected;
        Self::of(link, Some(welcome), url.to_string(), 0, Exports::new(), OnceLock::new())
    }

    /// The half of a server's connection that calls the client.
    pub(crate) fn to_client(link: Arc<dyn Link>, exports: Arc<Exports>, receiver: Arc<dyn Receiver>) -> Arc<Self> {
        let name = link.peer().to_string();
        Self::of(link, None, name, flags::BACK, exports, receiver.into())
    }

    fn of(
        link: Arc<dyn Link>,
        welcome: Option<Welcome>,
        name: String,
        side: u8,
        exports: Arc<Exports>,
        received: OnceLock<Arc<dyn Receiver>>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            link,
            welcome,
            name,
            side,
            receiving: Leadership::default(),
            table: SharedTable::default(),
            lost: AtomicBool::new(false),
            going_away: AtomicBool::new(false),
            parted: OnceLock::new(),
            generation: fork::mark(),
            in_loop: AtomicBool::new(false),
            flushing: Arc::default(),
            exports,
            received,
            attached: OnceLock::new(),
            loop_event: OnceLock::new(),
        })
    }

    /// How the server describes itself; empty if this is the server.
    #[must_use]
    pub fn description(&self) -> &str {
        self.welcome.as_ref().map_or("", |welcome| &welcome.description)
    }

    /// Who is at the other end, in messages: a server's URL, or a client.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// "server" or "client": what is at the other end.
    pub(super) fn other(&self) -> &'static str {
        if self.side == 0 { "server" } else { "client" }
    }

    /// What the binding keeps with the connection; made by the first who asks.
    pub fn attached(&self, make: impl FnOnce() -> Box<dyn Any + Send + Sync>) -> &(dyn Any + Send + Sync) {
        &**self.attached.get_or_init(make)
    }

    /// Counts one more of an object that is about to be sent; its number.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if the other side holds too many, `UNAVAILABLE` if the connection is gone, `FAILED_PRECONDITION` if
    /// the other side cannot call.
    pub fn give(
        &self,
        identity: Identity,
        methods: &Arc<Methods>,
        make: impl FnOnce() -> Object,
    ) -> Result<NonZeroU64, Failure> {
        self.exports.give(identity, methods, make)
    }

    /// What was given was not sent: one fewer of each.
    pub fn take_back(&self, given: &[NonZeroU64]) {
        self.exports.take_back(given);
    }

    /// The own object of that number, which came home in a message that is being read.
    #[must_use]
    pub fn given(&self, id: NonZeroU64) -> Option<Arc<Export>> {
        self.exports.home(id)
    }

    /// Tells the other side that so many fewer of an object of its own are held here. Never waits.
    pub fn release(&self, id: NonZeroU64, count: u32) {
        self.send_release(&Released(vec![(id, count)]).encode());
    }

    /// The same for what was given in messages, or in parts of them, that nobody has read, nor ever will.
    pub fn release_given(&self, given: &[NonZeroU64]) {
        release_payloads(given).for_each(|payload| self.send_release(&payload));
    }

    fn send_release(&self, payload: &[u8]) {
        if self.is_dead() || !self.is_ours() {
            return;
        }
        let release = Outgoing::new(Kind::Release, Body::Whole(payload));
        match self.link.send(CallKey { number: 0, side: 0 }, &release, Room::Later) {
            Ok(Sent::Queued | Sent::Kept) => self.note_queued(),
            Ok(Sent::Out) => {}
            // There is no room even to keep it: the peer reads nothing, and holds up its own memory.
            Err(error) if error.spares_connection() => {}
            Err(error) => self.mark_lost(&error),
        }
    }

    /// Who the server is.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        self.link.peer()
    }

    /// The connection itself, for an event loop to poll.
    #[must_use]
    pub fn link(&self) -> &dyn Link {
        &*self.link
    }

    /// Whether calls that the server has not begun with are [told from others](Incoming::is_unbegun) here.
    #[must_use]
    pub fn tells_unbegun(&self) -> bool {
        self.link.tells_unbegun()
    }

    /// Calls under way.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.table.lock().live()
    }

    /// Whether the connection is lost or closed.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        // Acquire: whoever sees the loss finds the calls told of it.
        self.lost.load(Ordering::Acquire)
    }

    /// Whether the server has said that it takes no new calls here: one that it refused was never begun.
    #[must_use]
    pub fn is_going_away(&self) -> bool {
        // Relaxed: a hint for where to send the next call.
        self.going_away.load(Ordering::Relaxed)
    }

    /// When the server said so, as far as that was noticed.
    pub(super) fn parted(&self) -> Option<Instant> {
        self.parted.get().copied()
    }

    /// Whether a new call may be sent: not on a lost connection, nor on one that a parent process owns.
    #[inline]
    #[must_use]
    pub fn is_usable(&self) -> bool {
        !self.is_dead() && !self.is_going_away() && self.is_ours()
    }

    /// Whether this very process made the connection, not one that it was forked from.
    #[inline]
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.generation == fork::generation()
    }

    /// Ends the connection; calls under way fail with `CANCELLED`. Whether all that was accepted was sent: the rest of a
    /// long one-way message gets a moment.
    pub fn close(&self) -> bool {
        if !self.is_ours() {
            return true;
        }
        let complete = self.await_flush();
        let failure = Failure::new(Failure::CANCELLED, format!("the connection to {} was closed", self.name));
        self.end(&failure);
        complete
    }

    /// Sends a call. Replies reach [`Connection::next_event`], or, for a call of an event loop, [`Connection::pump`].
    ///
    /// # Errors
    /// The failure the call ends with, if it could not be sent.
    pub fn begin(&self, request: &Outgoing<'_>, expected: Expected) -> Result<CallId, Failure> {
        self.begin_by(Self::send, request, expected)
    }

    /// The same for one of several calls that are begun before the first of them is waited for: it does not wait for room,
    /// as a server that reads nothing would hold the calls of the others up.
    ///
    /// # Errors
    /// As for [`Connection::begin`]; `RESOURCE_EXHAUSTED` if too much waits for room already.
    pub fn begin_ahead(&self, request: &Outgoing<'_>, expected: Expected) -> Result<CallId, Failure> {
        self.begin_by(Self::send_later, request, expected)
    }

    #[inline]
    fn begin_by(
        &self,
        send: impl FnOnce(&Self, u32, &Outgoing<'_>) -> Result<(), Failure>,
        request: &Outgoing<'_>,
        expected: Expected,
    ) -> Result<CallId, Failure> {
        let Expected { in_loop, references } = expected;
        self.listen_first()?;
        if !in_loop && let Some(receiver) = self.received.get() {
            receiver.may_wait()?;
        }
        let waker = if in_loop { Waker::Loop } else { Waker::None };
        if in_loop {
            // Relaxed: the loop's own thread sends next.
            self.in_loop.store(true, Ordering::Relaxed);
        }
        let id = self.table.lock().begin(waker, references)?;
        if let Err(error) = send(self, id.number(), request) {
            self.table.lock().end(id);
            return Err(error);
        }
        Ok(id)
    }

    /// Hears a goodbye that came while nobody listened, rather than sending a call into the void.
    #[inline]
    pub(super) fn listen_first(&self) -> Result<(), Failure> {
        if !self.link.is_stale() {
            return Ok(());
        }
        if let Some(_lead) = self.try_lead() {
            self.receive(None);
        }
        if self.is_going_away() || self.is_dead() {
            return Err(self.stopped());
        }
        Ok(())
    }

    /// Looks whether the server still is there, although nothing was sent or waited for. Whether a new call may be sent.
    #[must_use]
    pub fn stands(&self) -> bool {
        if !self.is_usable() {
            return false;
        }
        self.look();
        if sys::hung_up(self.link.fd()) {
            // What it sent before is here now. Whoever waits for more notices the end by itself.
            self.look();
            if self.in_flight() == 0 {
                self.notice_loss();
            }
        }
        self.is_usable()
    }

    /// Sends an item of the call's stream, waiting for credit. `false` if the call has ended: its outcome is to be taken.
    ///
    /// # Errors
    /// [`NoEvent::Interrupted`], [`NoEvent::DeadlinePassed`], or the failure to send.
    pub fn send_item(
        &self,
        id: CallId,
        item: &Outgoing<'_>,
        deadline: Option<Instant>,
    ) -> Result<bool, Result<NoEvent, Failure>> {
        let cost = cost(item.len());
        let paid = self.until(id, deadline, None, |table| {
            let Some(call) = table.get(id) else { return Some(false) };
            if call.arrived.iter().any(Incoming::ends_call) {
                return Some(false);
            }
            (call.credit > 0).then(|| {
                call.credit -= cost;
                true
            })
        });
        match paid {
            Ok(true) => self.send_until(id.number(), item, deadline).map(|()| true).map_err(Err),
            Ok(false) => Ok(false),
            Err(no_event) => Err(Ok(no_event)),
        }
    }

    /// Like [`Connection::send_item`] but does not wait for credit: `None` if there is none now.
    ///
    /// # Errors
    /// The failure to send.
    pub fn try_send_item(
        &self,
        id: CallId,
        item: &Outgoing<'_>,
        deadline: Option<Instant>,
    ) -> Result<Option<bool>, Failure> {
        {
            let mut table = self.table.lock();
            let Some(call) = table.get(id) else { return Ok(Some(false)) };
            if call.arrived.iter().any(Incoming::ends_call) {
                return Ok(Some(false));
            }
            if call.credit <= 0 {
                return Ok(None);
            }
            call.credit -= cost(item.len());
        }
        self.send_until(id.number(), item, deadline).map(|()| Some(true))
    }

    /// Says that the call's stream is complete.
    ///
    /// # Errors
    /// The failure to send.
    pub fn end_stream(&self, id: CallId, deadline: Option<Instant>) -> Result<(), Failure> {
        self.send_until(id.number(), &Outgoing::new(Kind::End, Body::Whole(&[])), deadline)
    }

    /// Gives a call up: the server is told, late replies are dropped, a thread that waits for it stops waiting.
    pub fn cancel(&self, id: CallId) {
        let (known, unread) = {
            let mut table = self.table.lock();
            let known = table.get(id).is_some();
            table.end(id);
            (known, table.take_unread())
        };
        self.release_given(&unread);
        if known {
            // If it cannot be sent the connection is lost, which cancels as well. A server that takes nothing is not waited
            // for: it learns of it when it does.
            let _ = self.send_later(id.number(), &Outgoing::new(Kind::Cancel, Body::Whole(&[])));
            if self.receiving.is_led() {
                // The thread that receives may be the one that waits for this call: the answer wakes it.
                let _ = self.send_later(u32::MAX, &Outgoing::new(Kind::Ping, Body::Whole(&[])));
            }
        }
    }

    /// Grants the server more credit for its stream.
    pub fn grant(&self, id: CallId, credit: u64, deadline: Option<Instant>) {
        if let Some(call) = self.table.lock().get(id) {
            call.allowance = call.allowance.saturating_add_unsigned(credit);
        }
        // As in `cancel`.
        let _ =
            self.send_until(id.number(), &Outgoing::new(Kind::Credit, Body::Whole(&credit.to_le_bytes())), deadline);
    }

    /// Asks the server for a sign of life and returns how long it took.
    ///
    /// # Errors
    /// As for a call.
    pub fn ping(&self, deadline: Option<Instant>) -> Result<Duration, Result<NoEvent, Failure>> {
        self.listen_first().map_err(Err)?;
        let id = self.table.lock().begin(Waker::None, false).map_err(Err)?;
        let begun = Instant::now();
        let ping = Outgoing::new(Kind::Ping, Body::Whole(&[]));
        let sent = self.send_until(id.number(), &ping, deadline).map_err(Err);
        let event = sent.and_then(|()| self.next_event(id, deadline).map_err(Ok));
        self.table.lock().end(id);
        let event = event?;
        match event.head.kind {
            Kind::Pong => Ok(begun.elapsed()),
            Kind::Error => Err(Err(event.failure().unwrap_or_else(Failure::from))),
            _ => Err(Err(Failure::new(Failure::INTERNAL, "the server answered a ping with something else"))),
        }
    }
}

pub(super) fn is_past(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.link.close();
    }
}

/// What a stream's receiver has taken and not yet paid for with credit.
#[derive(Debug, Default)]
pub struct StreamAccount(Taken);

impl StreamAccount {
    /// Counts an item that the user has taken; the credit to [grant](Connection::grant) now, if any.
    pub fn count(&mut self, item: usize) -> Option<u64> {
        self.0.count(item)
    }
}
