//! One client, as the server sees it.

mod calls;
mod given;
pub(super) mod session;
mod write_interest;

use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use nearcall_platform::lock::Mutex;
use nearcall_transport::{Body, CallKey, ConnectionPermit, Incoming, Link, LinkError, Outgoing, Peer, Room, Sent};
use nearcall_wire::{Failure, Kind, flags};

use crate::client;
use crate::exports::Exports;
use crate::server::Server;
use crate::server::call::Request;
use crate::server::call::ServerCall;
use crate::server::connection::calls::Calls;
use crate::server::connection::given::EndedGiving;
use crate::server::connection::session::{Session, SessionEvents};
use crate::server::connection::write_interest::{Sends, WriteInterest};
use crate::server::receives::Receives;
use crate::server::statistics::Statistics;

/// A connection to one client. Of a client of this very process whose server may call it, it is the half that is called.
#[derive(Debug)]
pub struct ServerConnection {
    pub(in crate::server) token: u64,
    pub(in crate::server) link: Arc<dyn Link>,
    calls: Mutex<Calls>,
    /// The client hung up: the one-way calls it sent before are still handled.
    pub(in crate::server) hung_up: AtomicBool,
    /// It is in the list of connections that the reactor looks at.
    pub(in crate::server) listed: AtomicBool,
    dead: AtomicBool,
    /// Why it ended is in the log.
    told: AtomicBool,
    /// The server's count of requests received and not finished.
    pub(in crate::server) in_flight: Arc<AtomicUsize>,
    /// Calls that have arrived: a call's ordinal is what this was when it did.
    arrived: AtomicU64,
    /// Cancelled calls that nothing here was registered for, as their handlers may ask: their numbers, and how many calls
    /// had arrived by then. A later call with the same number is another one.
    cancelled: Mutex<VecDeque<(u32, u64)>>,
    oneway: Mutex<OnewayQueue>,
    statistics: Arc<Statistics>,
    /// It watches the server's statistics.
    watches: Mutex<bool>,
    /// Counts the client for as long as a handler may be at work for it.
    _permit: Option<Arc<ConnectionPermit>>,
    /// One-way requests received and not finished.
    pub(in crate::server) oneway_pending: AtomicUsize,
    /// Something waits to be sent, and the reactor watches for room.
    write_interest: WriteInterest,
    /// Calls under way wait for room.
    room_wanted: AtomicBool,
    /// Requests that are not begun before the client reads what it is sent, in order, and whether there are any.
    deferred: Mutex<VecDeque<Box<Request>>>,
    defers: AtomicBool,
    ended_giving: EndedGiving,
    pub(in crate::server) session: Session,
    pub(in crate::server) session_events: Arc<SessionEvents>,
    /// What the frames of calls that are handled here say of who began them: [`flags::BACK`] if this side did not accept the
    /// connection.
    side: u8,
    /// The half that calls.
    caller: OnceLock<Caller>,
    exports: Arc<Exports>,
}

/// The half of a connection that calls.
#[derive(Debug)]
enum Caller {
    /// Made for it.
    Own(Arc<client::Connection>),
    /// There was a client first, and it may go before the connection.
    Client(Weak<client::Connection>),
}

/// A connection as its queue sees it.
struct ToClient<'a> {
    connection: &'a ServerConnection,
    server: &'a Server,
}

impl Sends for ToClient<'_> {
    fn flush(&self) -> bool {
        self.connection.link.flush().unwrap_or_else(|error| {
            self.connection.tell_end(self.server, &error);
            self.connection.link.close();
            // What still waits is dropped: nobody takes it any more, and whoever flushes would not come to an end.
            self.connection.link.stop_sending();
            true
        })
    }

    fn is_queued(&self) -> bool {
        self.connection.link.queued() > 0
    }

    fn watch_room(&self, watch: bool) {
        self.server.watch_room(self.connection, watch);
    }

    fn count(&self, more: bool) {
        // AcqRel: a server that stops waits until nothing is left.
        let unsent = &self.server.unsent_connections;
        if more {
            unsent.fetch_add(1, Ordering::AcqRel)
        } else {
            unsent.fetch_sub(1, Ordering::AcqRel)
        };
    }
}

