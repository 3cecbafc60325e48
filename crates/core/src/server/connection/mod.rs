//! A connection to one client, as its calls and handlers know it: who the client is, and how frames reach it.
//!
//! What comes from the client is the business of [`super::inbound`].

pub(in crate::server) mod adopted;
mod past_calls;
pub(in crate::server) mod values;
mod write_interest;

use crate::sync::{AtomicBool, Ordering, fence};
use std::num::NonZeroU64;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use nearcall_platform::lock::Mutex;
use nearcall_transport::{
    Account, Body, CallKey, Charge, ConnectionPermit, Flushed, Incoming, Link, LinkError, MemoryLink, Outgoing, Room,
    Sent, Signal,
};
use nearcall_wire::{Kind, flags};
use rustix::event::epoll::EventFlags;

use crate::client;
use crate::exports::Exports;
use crate::given::{given_in, release_payloads};
use crate::server::connection::past_calls::PastCalls;
use crate::server::connection::write_interest::{Sends, WriteInterest};
use crate::server::shared::Shared;
use crate::server::shared::early_ends::WatchedCalls;
use crate::server::shared::mailbox::News;
use crate::server::shared::roster::{ConnectionRow, Listed};
use crate::server::shared::session::Session;

/// A connection to one client. If a client of this process has made the connection, it is the half that the server
/// calls.
#[derive(Debug)]
pub struct ServerConnection {
    pub(in crate::server) link: Arc<dyn Link>,
    /// The same link, if it is over memory.
    memory: Option<Arc<dyn MemoryLink>>,
    pub(in crate::server) shared: Arc<Shared>,
    session: Arc<Session>,
    /// The URL that the client has connected to; empty if a client of this process has made the connection.
    url: Arc<str>,
    since: Instant,
    /// The log says why the connection ended.
    told: OnceLock<()>,
    pub(in crate::server) past_calls: PastCalls,
    /// Calls for whose early end an errand was left.
    pub(in crate::server) watched_calls: WatchedCalls,
    /// The client watches the server's statistics.
    watches: Mutex<bool>,
    /// Frames wait to be sent, and the reactor watches for room.
    pub(in crate::server) write_interest: WriteInterest,
    /// Calls under way wait for room.
    room_wanted: AtomicBool,
    /// Items are kept back, and the receiving thread will be told.
    keeps: AtomicBool,
    /// The flag that says, in the frames of calls handled here, which side began the call: [`flags::BACK`] if this side
    /// did not accept the connection.
    side: u8,
    /// The half that calls.
    caller: OnceLock<Caller>,
    /// The objects that this side has given to the client.
    pub(in crate::server) exports: Arc<Exports>,
    /// What the client's values take, apart from its messages. Made when it is first needed.
    values: OnceLock<Arc<Account>>,
    /// What items that wait for their handlers and the metadata of calls take, if links do not charge them. Made when it is
    /// first needed.
    items: OnceLock<Arc<Account>>,
}

/// The half of a connection that calls.
#[derive(Debug)]
pub(in crate::server) enum Caller {
    /// Made for this connection.
    Own(Arc<client::Connection>),
    /// The client that made the connection; it may go before the connection.
    Client(Weak<client::Connection>),
}

impl Caller {
    fn get(&self) -> Option<Arc<client::Connection>> {
        match self {
            Self::Own(caller) => Some(Arc::clone(caller)),
            Self::Client(caller) => caller.upgrade(),
        }
    }
}

/// What the poller watches a client's socket for, if nothing waits to be sent.
pub(in crate::server) const SOCKET: EventFlags = EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::ET);

/// The flags of a GOAWAY that is not the last.
pub(in crate::server) const GOODBYE: u8 = 0;

/// A client that leaves more bytes unread than this gets no answers, and none of its calls is begun, until it reads.
const FULL: usize = 1 << 20;

/// About how long an item that was kept back waits if no other follows. If others follow, a link also sends the items that
/// it has kept for this time.
const HOLD_BACK: Duration = Duration::from_micros(100);

