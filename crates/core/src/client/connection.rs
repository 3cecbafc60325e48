//! A client's connection, and the calls over it.

use crate::sync::{AtomicBool, Ordering};
use std::any::Any;
use std::fmt::Display;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use nearcall_platform::descriptors::EventDescriptor;
use nearcall_platform::fork::Owned;
use nearcall_platform::sys;
use nearcall_transport::{
    Body, CallKey, Connected, Incoming, Link, LinkError, MemoryLink, Outgoing, Peer, Room, Sent, Url,
};
use nearcall_wire::{Failure, Kind, Released, Welcome, flags};

use crate::client::own_event::OwnEvent;
use crate::client::table::leadership::ClientLeadership;
use crate::client::table::shared_table::SharedTable;
use crate::client::table::{CallId, NO_CALL};
use crate::exports::{Export, Exports, Identity, Methods, Object};
use crate::given::release_payloads;

/// A connection to a server, or the half of a server's connection that calls the client. Any number of threads, or one event
/// loop, may use it at once.
///
/// A client has no background thread. A thread that waits for a reply receives by itself. If another thread already
/// receives, that thread delivers the reply, and hands the task on when its own reply has come.
///
/// A forked child inherits its parent's connections and may not use them: the parent goes on using the socket and the
/// ring, and a thread that the child does not have may have held a lock. There a connection is lost, and its calls have
/// ended.
pub struct Connection {
    /// What the server said of itself in the handshake; `None` if the other side is the client.
    welcome: Option<Welcome>,
    /// Data that the binding keeps with the connection.
    attached: OnceLock<Box<dyn Any + Send + Sync>>,
    inner: Owned<Inner>,
}

/// The part of a connection that only the process may use that made it. A method of [`Connection`] gets it from
/// [`Connection::inner`], and so says what is true in a forked child.
pub(super) struct Inner {
    pub(super) this: Weak<Connection>,
    pub(super) link: Arc<dyn Link>,
    /// Names the other side in messages: a server's URL, or a client.
    pub(super) name: String,
    /// The flag that says, in the frames of calls made here, which side began the call:
    /// [`flags::BACK`] if this side has accepted the connection.
    pub(super) side: u8,
    /// Decides which thread receives.
    pub(super) receiving: ClientLeadership,
    pub(super) table: SharedTable,
    /// The connection is lost or closed.
    pub(super) lost: AtomicBool,
    /// When the server first said that it takes no new calls here.
    pub(super) parted: OnceLock<Instant>,
    /// An event loop uses the connection: sending must not wait.
    pub(super) in_loop: AtomicBool,
    /// A thread sends the queued frames.
    pub(super) flushing: Arc<AtomicBool>,
    /// The objects that the other side may call.
    pub(super) exports: Arc<Exports>,
    /// The same link as `link`, if it is over memory.
    pub(super) memory: Option<Arc<dyn MemoryLink>>,
    /// For a link without a descriptor.
    pub(super) own_event: OwnEvent,
    /// The server of this process that receives in place of waiting threads, if there is one.
    pub(super) received: OnceLock<Arc<dyn Receiver>>,
    /// Wakes the event loop that makes calls here, while a server receives.
    pub(super) loop_event: OnceLock<EventDescriptor>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Inner { name, link, .. } = self.even_in_child();
        f.debug_struct("Connection").field("name", name).field("link", link).finish_non_exhaustive()
    }
}

/// A server that receives for a connection, in the place of the threads that wait for replies.
pub(crate) trait Receiver: Send + Sync {
    /// The calling thread waits for a reply, and counts as none of the server's workers meanwhile. It receives, for all of the
    /// server, until that is over or for `slice`; if another thread does so, it sleeps, out of which it is woken when
    /// something has come for it.
    fn wait(&self, awaited: &mut dyn Awaited, slice: Duration);

    /// Whether the calling thread may wait for a reply.
    ///
    /// # Errors
    /// Too many of the server's workers wait already.
    fn may_wait(&self) -> Result<(), Failure>;