/// What became of a frame.
pub(in crate::server) enum Routed {
    /// A call to be handled.
    Request(Box<Request>),
    /// It is done with.
    Done,
    /// Nothing is read from the client until this can go on.
    Stall(StallReason),
}

/// Why nothing is read from a client for now.
pub(in crate::server) enum StallReason {
    /// A one-way call came when the server had all it takes.
    Oneway(Box<Request>),
    /// There is no room for the answer to a frame: the client does not read.
    Answer(u32, Kind, Vec<u8>),
    /// Many of its calls wait until it reads.
    Deferred(Box<Request>),
    /// More is kept of what it has sent than may be.
    Budget,
}

/// Calls of a client that does not read that wait here; more are not read from it.
const MOST_DEFERRED: usize = 256;

/// A client that leaves more bytes unread than this gets no answers, and none of its calls is begun, until it reads.
const FULL: usize = 1 << 20;

impl Caller {
    fn get(&self) -> Option<Arc<client::Connection>> {
        match self {
            Self::Own(caller) => Some(Arc::clone(caller)),
            Self::Client(caller) => caller.upgrade(),
        }
    }
}

/// The failure of a call of an object that its caller does not hold.
fn released() -> Failure {
    Failure::new(Failure::NOT_FOUND, "there is no such object on this connection: it was released")
}

/// One-way calls of a client are handled one after the other, in the order they were sent: nothing else could tell the
/// client's code when the first is done.
#[derive(Debug, Default)]
struct OnewayQueue {
    running: bool,
    waiting: VecDeque<Box<Request>>,
}

/// A deadline that is farther off is taken for this one: it can be reckoned with everywhere, and nobody waits so long.
const LONGEST_DEADLINE: Duration = Duration::from_secs(1_000_000_000);

/// Cancellations remembered for handlers that may ask; older ones are forgotten.
const MOST_CANCELLED: usize = 1024;

impl ServerConnection {
    /// One that this server has accepted.
    pub(in crate::server) fn new(
        server: &Server,
        token: u64,
        link: Arc<dyn Link>,
        permit: Option<Arc<ConnectionPermit>>,
    ) -> Arc<Self> {
        let exports = Exports::new();
        exports.open(server.limits.max_references, &server.releases);
        Arc::new(Self::of(server, token, link, permit, 0, OnceLock::new(), exports))
    }

    /// One that a client of this process has made.
    pub(in crate::server) fn of_client(server: &Server, token: u64, client: &Arc<client::Connection>) -> Arc<Self> {
        let caller = OnceLock::from(Caller::Client(Arc::downgrade(client)));
        let (link, exports) = (client.shared_link(), Arc::clone(client.exports()));
        Arc::new(Self::of(server, token, link, None, flags::BACK, caller, exports))
    }

    fn of(
        server: &Server,
        token: u64,
        link: Arc<dyn Link>,
        permit: Option<Arc<ConnectionPermit>>,
        side: u8,
        caller: OnceLock<Caller>,
        exports: Arc<Exports>,
    ) -> Self {
        Self {
            token,
            link,
            calls: Mutex::default(),
            hung_up: AtomicBool::new(false),
            listed: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            told: AtomicBool::new(false),
            in_flight: Arc::clone(&server.in_flight),
            arrived: AtomicU64::new(0),
            cancelled: Mutex::default(),
            oneway: Mutex::default(),
            statistics: Arc::clone(&server.statistics),
            watches: Mutex::default(),
            _permit: permit,
            oneway_pending: AtomicUsize::new(0),
            write_interest: WriteInterest::default(),
            room_wanted: AtomicBool::new(false),
            deferred: Mutex::default(),
            defers: AtomicBool::new(false),
            ended_giving: EndedGiving::default(),
            session: Session::default(),
            session_events: Arc::clone(&server.session_events),
            side,
            caller,
            exports,
        }
    }

    /// Whether it was made by a client of this process.
    pub(in crate::server) fn is_own_clients(&self) -> bool {
        self.side != 0
    }