/// The connection as the flag for its waiting frames sees it.
impl Sends for ServerConnection {
    fn flush(&self) -> bool {
        match self.link.flush() {
            Ok(Flushed::All) => true,
            Ok(Flushed::Full) => false,
            Ok(Flushed::Part) => {
                // The poller reports room once, and again only after another `watch_room`.
                self.watch_room(true);
                false
            }
            Err(error) => {
                self.tell_end(&error);
                self.link.close();
                // Drop the frames that still wait: nobody takes them any more, and a thread that flushes would not come
                // to an end.
                self.link.stop_sending();
                true
            }
        }
    }

    fn is_queued(&self) -> bool {
        self.link.queued() > 0
    }

    /// Lets the poller report room in the client's socket, or no longer. A ring's reader reports room by itself.
    fn watch_room(&self, watch: bool) {
        match self.link.signal() {
            _ if self.looking_is_cheap() => {}
            Signal::Descriptor(_) => {
                let flags = if watch { SOCKET | EventFlags::OUT } else { SOCKET };
                // It fails for a connection that is gone.
                let _ = self.shared.rewatch(self.link.signal(), self.token(), flags);
            }
            // It wakes when there is room, and may have done so already.
            Signal::Waker(_) if watch => self.shared.mailbox.tell(self.token(), News::Look),
            Signal::Waker(_) => {}
        }
    }
}

impl Listed for ServerConnection {
    fn look(&self) -> ConnectionRow {
        let (started, ended) = self.session.counts();
        let accounts = [&self.values, &self.items].into_iter().filter_map(OnceLock::get);
        ConnectionRow {
            number: self.token(),
            url: Arc::clone(&self.url),
            peer: Arc::clone(self.session.peer()),
            since: self.since,
            started,
            ended,
            queued: self.link.queued(),
            memory: self.link.kept() + accounts.map(|account| account.used()).sum::<usize>(),
            watches: *self.watches.lock(),
            pid: std::process::id(),
            worker: None,
        }
    }
}

impl ServerConnection {
    /// A connection that this server has accepted.
    pub(in crate::server) fn new(
        shared: &Arc<Shared>,
        token: u64,
        link: Arc<dyn Link>,
        permit: Option<Arc<ConnectionPermit>>,
        url: Arc<str>,
    ) -> Arc<Self> {
        let exports = Exports::new();
        exports.open(shared.limits.max_references, Arc::clone(&shared.mailbox) as _);
        Arc::new(Self { url, ..Self::of(shared, token, link, permit, exports) })
    }

    /// A connection that a client of this process has made.
    pub(in crate::server) fn of_client(
        shared: &Arc<Shared>,
        token: u64,
        client: &Arc<client::Connection>,
        (link, exports): (Arc<dyn Link>, Arc<Exports>),
    ) -> Arc<Self> {
        let caller = OnceLock::from(Caller::Client(Arc::downgrade(client)));
        Arc::new(Self { side: flags::BACK, caller, ..Self::of(shared, token, link, None, exports) })
    }

    fn of(
        shared: &Arc<Shared>,
        token: u64,
        link: Arc<dyn Link>,
        permit: Option<Arc<ConnectionPermit>>,
        exports: Arc<Exports>,
    ) -> Self {
        let (peer, mailbox) = (link.peer().clone(), Arc::clone(&shared.mailbox));
        Self {
            session: Session::new(token, peer, permit, shared.session_hooks, mailbox),
            memory: Arc::clone(&link).memory(),
            link,
            url: "".into(),
            since: Instant::now(),
            shared: Arc::clone(shared),
            told: OnceLock::new(),
            past_calls: PastCalls::default(),
            watched_calls: WatchedCalls::default(),
            watches: Mutex::default(),
            write_interest: WriteInterest::default(),
            room_wanted: AtomicBool::new(false),
            keeps: AtomicBool::new(false),
            side: 0,
            caller: OnceLock::new(),
            exports,
            values: OnceLock::new(),
            items: OnceLock::new(),
        }
    }

    /// Lets the receiving thread be told of this connection.
    pub(in crate::server) fn begin_watch(&self) -> rustix::io::Result<()> {
        let flags = if self.looking_is_cheap() { EventFlags::IN } else { SOCKET };
        self.shared.watch(self.link.signal(), self.token(), flags)
    }

    /// Whether to look for arrivals touches only memory. Then it is looked at in a loop while somebody is awake, nothing else tells
    /// of arrivals meanwhile, a frame costs no system call, and its reader tells of room by itself.
    #[inline]
    pub(in crate::server) fn looking_is_cheap(&self) -> bool {
        self.memory.is_some()
    }