    /// Called when a thread that waits for a reply is woken.
    fn note_woken(&self);

    /// A frame waits to be sent: the receiving thread sends it when there is room.
    fn note_queued(&self, sent: Sent);

    /// Something has come for a call of an event loop.
    fn tell_loop(&self, connection: &Arc<Connection>);

    /// The thread that received on the connection until now has stopped: the server receives from now on.
    fn take_over(&self);
}

/// What a thread waits for while it receives for a server.
pub(crate) trait Awaited {
    /// Whether the thread need not wait any longer.
    fn is_over(&mut self) -> bool;

    /// Takes in a frame of a call that this side has made, from the connection over which the awaited frame is to come.
    /// Whether the thread need not wait any longer.
    fn take_in(&mut self, _arrived: &mut Option<Incoming>) -> bool {
        self.is_over()
    }

    /// Sleeps until something may have come for the thread, while another thread receives. Whether the thread need not wait
    /// any longer.
    fn sleep(&mut self) -> bool {
        self.is_over()
    }
}

/// Whoever waits for no frame of a call of its own.
impl<F: FnMut() -> bool> Awaited for F {
    fn is_over(&mut self) -> bool {
        self()
    }
}

/// What is known of the answer to a call before it comes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expected<'a> {
    /// An event loop waits for it.
    pub in_loop: bool,
    /// It may hold references.
    pub references: bool,
    /// The references given with the call. They are taken back if the answer says that they were not read.
    pub given: &'a [NonZeroU64],
}