    /// The half that calls; made now if there is none yet. `None` if the client that made the connection is gone.
    #[must_use]
    pub fn caller(self: &Arc<Self>, server: &Arc<Server>) -> Option<Arc<client::Connection>> {
        let made = || {
            let (link, exports) = (Arc::clone(&self.link), Arc::clone(&self.exports));
            Caller::Own(client::Connection::to_client(link, exports, Arc::new(Receives::accepted(server, self))))
        };
        let caller = self.caller.get_or_init(made).get();
        // Who ends the connection may have looked for a caller before there was one.
        if let Some(caller) = &caller
            && self.is_gone()
        {
            caller.mark_lost(&LinkError::Closed);
        }
        caller
    }

    /// Who the client is.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        self.link.peer()
    }

    /// Whether the connection is gone.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        // Acquire: pairs with the release in `die`.
        self.dead.load(Ordering::Acquire)
    }

    /// The same, for whoever has just counted a call as finished.
    #[inline]
    pub(in crate::server) fn is_gone(&self) -> bool {
        // SeqCst: see `Session::count`.
        self.dead.load(Ordering::SeqCst)
    }

    /// Calls that have arrived, and the hook of the session's begin, if there is one.
    pub(in crate::server) fn arrived(&self) -> u64 {
        // Relaxed: nothing arrives once the client is gone, and who has finished a call knows of it.
        self.arrived.load(Ordering::Relaxed)
    }

    pub(in crate::server) fn count_arrival(&self) {
        // Relaxed: as where it is read.
        self.arrived.fetch_add(1, Ordering::Relaxed);
    }

    /// Tells the log why the connection ends, once, unless the client just hung up.
    pub(in crate::server) fn tell_end(&self, server: &Server, error: &LinkError) {
        // Relaxed: nothing else hangs on it.
        if *error != LinkError::Closed && !self.told.swap(true, Ordering::Relaxed) {
            // A lack of descriptors or memory is this server's own trouble.
            let serious = matches!(error, LinkError::Exhausted(_));
            server.notify(serious, format!("dropped the connection to {}: {error}", self.peer()));
        }
    }

    /// The client is gone: its calls are cancelled.
    pub(in crate::server) fn die(self: &Arc<Self>, server: &Server) {
        // SeqCst: see `Session::count`.
        self.dead.store(true, Ordering::SeqCst);
        self.link.close();
        self.write_interest.clear(&ToClient { connection: self, server });
        let deferred = std::mem::take(&mut *self.deferred.lock());
        drop(deferred);
        self.unwatch();
        let calls = self.calls.lock().take();
        for call in calls {
            call.cancel(server);
        }
        self.lose(&LinkError::Closed);
        self.exports.end();
        self.look_whether_over(self.session.finished());
    }

    /// The client is gone, and what it has left behind cannot be taken in now. Handlers that wait for it may be those that
    /// keep the memory for which that waits.
    pub(in crate::server) fn end_calls(&self, server: &Server) {
        let calls = self.calls.lock().take();
        for call in calls {
            call.cancel(server);
        }
        if let Some(caller) = self.caller.get().and_then(Caller::get) {
            caller.end_calls();
        }
    }

    /// Tells the half that calls why the connection ends.
    pub(super) fn lose(&self, error: &LinkError) {
        if let Some(caller) = self.caller.get().and_then(Caller::get) {
            caller.mark_lost(error);
        }
    }

    /// The client looks at the server's statistics: calls are measured until it is gone, or says that it is through.
    pub(in crate::server) fn watch(&self) {
        let mut watches = self.watches.lock();
        // A connection that dies now waits for the lock, and takes this back.
        if !*watches && !self.is_dead() {
            *watches = true;
            self.statistics.add_watcher();
        }
    }

    /// The client looks no more. Harmless when repeated.
    pub(in crate::server) fn unwatch(&self) {
        let mut watches = self.watches.lock();
        if std::mem::take(&mut *watches) {
            self.statistics.remove_watcher();
        }
    }

    /// A one-way request that may be handled now; `None` if it waits for an earlier one.
    pub(in crate::server) fn begin_oneway(request: Box<Request>) -> Option<Box<Request>> {
        let connection = Arc::clone(&request.connection);
        let mut queue = connection.oneway.lock();
        if queue.running {
            queue.waiting.push_back(request);
            return None;
        }
        queue.running = true;
        Some(request)
    }

    /// The one-way request that waited for the one just handled.
    pub(in crate::server) fn next_oneway(&self) -> Option<Box<Request>> {
        let mut queue = self.oneway.lock();
        let next = queue.waiting.pop_front();
        queue.running = next.is_some();
        next
    }

    /// Forgets the one-way requests that wait: the server ends.
    pub(in crate::server) fn clear_oneway(&self) {
        let waiting = std::mem::take(&mut self.oneway.lock().waiting);
        drop(waiting);
    }

    /// Whether the call of that number was cancelled that arrived with that ordinal.
    pub(in crate::server) fn was_cancelled(&self, call: u32, ordinal: u64) -> bool {
        self.cancelled.lock().iter().any(|&(number, arrived)| number == call && arrived > ordinal)
    }

    pub(in crate::server) fn forget(&self, call: u32) {
        self.calls.lock().remove(call);
    }

    /// Takes in a frame; a new call comes out as a request.
    pub(in crate::server) fn route(
        self: &Arc<Self>,
        server: &Server,
        mut event: Incoming,
    ) -> Result<Routed, LinkError> {
        let head = &event.head;
        if head.flags & flags::BACK != self.side {
            return self.answered(event);
        }
        match head.kind {
            Kind::Call => return self.begin(server, event),
            Kind::Ping => {
                let payload = event.payload.inline().unwrap_or_default();
                return self.answer(server, head.call, Kind::Pong, payload);
            }
            Kind::Release if self.side == 0 => self.exports.release(&event)?,
            Kind::Item | Kind::End | Kind::Cancel | Kind::Credit => {
                // Of a call that has ended here: the client could not know yet.
                let call = self.calls.lock().get(head.call);
                if let Some(call) = call {
                    if head.kind == Kind::Item && call.may_bring_home() {
                        self.exports.keep_home(&mut event);
                    }
                    call.take_in(server, event)?;
                } else if head.kind == Kind::Item {
                    self.let_go_of_item(server, &event);
                } else if head.kind == Kind::Cancel {
                    let mut cancelled = self.cancelled.lock();
                    if cancelled.len() >= MOST_CANCELLED {
                        cancelled.pop_front();
                    }
                    // Relaxed: frames are taken in one after the other.
                    cancelled.push_back((head.call, self.arrived.load(Ordering::Relaxed)));
                }
            }
            Kind::Pong => {}
            Kind::Reply | Kind::Error | Kind::GoAway | Kind::Head | Kind::Release => {
                return Err(LinkError::Broken("the client sent a frame that only servers send".into()));
            }
        }
        Ok(Routed::Done)
    }

    /// Takes in a frame of a call that this side began.
    fn answered(&self, event: Incoming) -> Result<Routed, LinkError> {
        match self.caller.get() {
            // Nobody waits any more.
            Some(caller) => drop(caller.get().map(|caller| caller.take_in(event))),
            None => return Err(LinkError::Broken("the client sent a frame of a call that was never made".into())),
        }
        Ok(Routed::Done)
    }

    fn begin(self: &Arc<Self>, server: &Server, mut event: Incoming) -> Result<Routed, LinkError> {
        let (number, mut target) = (event.head.method, None);
        let method = match event.head.target {
            Some(id) => {
                target = self.exports.get(id);
                target.as_ref().and_then(|export| export.methods.get(number))
            }
            None if self.side == 0 => server.method(number),
            // What a client of this process has not given cannot be called.
            None => None,
        };
        if method.is_some_and(|method| method.references) {
            self.exports.keep_home(&mut event);
        }
        // Relaxed: a bound on memory, exact enough; the request itself is published by other means.
        let pending = self.in_flight.fetch_add(1, Ordering::Relaxed);
        let deadline =
            event.head.deadline_us().map(|us| Instant::now() + Duration::from_micros(us).min(LONGEST_DEADLINE));
        let context = OnceLock::new();
        let measured = server.statistics.begin(number, event.payload.len());
        let charge = event.payload.take_charge();
        let mut request = Box::new(Request {
            connection: Arc::clone(self),
            head: event.head,
            payload: event.payload,
            routing: method.unwrap_or_default(),
            target,
            _charge: charge,
            call: None,
            deadline,
            context,
            finished: AtomicBool::new(false),
            let_go: AtomicBool::new(false),
            place: None,
            left: AtomicBool::new(false),
            measured,
            // Relaxed: as where it is read.
            ordinal: self.arrived.fetch_add(1, Ordering::Relaxed),
        });
        let oneway = request.is_oneway();
        // Relaxed: as above.
        let alone = !oneway || self.oneway_pending.fetch_add(1, Ordering::Relaxed) == 0;
        let refusal = match method {
            None if request.head.target.is_some() && request.target.is_none() => Some(released()),
            None => {
                let what = format!("the server has no method number {}", request.head.method);
                Some(Failure::new(Failure::UNIMPLEMENTED, what))
            }
            Some(_) if server.is_stopping() && !self.link.takes_last_calls() => {
                Some(Failure::new(Failure::UNAVAILABLE, "the server is stopping"))
            }
            Some(_) if pending >= server.limits.max_pending && !oneway => Some(server.too_many_pending()),
            Some(method) if method.streams && oneway => {
                return Err(LinkError::Broken("the client sent a one-way call of a method that has a stream".into()));
            }
            Some(method) if method.streams && self.calls.lock().streams() >= server.limits.max_streams => {
                Some(server.too_many_streams())
            }
            Some(_) if pending >= server.limits.most_oneway() && oneway && !alone => {
                return Ok(Routed::Stall(StallReason::Oneway(request)));
            }
            Some(_) => None,
        };
        // Relaxed: set and read by whoever holds the reactor.
        if !oneway && self.hung_up.load(Ordering::Relaxed) {
            // Nobody is there to be answered, and what it left behind may be much.
            request.note_end(Failure::CANCELLED, 0);
            return Ok(Routed::Done);
        }
        if let Some(refusal) = refusal {
            request.note_end(refusal.code, 0);
            request.let_go_of_arguments(server);
            if !oneway {
                if server.is_stopping() {
                    // The goodbye to all may not be sent yet; without it the client would not know that it may try again.
                    self.send(server, 0, &Outgoing::new(Kind::GoAway, Body::Whole(&[])))?;
                }
                let body = refusal.encode();
                return self.answer(server, request.head.call, Kind::Error, &body);
            } else if refusal.code == Failure::UNAVAILABLE {
                server.came_too_late.fetch_add(1, Ordering::Relaxed);
            }
            return Ok(Routed::Done);
        }
        if let Some(method) = method
            && method.is_tracked()
            && !oneway
        {
            let told = server.told(method.handler);
            let (id, brings) = (request.head.call, method.item_references);
            self.ended_giving.begin(id, brings);
            let call = ServerCall::new(Arc::clone(self), id, told, request.measured.clone(), brings);
            let call = Arc::new(call);
            if !self.calls.lock().insert(request.head.call, &call, method.streams) {
                return Err(LinkError::Broken("the client used the number of a call that is under way".into()));
            }
            request.call = Some(call);
        }
        Ok(Routed::Request(request))
    }

    /// Sends the answer to a frame, if the client reads.
    fn answer(&self, server: &Server, call: u32, kind: Kind, payload: &[u8]) -> Result<Routed, LinkError> {
        if !self.has_room() {
            return Ok(Routed::Stall(StallReason::Answer(call, kind, payload.to_vec())));
        }
        self.send(server, call, &Outgoing::new(kind, Body::Whole(payload)))?;
        Ok(Routed::Done)
    }

    /// Whether reading can go on that has stopped for this reason.
    pub(in crate::server) fn may_go_on(&self, server: &Server, reason: &StallReason) -> bool {
        match reason {
            StallReason::Oneway(_) => self.may_begin_oneway(server),
            StallReason::Answer(..) => self.has_room(),
            StallReason::Deferred(_) => self.deferred.lock().len() < MOST_DEFERRED,
            StallReason::Budget => true,
        }
    }

    fn may_begin_oneway(&self, server: &Server) -> bool {
        // A request that waits counts itself, in both. Relaxed: as in `begin`. One at least is always under way, so that a
        // client's messages move on whatever others do.
        self.in_flight.load(Ordering::Relaxed) <= server.limits.most_oneway()
            || self.oneway_pending.load(Ordering::Relaxed) <= 1
    }

    /// Whether the client reads what it is sent: if not, its frames get no answer, and none of its calls is begun. Cheap.
    pub(in crate::server) fn has_room(&self) -> bool {
        self.link.queued() < FULL
    }

    /// The same; if not, the calls under way are told when it does again.
    pub(in crate::server) fn has_room_or_tells(&self) -> bool {
        if self.has_room() {
            return true;
        }
        // SeqCst, before the second look: whoever makes room looks at the flag after it.
        self.room_wanted.store(true, Ordering::SeqCst);
        self.has_room()
    }

    /// Sends a frame, without waiting: what there is no room for waits in the connection's queue.
    pub(in crate::server) fn send(&self, server: &Server, call: u32, frame: &Outgoing<'_>) -> Result<(), LinkError> {
        match self.link.send(CallKey { number: call, side: self.side }, frame, Room::Later) {
            Ok(Sent::Out) => Ok(()),
            Ok(Sent::Queued) => {
                self.note_queued_frame(server);
                Ok(())
            }
            Err(error) => {
                if !error.spares_connection() {
                    // The reactor notices the end by itself, and drops the connection; but not why.
                    self.tell_end(server, &error);
                    self.link.close();
                }
                Err(error)
            }
        }
    }

    /// Sends replies that were kept back to go out together. For whoever receives.
    pub(in crate::server) fn release(&self, server: &Server) {
        // If the client is gone, that is found out by reading from it.
        if self.link.release() == Ok(Sent::Queued) {
            self.note_queued_frame(server);
        }
    }

    /// Whether something waits to be sent, or has just been.
    pub(in crate::server) fn has_queued_frames(&self) -> bool {
        self.write_interest.is_set()
    }

    /// Something waits to be sent: the reactor is to flush it when there is room.
    #[cold]
    pub(crate) fn note_queued_frame(&self, server: &Server) {
        let sends = ToClient { connection: self, server };
        // Whoever sets it after the connection has died sees that.
        if self.write_interest.set(&sends) && self.is_dead() {
            self.write_interest.clear(&sends);
        }
    }

    /// Sends what waits, as far as there is room. For whoever holds the reactor. Whether deferred requests may be begun now.
    #[cold]
    pub(in crate::server) fn flush(&self, server: &Server) -> bool {
        self.write_interest.flush(&ToClient { connection: self, server });
        if !self.has_room() {
            return false;
        }
        // SeqCst: see `has_room_or_tells`.
        if self.room_wanted.swap(false, Ordering::SeqCst) {
            let calls = self.calls.lock().all();
            for call in &calls {
                call.nudge(server);
            }
        }
        self.has_deferred()
    }

    /// Tells whoever keeps calls beyond their handlers that the server begins to stop.
    pub(in crate::server) fn nudge_kept(&self, server: &Server) {
        let calls = self.calls.lock().all();
        for call in calls.iter().filter(|call| call.is_kept()) {
            call.nudge(server);
        }
    }

    fn has_deferred(&self) -> bool {
        // Relaxed: a worker that defers a request holds the lock, and looks for room under it.
        self.defers.load(Ordering::Relaxed)
    }

    /// Whether a request need not wait until the client reads, nor behind others that do.
    #[inline]
    pub(in crate::server) fn begins_at_once(&self) -> bool {
        self.has_room() && !self.has_deferred()
    }

    /// Lets a request wait until the client reads, and behind others that wait. Gives it back if it may be begun.
    #[cold]
    pub(in crate::server) fn defer(&self, request: Box<Request>) -> Option<Box<Request>> {
        let mut deferred = self.deferred.lock();
        // Looked at under the lock, which whoever makes room takes after it.
        if deferred.is_empty() && self.has_room() {
            return Some(request);
        }
        deferred.push_back(request);
        self.defers.store(true, Ordering::Relaxed);
        None
    }

    /// Whether as many requests wait as may.
    pub(in crate::server) fn is_deferred_full(&self) -> bool {
        self.has_deferred() && self.deferred.lock().len() >= MOST_DEFERRED
    }

    /// The first request that waited, if the client reads; and whether more wait that may be begun.
    pub(in crate::server) fn next_deferred(&self) -> (Option<Box<Request>>, bool) {
        let mut deferred = self.deferred.lock();
        let first = if self.has_room() { deferred.pop_front() } else { None };
        self.defers.store(!deferred.is_empty(), Ordering::Relaxed);
        let more = first.is_some() && !deferred.is_empty();
        (first, more)
    }
}