    /// This side is awake, on this thread's CPU.
    #[inline]
    pub(in crate::server) fn stay_awake(&self) {
        if let Some(memory) = &self.memory {
            memory.disarm();
        }
    }

    /// Whether spinning for this client can pay now. What it costs is not known but of memory.
    #[inline]
    pub(in crate::server) fn spinning_pays(&self) -> bool {
        self.memory.as_ref().is_none_or(|memory| memory.spinning_pays())
    }

    /// The poller has told of this connection. Returns what the wake-up cost, if that is known.
    pub(in crate::server) fn signalled(&self) -> Result<Option<u64>, LinkError> {
        let Some(memory) = &self.memory else { return Ok(None) };
        let woken = memory.signalled();
        memory.disarm();
        woken
    }

    /// The poller's token for the connection.
    pub(in crate::server) fn token(&self) -> u64 {
        self.session.token
    }

    /// The client's session.
    #[must_use]
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Counts a call of this connection as no longer under way.
    pub(in crate::server) fn one_finished(&self) {
        // Release: once `stop` sees the count, it also sees that the reply was sent.
        self.shared.in_flight.fetch_sub(1, Ordering::Release);
        self.session.one_finished();
    }

    /// Whether the connection is gone.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.session.is_gone()
    }

    /// Whether its server takes no more calls.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.shared.is_stopping()
    }

    /// An empty charge, for bytes that the server keeps for several clients. They count for the server, and for no
    /// connection.
    #[must_use]
    pub fn charge_to_all(&self) -> Charge {
        Account::of(&self.shared.budget, 0).charge_anyway(0)
    }

    /// The account of the client's values.
    pub(in crate::server) fn values_account(&self) -> &Arc<Account> {
        self.values.get_or_init(|| Account::of(&self.shared.budget, 0))
    }

    /// The account of what links do not charge: the client's short items that wait for their handlers, and the metadata of
    /// short calls.
    pub(in crate::server) fn items_account(&self) -> &Arc<Account> {
        self.items.get_or_init(|| Account::of(&self.shared.budget, 0))
    }

    /// Bytes kept because of the client that nobody works with, and how many [have gone on](Account::moved).
    pub(in crate::server) fn idle(&self) -> (usize, usize) {
        let accounts = [self.link.account(), self.items.get().map(|items| &**items)];
        let both = accounts.into_iter().flatten();
        both.fold((0, 0), |(idle, moved), one| (idle + one.idle(), moved.wrapping_add(one.moved())))
    }

    /// Whether more of that may be kept.
    pub(in crate::server) fn has_room_for_items(&self) -> bool {
        self.items.get().is_none_or(|account| account.allows(0))
    }

    /// Whether a client of this process has made the connection.
    pub(in crate::server) fn is_own_clients(&self) -> bool {
        self.side != 0
    }

    /// Whether a frame belongs to a call that is handled here, and not to one that this side has begun.
    #[inline]
    pub(in crate::server) fn is_called_by(&self, frame: &Incoming) -> bool {
        frame.head.flags & flags::BACK == self.side
    }

    /// The half that calls; `make` makes it if there is none yet. `None` if the client that made the connection is gone.
    pub(in crate::server) fn caller_or(
        &self,
        make: impl FnOnce() -> Arc<client::Connection>,
    ) -> Option<Arc<client::Connection>> {
        let caller = self.caller.get_or_init(|| Caller::Own(make())).get();
        // The thread that ends the connection may have looked for a caller before there was one.
        if let Some(caller) = &caller
            && self.is_dead()
        {
            caller.mark_lost(&LinkError::Closed);
        }
        caller
    }

    /// Whether the half that calls was ever made.
    pub(in crate::server) fn has_called(&self) -> bool {
        self.caller.get().is_some()
    }

    /// The half that calls, if it was made and is not gone with the client that made it.
    pub(in crate::server) fn caller(&self) -> Option<Arc<client::Connection>> {
        self.caller.get().and_then(Caller::get)
    }

    /// Tells the log why the connection ends, once, unless the client just hung up.
    pub(in crate::server) fn tell_end(&self, error: &LinkError) {
        if *error != LinkError::Closed && self.told.set(()).is_ok() {
            // A lack of descriptors or memory is this server's own trouble, and a fault is ours.
            let serious = matches!(error, LinkError::Exhausted(_) | LinkError::Fault(_));
            self.shared.notify(serious, format!("dropped the connection to {}: {error}", self.session.peer()));
        }
    }

    /// Asks the client for another connection. With [`Outgoing::LAST`], calls that are not answered were not begun.
    pub(in crate::server) fn say_goodbye(&self, flags: u8) {
        let goodbye = Outgoing { flags, ..Outgoing::new(Kind::GoAway, Body::Whole(&[])) };
        // If the client is gone, the next read from it finds that.
        self.shared.contain(|| _ = self.send(0, &goodbye));
    }

    /// Tells the client that it broke the protocol, and how: to its caller a connection that just ends looks like a
    /// server that died. Without a guarantee, because the client may not read.
    pub(in crate::server) fn say_why(&self, error: &LinkError) {
        // HTTP has errors of its own, which its link has sent. A client's own server answers nobody's calls.
        if let LinkError::Broken(why) = error
            && !self.is_own_clients()
            && !self.link.properties().takes_last_calls
        {
            let goodbye = Outgoing::new(Kind::GoAway, Body::Whole(why.as_bytes()));
            let _ = self.link.send(CallKey { number: 0, side: self.side }, &goodbye, Room::Later);
            let _ = self.link.release();
        }
    }

    /// Asks a client from which nothing is read for a sign of life. The end of one that is gone stands behind bytes for which
    /// there is no room, and nothing tells of it. But its system refuses whatever comes for it, and of that the poller tells.
    /// What that system could not send is lost then. If something waits to be sent, that is the question.
    pub(in crate::server) fn ask(&self) {
        if self.link.queued() == 0 {
            // A protocol without pings of ours sends nothing.
            let _ = self.send(0, &Outgoing::new(Kind::Ping, Body::Whole(&[])));
        }
    }

    /// The client is gone: nothing is sent to it any more, and nothing is taken in.
    pub(in crate::server) fn close(&self) {
        self.session.note_gone();
        self.link.close();
        self.link.stop_receiving();
        self.write_interest.clear();
    }

    /// Tells the half that calls why the connection ends.
    pub(in crate::server) fn lose(&self, error: &LinkError) {
        if let Some(caller) = self.caller() {
            caller.mark_lost(error);
        }
    }

    /// The client watches the server's statistics: calls are measured until it is gone, or says that it is through.
    pub(in crate::server) fn watch(&self) {
        let mut watches = self.watches.lock();
        // A thread that ends the connection now waits for the lock, and undoes this.
        if !*watches && !self.is_dead() {
            *watches = true;
            self.shared.statistics.add_watcher();
        }
    }

    /// The client stops watching. Harmless when repeated.
    pub(in crate::server) fn unwatch(&self) {
        let mut watches = self.watches.lock();
        if std::mem::take(&mut *watches) {
            self.shared.statistics.remove_watcher();
        }
    }

    /// Notes the cancellation of a call without a registered `ServerCall`.
    pub(in crate::server) fn note_cancelled(&self, call: u32) {
        self.past_calls.note_cancelled(call, self.session.arrived());
    }

    /// Whether the client reads what it is sent: if not, its frames get no answer, and none of its calls is begun. Cheap.
    pub(in crate::server) fn has_room(&self) -> bool {
        self.link.queued() < FULL
    }

    /// Whether the next item of a call, of `len` bytes, may be sent. If not, the call is told when the client has read.
    pub(in crate::server) fn takes_item_or_tells(&self, call: u32, len: usize) -> bool {
        if !self.has_room_or_tells() {
            return false;
        }
        let held_up = self.link.ledger().is_some_and(|ledger| ledger.is_held_up(call, len));
        if held_up {
            self.shared.mailbox.tell(self.token(), News::WantsMemory);
        }
        !held_up
    }

    /// Like `has_room`; if there is none, the calls under way are told when the client has read.
    pub(in crate::server) fn has_room_or_tells(&self) -> bool {
        if self.has_room() {
            return true;
        }
        // Relaxed, as the bytes that are queued: the fence orders the two. It pairs with that of `take_room_wanted`: either
        // the second look here finds room, or the thread that has made it finds the flag.
        self.room_wanted.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.has_room()
    }

    /// Whether calls under way are to be told of room; for the thread that has made some.
    pub(in crate::server) fn take_room_wanted(&self) -> bool {
        // See `has_room_or_tells`.
        fence(Ordering::SeqCst);
        self.room_wanted.swap(false, Ordering::Relaxed)
    }

    /// Sends a frame without waiting: a frame that finds no room waits in the connection's queue.
    pub(in crate::server) fn send(&self, call: u32, frame: &Outgoing<'_>) -> Result<(), LinkError> {
        self.sent(self.link.send(CallKey { number: call, side: self.side }, frame, Room::Later))
    }

    /// Like `send`, for an item that others will follow at once: it may go out with them.
    pub(in crate::server) fn send_together(&self, call: u32, frame: &Outgoing<'_>) -> Result<(), LinkError> {
        let sent = self.link.send(CallKey { number: call, side: self.side }, frame, Room::Together);
        // AcqRel: see `release_kept`.
        if sent == Ok(Sent::KeptBack) && !self.keeps.swap(true, Ordering::AcqRel) {
            self.shared.mailbox.tell_at(Instant::now() + HOLD_BACK, self.token(), News::KeptBack);
        }
        self.sent(sent)
    }

    fn sent(&self, sent: Result<Sent, LinkError>) -> Result<(), LinkError> {
        match sent {
            Ok(Sent::Out | Sent::KeptBack) => Ok(()),
            Ok(Sent::Queued) => {
                self.note_queued_frame();
                Ok(())
            }
            Ok(Sent::LookAgain) => {
                self.note_look_again();
                Ok(())
            }
            Err(error) => {
                if !error.spares_connection() {
                    // The reactor notices the end by itself, and drops the connection; but not why.
                    self.tell_end(&error);
                    self.link.close();
                }
                Err(error)
            }
        }
    }

    /// Sends the items that were kept back long enough. For the receiving thread.
    pub(in crate::server) fn release_kept(&self) {
        // AcqRel: what was kept before is seen by the release, and what is kept from here on is told of again.
        self.keeps.swap(false, Ordering::AcqRel);
        self.release();
    }

    /// A handler is about to wait: what it has sent must not wait with it.
    pub(in crate::server) fn release_own(&self) {
        // Relaxed: this thread has kept the items back.
        if self.keeps.load(Ordering::Relaxed) {
            self.release();
        }
    }

    /// Sends frames that were kept back to go out together.
    pub(in crate::server) fn release(&self) {
        // If the client is gone, that is found out by reading from it.
        if self.link.release() == Ok(Sent::Queued) {
            self.note_queued_frame();
        }
    }

    /// A frame waits to be sent: the reactor is to flush it when there is room.
    #[cold]
    pub(crate) fn note_queued_frame(&self) {
        // A thread that sets the flag after the connection has died sees that here.
        if self.write_interest.set(self) && self.is_dead() {
            self.write_interest.clear();
        }
    }

    /// The same; and the reactor may have been told already, and have looked in vain. Or what waited is out, and the
    /// reactor is to let go on what waited for that.
    #[cold]
    pub(crate) fn note_look_again(&self) {
        self.note_queued_frame();
        self.watch_room(true);
        if self.looking_is_cheap() {
            // The ring's reader saw no need to tell of room.
            self.shared.mailbox.tell(self.token(), News::Look);
        }
    }

    /// Tells the client that this side does not hold the references it gave. Never waits.
    pub fn release_given(&self, given: &[NonZeroU64]) {
        for payload in release_payloads(given) {
            let release = Outgoing::new(Kind::Release, Body::Whole(&payload));
            // A release frame belongs to no call, so it has no side. If it cannot be sent, the end of the connection
            // releases all.
            if self.link.send(CallKey { number: 0, side: 0 }, &release, Room::Later) == Ok(Sent::Queued) {
                self.note_queued_frame();
            }
        }
    }

    /// An item came for a call that is not under way. If it may belong to a call that has ended here, nobody will read
    /// it: the references given in it are released.
    pub(in crate::server) fn let_go_of_item(&self, item: &Incoming) {
        if self.past_calls.may_give(item.head.call) {
            self.release_given(&given_in(&item.head, &item.payload));
        }
    }
}