/// Why a wait ended without an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoEvent {
    /// The deadline passed; the call is still under way.
    DeadlinePassed,
    /// A signal arrived, and the wait is not to go on.
    Interrupted,
    /// The call has ended already.
    Ended,
    /// The call is that of a process which this one was forked from.
    Inherited,
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

    pub(super) fn of(
        link: Arc<dyn Link>,
        welcome: Option<Welcome>,
        name: String,
        side: u8,
        exports: Arc<Exports>,
        received: OnceLock<Arc<dyn Receiver>>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| {
            let inner = Inner {
                this: this.clone(),
                memory: Arc::clone(&link).memory(),
                own_event: OwnEvent::default(),
                link,
                name,
                side,
                receiving: ClientLeadership::default(),
                table: SharedTable::default(),
                lost: AtomicBool::new(false),
                parted: OnceLock::new(),
                in_loop: AtomicBool::new(false),
                flushing: Arc::default(),
                exports,
                received,
                loop_event: OnceLock::new(),
            };
            Self { welcome, attached: OnceLock::new(), inner: Owned::new(inner) }
        })
    }

    /// What this process may use; `None` in a forked child.
    #[inline]
    pub(super) fn inner(&self) -> Option<&Inner> {
        self.inner.get()
    }

    /// The same in a forked child as well: for what never changes and has no lock.
    pub(super) fn even_in_child(&self) -> &Inner {
        self.inner.even_in_child()
    }

    /// The same, for something that fails in a forked child.
    #[inline]
    pub(super) fn inner_or_failure(&self) -> Result<&Inner, Failure> {
        self.inner().ok_or_else(|| {
            let text =
                format!("the connection to {} belongs to the process that this one was forked from", self.name());
            Failure::new(Failure::UNAVAILABLE, text)
        })
    }

    /// How the server describes itself; empty if this is the server.
    #[must_use]
    pub fn description(&self) -> &str {
        self.welcome.as_ref().map_or("", |welcome| &welcome.description)
    }

    /// Names the other side in messages: a server's URL, or a client.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.even_in_child().name
    }

    /// The binding's data for the connection; the first call makes it.
    pub fn attached(&self, make: impl FnOnce() -> Box<dyn Any + Send + Sync>) -> &(dyn Any + Send + Sync) {
        &**self.attached.get_or_init(make)
    }

    /// Counts one more reference to an object that is about to be sent. Returns the object's number.
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
        self.inner_or_failure()?.exports.give(identity, methods, make)
    }

    /// The message with these references was not sent: counts one fewer of each.
    pub fn take_back(&self, given: &[NonZeroU64]) {
        if let Some(inner) = self.inner() {
            inner.exports.take_back(given);
        }
    }

    /// This side's own object with that number, which came back in a message that is being read.
    #[must_use]
    pub fn given(&self, id: NonZeroU64) -> Option<Arc<Export>> {
        self.inner()?.exports.home(id)
    }

    /// Tells the other side that this side holds `count` fewer references to its object. Never waits.
    pub fn release(&self, id: NonZeroU64, count: u32) {
        if let Some(inner) = self.inner() {
            inner.send_release(&Released(vec![(id, count)]).encode());
        }
    }

    /// Releases references in messages, or in parts of messages, that nobody will ever read.
    pub fn release_given(&self, given: &[NonZeroU64]) {
        if let Some(inner) = self.inner() {
            inner.release_given(given);
        }
    }

    /// Who the server is.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        self.even_in_child().link.peer()
    }

    /// Whether messages cross it in shared memory.
    #[must_use]
    pub fn is_memory(&self) -> bool {
        self.even_in_child().memory.is_some()
    }

    /// Whether this connection can tell that the server has not begun a call.
    #[must_use]
    pub fn tells_unbegun(&self) -> bool {
        self.inner().is_some_and(|inner| inner.link.properties().tells_unbegun)
    }

    /// Calls under way.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.inner().map_or(0, |inner| inner.table.lock().live())
    }

    /// Whether the connection is lost or closed.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.inner().is_none_or(Inner::is_dead)
    }

    /// Whether the server has said that it takes no new calls here. It never began a call that it refused.
    #[must_use]
    pub fn is_going_away(&self) -> bool {
        self.inner().is_some_and(Inner::is_going_away)
    }

    /// When this side noticed that the server is going away.
    pub(super) fn parted(&self) -> Option<Instant> {
        self.inner()?.parted.get().copied()
    }

    /// Whether a new call may be sent: not if the connection is lost, the server is going away, or a parent process
    /// owns the connection.
    #[inline]
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.inner().is_some_and(Inner::is_usable)
    }

    /// Ends the connection; calls under way fail with `CANCELLED`, or with `failure`. The rest of a long one-way message
    /// gets a moment. Returns whether everything accepted was sent.
    pub fn close(&self, failure: Option<&Failure>) -> bool {
        let Some(inner) = self.inner() else { return true };
        let complete = inner.await_flush();
        match failure {
            Some(failure) => inner.end(failure),
            None => inner.end(&closed(&inner.name)),
        }
        complete
    }

    /// Sends a call. Replies reach [`Connection::next_event`], or, for a call of an event loop, [`Connection::pump`].
    ///
    /// # Errors
    /// The failure the call ends with, if it could not be sent.
    pub fn begin(&self, request: &Outgoing<'_>, expected: Expected<'_>) -> Result<CallId, Failure> {
        self.inner_or_failure()?.begin(request, expected, false)
    }

    /// Like [`Connection::begin`], for one of several calls that are begun before any of them is waited for. Does not
    /// wait for room: a server that reads nothing must not hold up the other calls.
    ///
    /// # Errors
    /// As for [`Connection::begin`]; `RESOURCE_EXHAUSTED` if too much waits for room already.
    pub fn begin_ahead(&self, request: &Outgoing<'_>, expected: Expected<'_>) -> Result<CallId, Failure> {
        self.inner_or_failure()?.begin(request, expected, true)
    }

    /// Sleeps until the server hangs up, `event` is readable, or `deadline` passes. Whether a new call may be sent
    /// afterwards.
    ///
    /// # Errors
    /// The system's error.
    pub fn outlasts(&self, event: BorrowedFd<'_>, deadline: Option<Instant>) -> io::Result<bool> {
        if let Some(inner) = self.inner() {
            sys::wait_for_hang_up(inner.link.signal().fd().unwrap_or(event), event, deadline)?;
        }
        Ok(self.stands())
    }

    /// Checks that the server is still there, although nothing was sent or waited for. Returns whether a new call may
    /// be sent.
    #[must_use]
    pub fn stands(&self) -> bool {
        self.inner().is_some_and(|inner| inner.is_usable() && inner.look_for_end().is_ok())
    }

    /// Sends an item of the call's stream, with the references that it gives. `None` if there is no credit for it, `false` if the
    /// call has ended: take its outcome then.
    ///
    /// # Errors
    /// The failure to send.
    pub fn try_send_item(
        &self,
        id: CallId,
        item: &Outgoing<'_>,
        given: &[NonZeroU64],
        deadline: Option<Instant>,
    ) -> Result<Option<bool>, Failure> {
        let Some(inner) = self.inner() else { return Ok(Some(false)) };
        // Not held while the item is sent.
        let paid = inner.table.lock().pay(id, item.len(), given);
        if paid == Some(true) {
            let sent = inner.send_until(id.number(), item, deadline);
            if sent.is_err() && !given.is_empty() {
                inner.table.lock().ungive(id, given);
            }
            sent?;
        }
        Ok(paid)
    }

    /// Says that the call's stream is complete.
    ///
    /// # Errors
    /// The failure to send.
    pub fn end_stream(&self, id: CallId, deadline: Option<Instant>) -> Result<(), Failure> {
        let Some(inner) = self.inner() else { return Ok(()) };
        inner.send_until(id.number(), &Outgoing::new(Kind::End, Body::Whole(&[])), deadline)
    }

    /// Gives a call up: the server is told, late replies are dropped, a thread that waits for it stops waiting.
    pub fn cancel(&self, id: CallId) {
        let Some(inner) = self.inner() else { return };
        let (known, to_release) = {
            let mut table = inner.table.lock();
            let known = table.get(id).is_some();
            table.end(id);
            (known, table.take_to_release())
        };
        inner.release_given(&to_release);
        if known {
            // If the frame cannot be sent, the connection is lost, which cancels the call as well. Do not wait for a
            // server that reads nothing: it learns of the cancellation when it reads again.
            let _ = inner.send_later(id.number(), &Outgoing::new(Kind::Cancel, Body::Whole(&[])));
            if inner.receiving.is_led() {
                // The receiving thread may be the one that waits for this call: the PONG wakes it.
                let _ = inner.send_later(NO_CALL, &Outgoing::new(Kind::Ping, Body::Whole(&[])));
            }
        }
    }

    /// Grants the server more credit for its stream.
    pub fn grant(&self, id: CallId, credit: u64, deadline: Option<Instant>) {
        let Some(inner) = self.inner() else { return };
        if let Some(call) = inner.table.lock().get(id) {
            call.allowance = call.allowance.saturating_add_unsigned(credit);
        }
        // A failure to send is dealt with as in `cancel`.
        let _ =
            inner.send_until(id.number(), &Outgoing::new(Kind::Credit, Body::Whole(&credit.to_le_bytes())), deadline);
    }

    /// Asks the server for a sign of life and returns how long it took.
    ///
    /// # Errors
    /// As for a call.
    pub fn ping(
        &self,
        deadline: Option<Instant>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Duration, Result<NoEvent, Failure>> {
        let inner = self.inner_or_failure().map_err(Err)?;
        inner.listen_first().map_err(Err)?;
        let id = inner.table.lock().begin(false, false, &[]).map_err(Err)?;
        let begun = Instant::now();
        let ping = Outgoing::new(Kind::Ping, Body::Whole(&[]));
        let sent = inner.send_until(id.number(), &ping, deadline).map_err(Err);
        let mut slot = None;
        let waited = sent.and_then(|()| self.next_event(id, deadline, &mut slot, go_on).map_err(Ok));
        inner.table.lock().end(id);
        waited?;
        let event = slot.expect("there is an event");
        match event.head.kind {
            Kind::Pong => Ok(begun.elapsed()),
            Kind::Error => Err(Err(event.failure().unwrap_or_else(Failure::from))),
            _ => Err(Err(Failure::new(Failure::INTERNAL, "the server answered a ping with something else"))),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(inner) = self.inner() {
            inner.link.close();
        }
    }
}

impl Inner {
    /// "server" or "client": what is at the other end.
    pub(super) fn other(&self) -> &'static str {
        if self.side == 0 { "server" } else { "client" }
    }

    pub(super) fn is_dead(&self) -> bool {
        // Acquire: a thread that sees the loss finds that all calls were told of it.
        self.lost.load(Ordering::Acquire)
    }

    fn is_going_away(&self) -> bool {
        self.parted.get().is_some()
    }

    #[inline]
    fn is_usable(&self) -> bool {
        !self.is_dead() && !self.is_going_away()
    }

    /// Begins a call. `ahead`: it does not wait for room.
    #[inline]
    fn begin(&self, request: &Outgoing<'_>, expected: Expected<'_>, ahead: bool) -> Result<CallId, Failure> {
        let Expected { in_loop, references, .. } = expected;
        self.listen_first()?;
        if !in_loop && let Some(receiver) = self.received.get() {
            receiver.may_wait()?;
        }
        if in_loop {
            // Relaxed: the loop's own thread sends next.
            self.in_loop.store(true, Ordering::Relaxed);
        }
        let id = self.table.lock().begin(in_loop, references, expected.given)?;
        let number = id.number();
        let sent = if ahead { self.send_later(number, request) } else { self.send_until(number, request, None) };
        sent.inspect_err(|_| self.take_back_call(id, expected.given))?;
        Ok(id)
    }

    /// A call that was registered could not be sent.
    #[cold]
    pub(super) fn take_back_call(&self, id: CallId, given: &[NonZeroU64]) {
        let mut table = self.table.lock();
        table.ungive(id, given);
        table.end(id);
    }

    /// Takes in a GOAWAY that came while no thread received, and the server's end, so that no call is sent to a server that
    /// is going away, or gone.
    #[inline]
    pub(super) fn listen_first(&self) -> Result<(), Failure> {
        if self.link.is_stale() { self.look_for_end() } else { Ok(()) }
    }

    #[cold]
    fn look_for_end(&self) -> Result<(), Failure> {
        // Asked first: all that the server sent before it hung up is here then.
        let hung_up = self.link.signal().fd().is_some_and(sys::hung_up);
        let mut leader = self.try_lead();
        if let Some(leader) = &mut leader {
            leader.receive(None);
        }
        // Calls under way may still get what another thread takes in now, which then finds out by itself.
        if hung_up && (self.table.lock().live() == 0 || leader.is_some() && !self.link.may_have_more()) {
            self.mark_lost(&LinkError::Closed);
        }
        if self.is_usable() {
            return Ok(());
        }
        // Nothing was sent, so whatever ended the connection, the call may go to another server.
        let dead = if self.is_going_away() { None } else { self.table.lock().dead.clone() };
        Err(dead.filter(|failure| failure.code == Failure::UNAVAILABLE).unwrap_or_else(|| self.stopped()))
    }

    /// Releases references that nobody will ever read.
    pub(super) fn release_given(&self, given: &[NonZeroU64]) {
        release_payloads(given).for_each(|payload| self.send_release(&payload));
    }

    fn send_release(&self, payload: &[u8]) {
        if self.is_dead() {
            return;
        }
        let release = Outgoing::new(Kind::Release, Body::Whole(payload));
        match self.link.send(CallKey { number: 0, side: 0 }, &release, Room::Later) {
            Ok(Sent::Out) => {}
            Ok(sent) => self.note_queued(sent),
            // There is no room even to queue the frame: the peer reads nothing, so it keeps only its own objects alive.
            Err(error) if error.spares_connection() => {}
            Err(error) => self.mark_lost(&error),
        }
    }
}

/// The failure of calls over a connection that this side has closed.
pub(super) fn closed(name: &dyn Display) -> Failure {
    Failure::new(Failure::CANCELLED, format!("the connection to {name} was closed on this side: connect again"))
}
