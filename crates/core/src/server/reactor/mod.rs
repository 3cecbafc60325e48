//! The reactor: receives from connections of every transport, and from clients whose handshakes are under way.

mod aging;
mod goodbye;
mod handshakes;
mod parting;
mod readable;
mod receiving;
mod routing;
mod stalled;
mod waiting;

use crate::sync::Ordering;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

use nearcall_platform::descriptors;
use nearcall_platform::fault::{Fault, contained};
use nearcall_ring::SpinBudget;
use nearcall_transport::{Body, HeldUp, Ledger, LinkError, Listener, Options, Outgoing};
use nearcall_wire::Welcome;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};

use crate::server::connection::ServerConnection;
use crate::server::connection::adopted::{Adopted, Adoptions};
use crate::server::handlers::directory::Directory;
use crate::server::handlers::work::Work;
use crate::server::inbound::Inbound;
use crate::server::inbound::request::Request;
use crate::server::reactor::aging::Aging;
use crate::server::reactor::goodbye::{GOODBYE, say_goodbye};
use crate::server::reactor::handshakes::{Handshakes, NewClient};
use crate::server::reactor::readable::Readable;
use crate::server::reactor::routing::StallReason;
use crate::server::reactor::stalled::Stalled;
use crate::server::shared::Shared;
use crate::server::shared::notice::Notice;
use crate::server::shared::roster::Listed;

/// At most so many frames are taken in between two looks at the system's poller, however busy the clients are. A long
/// frame counts as several.
const FRAMES_PER_POLL: u32 = 128;
/// A part of a long frame, 256 KiB, counts as so many frames: it takes about as long.
const PART: u32 = 64;

/// At most so often a thread looks at the connections before it sees to what else there is, however much comes.
const MOST_LOOKS: u32 = 16;

/// Events taken from the poller at once.
const EVENTS: usize = 64;

/// The poller's token for the descriptor that wakes it.
const WAKE: u64 = 0;
/// The poller's token for the alarm of items that were kept back.
const KEPT: u64 = 1;

/// The poller's token for the alarm of connections that have reached their age.
const OLD: u64 = 2;

/// What a look at the connections brought.
pub(in crate::server) enum Look {
    Work(Work),
    /// There is nothing more: the caller may sleep.
    Nothing,
    /// There may be more.
    More,
}

/// Everything that the receiving thread looks at. Used by one thread at a time.
pub(in crate::server) struct Reactor {
    shared: Arc<Shared>,
    directory: Arc<Directory>,
    adoptions: Arc<Adoptions>,
    handshakes: Handshakes,
    connections: HashMap<u64, Arc<Inbound<Request>>>,
    /// Shared memory connections that were active since the last sleep: their rings are looked at in a loop.
    memory: Vec<Arc<Inbound<Request>>>,
    cursor: usize,
    /// Sockets that have something to read.
    readable: Readable,
    /// A socket was active since the last sleep.
    sockets_active: bool,
    /// The event loop was handed a request since the last sleep.
    loop_active: bool,
    /// The last sleep in the poller was longer than a handler may run unwatched.
    slept_long: bool,
    /// When the event loop that holds the lead went to sleep, nanoseconds on the monotonic clock.
    asleep_since: Option<u64>,
    /// Work that a thread has received and left to others.
    backlog: VecDeque<Work>,
    stalled: Stalled,
    /// When connections end, if they do by themselves.
    aging: Option<Aging>,
    /// Clients that read again, and have deferred requests.
    resumable: VecDeque<Arc<Inbound<Request>>>,
    /// Whether a deferred request goes next, before new ones.
    deferred_next: bool,
    /// Whether sockets are looked at next, before rings.
    sockets_turn: bool,
    /// Frames taken in since the last look at the poller.
    unpolled: u32,
    /// What the watcher did then.
    watched: u64,
    budget: SpinBudget,
    said_goodbye: bool,
    said_last: bool,
    /// The reactor hands out nothing any more. A thread that still receives leaves what it finds to the thread that
    /// stops the server.
    closed: bool,
    deserted: bool,
    /// Counts frames for calls under way, ends of connections, connections that are set aside, and wake-ups of the
    /// reactor. A handler that receives while it waits looks at its call whenever this has changed.
    routed: u64,
}

impl Reactor {
    pub(in crate::server) fn new(
        options: Options,
        welcome: Welcome,
        shared: &Arc<Shared>,
        directory: Arc<Directory>,
        adoptions: Arc<Adoptions>,
    ) -> io::Result<Self> {
        epoll::add(&*shared.poller, &*shared.wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        epoll::add(&*shared.poller, shared.kept_back.alarm(), EventData::new_u64(KEPT), EventFlags::IN)?;
        let aging = shared.limits.age.map(Aging::new).transpose()?;
        if let Some(aging) = &aging {
            epoll::add(&*shared.poller, aging.alarm(), EventData::new_u64(OLD), EventFlags::IN)?;
        }
        Ok(Self {
            shared: Arc::clone(shared),
            directory,
            adoptions,
            budget: SpinBudget::new(options.spin),
            handshakes: Handshakes::new(options, welcome, Arc::clone(shared), OLD),
            connections: HashMap::new(),
            memory: Vec::new(),
            cursor: 0,
            readable: Readable::default(),
            sockets_active: false,
            loop_active: false,
            slept_long: false,
            asleep_since: None,
            backlog: VecDeque::new(),
            stalled: Stalled::default(),
            aging,
            resumable: VecDeque::new(),
            deferred_next: false,
            sockets_turn: false,
            unpolled: 0,
            watched: 0,
            said_goodbye: false,
            said_last: false,
            closed: false,
            deserted: false,
            routed: 0,
        })
    }

    pub(in crate::server) fn listen(&mut self, listener: Listener) -> io::Result<()> {
        self.handshakes.listen(listener)
    }

    /// Parts from the clients in three steps; called at each wake-up while the server stops. First sends each client a
    /// GOAWAY: the server takes no new calls. Once all calls under way are answered, sends a last GOAWAY: nothing else
    /// comes. Then reports when every client has what was sent to it.
    fn say_goodbye(&mut self) {
        self.handshakes.stop();
        if !std::mem::replace(&mut self.said_goodbye, true) {
            self.tell_clients(GOODBYE);
            for client in self.connections.values() {
                client.nudge_kept();
            }
        }
        // On a link that takes last calls, `has_delivered` also ends the client's time for them, once it has passed.
        let links = self.connections.values().map(|client| &client.connection.link);
        links.filter(|link| link.properties().takes_last_calls).for_each(|link| _ = link.has_delivered());
        // Acquire: the reply to a call that is over was sent. A call may have begun just before the server was stopped.
        if !self.shared.asks_delivery() || self.shared.in_flight.load(Ordering::Acquire) > 0 {
            return;
        }
        // Only the thread that holds this reactor begins calls, and it begins none any more. So a call for which a
        // client still waits when it reads this GOAWAY was not begun, and the client may send it to another server.
        if !std::mem::replace(&mut self.said_last, true) {
            self.tell_clients(Outgoing::LAST);
        }
        // Relaxed: only the thread that holds this reactor sets and reads `hung_up`.
        let is_delivered =
            |one: &Inbound<_>| one.hung_up.load(Ordering::Relaxed) || one.connection.link.has_delivered();
        if self.handshakes.is_empty() && self.connections.values().all(|one| is_delivered(one)) {
            self.shared.answer_delivery();
        }
    }

    /// Sends a GOAWAY with `flags` to all clients.
    fn tell_clients(&self, flags: u8) {
        let clients = self.connections.values().filter(|client| !client.connection.is_own_clients());
        clients.for_each(|client| say_goodbye(client, flags));
    }

    pub(in crate::server) fn close(&mut self) {
        self.handshakes.close();
        self.closed = true;
        self.backlog.drain(..).for_each(Work::give_up);
        self.memory.clear();
        self.readable.clear();
        self.stalled.clear();
        self.resumable.clear();
        for (_, client) in self.connections.drain() {
            self.shared.contain(|| client.die());
            client.oneway.clear();
        }
    }

    /// Receives without handing out work: keeps the first that comes. Whether any work waits now.
    pub(in crate::server) fn poll_into_backlog(&mut self) -> bool {
        while self.backlog.is_empty() {
            match self.poll() {
                Some(work) => self.keep(work),
                None => break,
            }
        }
        !self.backlog.is_empty()
    }

    /// The event loop has work now, and may need this CPU.
    pub(in crate::server) fn note_loop_active(&mut self) {
        self.loop_active = true;
    }

    /// Asks the poller before it looks at the connections again.
    pub(in crate::server) fn ask_poller(&mut self) {
        self.unpolled = self.unpolled.max(FRAMES_PER_POLL);
    }

    /// Keeps work for the next worker, if there will be one.
    pub(in crate::server) fn keep(&mut self, work: Work) {
        if self.closed {
            work.give_up();
        } else {
            self.backlog.push_back(work);
        }
    }

    /// The next work that is here, after at most [`MOST_LOOKS`] looks. For a thread that holds the interpreter this may
    /// take too long.
    pub(in crate::server) fn poll(&mut self) -> Option<Work> {
        for _ in 0..MOST_LOOKS {
            match self.look() {
                Look::Work(work) => return Some(work),
                Look::Nothing => break,
                Look::More => {}
            }
        }
        None
    }

    /// Takes in [`FRAMES_PER_POLL`] frames, or fewer if they bring work.
    pub(in crate::server) fn look(&mut self) -> Look {
        if self.shared.leadership.has_watched(&mut self.watched) {
            self.ask_poller();
        }
        if self.unpolled >= FRAMES_PER_POLL {
            // Handlers may take long. Replies kept back, to go out with later ones, must not wait for them, and no client
            // is overlooked because others always have frames.
            self.readable.iter().for_each(|client| client.connection.release());
            self.poll_events(Some(Duration::ZERO));
        }
        // The backlog first: its work is older than what the clients have sent since.
        if let Some(work) = self.backlog.pop_front() {
            return Look::Work(work);
        }
        // Deferred requests and new ones take turns, so that neither kind keeps the other waiting.
        self.deferred_next = !self.deferred_next && !self.resumable.is_empty();
        let mut request = if self.deferred_next { self.next_deferred() } else { None };
        if request.is_none() {
            request = self.receive();
        }
        if request.is_none() && !self.resumable.is_empty() {
            request = self.next_deferred();
        }
        match request {
            Some(request) => Look::Work(Work::Call(request)),
            None if self.unpolled < FRAMES_PER_POLL => Look::Nothing,
            None => Look::More,
        }
    }

    /// The next deferred request of a client that reads again.
    #[cold]
    fn next_deferred(&mut self) -> Option<Box<Request>> {
        while let Some(client) = self.resumable.pop_front() {
            let (request, more) = match contained(|| client.next_deferred()) {
                Ok(next) => next,
                Err(fault) => {
                    self.drop_client(&client, &fault.into());
                    continue;
                }
            };
            if more {
                self.resumable.push_back(client);
            }
            if request.is_some() {
                self.resume();
                return request;
            }
        }
        None
    }

    /// Whether work is here that came before, and may be handed out.
    fn has_work(&self) -> bool {
        !self.backlog.is_empty() || !self.resumable.is_empty()
    }

    /// Reads again from clients for which there may be room now.
    #[cold]
    fn resume(&mut self) {
        let mut at = 0;
        while let Some((client, reason)) = self.stalled.next_ready(&mut at) {
            match contained(|| self.take_up(&client, reason)) {
                Ok(()) => self.list(client),
                Err(fault) => self.drop_client(&client, &fault.into()),
            }
        }
    }

    /// Does what had to wait while nothing was read from a client.
    fn take_up(&mut self, client: &Inbound<Request>, reason: StallReason) {
        match reason {
            // Behind the client's requests that are deferred already.
            StallReason::Oneway(request) | StallReason::Deferred(request) => {
                client.defer(request).map(Work::Call).into_iter().for_each(|work| self.keep(work));
            }
            StallReason::Answer(call, kind, flags, payload) => {
                // If the client is gone, the next read from it finds that.
                let answer = Outgoing { flags, ..Outgoing::new(kind, Body::Whole(&payload)) };
                let _ = client.connection.send(call, &answer);
            }
            StallReason::Budget | StallReason::Items => {}
        }
    }

    fn drop_client(&mut self, client: &Inbound<Request>, error: &LinkError) {
        let connection = &client.connection;
        self.routed += 1;
        if self.connections.remove(&connection.token()).is_some() {
            // The descriptor may be gone from the poller already.
            self.shared.unwatch(connection.link.signal());
            self.note_connections();
        }
        connection.tell_end(error);
        // Each of these even if the one before fails: a fault may be why the client is dropped.
        self.shared.contain(|| connection.say_why(error));
        self.shared.contain(|| connection.lose(error));
        self.shared.contain(|| client.die());
        self.tell_if_deserted();
    }

    fn note_connections(&self) {
        // Relaxed: the number is shown, and a hint for the thread that stops the server.
        self.shared.connections.store(self.connections.len(), Ordering::Relaxed);
    }

    /// Asks the system's poller. Whether anything happened.
    fn poll_events(&mut self, timeout: Option<Duration>) -> bool {
        let timeout = timeout
            .map(|timeout| Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) });
        let mut space = [MaybeUninit::<Event>::uninit(); EVENTS];
        // An error is a signal; the caller looks again.
        let events =
            epoll::wait(&*self.shared.poller, &mut space[..], timeout.as_ref()).map_or(&[][..], |(events, _)| events);
        let happened = !events.is_empty();
        if self.unpolled > 0 {
            self.stalled.note_arrivals();
        }
        self.unpolled = 0;
        self.shared.leadership.has_watched(&mut self.watched);
        for event in events {
            let (token, flags) = (event.data.u64(), event.flags);
            // The poller reports each event once, so those behind one that goes wrong must be handled.
            let hung_up = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
            if let Err(fault) = contained(|| self.handle(token, hung_up)) {
                self.give_up(token, fault);
            }
        }
        if !self.stalled.is_empty() {
            self.resume();
        }
        if self.handshakes.has_timer() {
            self.handshakes.run_timers();
        }
        self.tell_if_deserted();
        happened
    }

    /// Does something for each of the clients with these tokens that are still here. It may add to the resumable ones.
    fn see_to(&mut self, tokens: Vec<u64>, act: impl Fn(&Arc<Inbound<Request>>, &mut VecDeque<Arc<Inbound<Request>>>)) {
        for token in tokens {
            let Some(client) = self.connections.get(&token) else { continue };
            if let Err(fault) = contained(|| act(client, &mut self.resumable)) {
                self.give_up(token, fault);
            }
        }
    }

    /// An event could not be handled, by a fault.
    #[cold]
    fn give_up(&mut self, token: u64, fault: Fault) {
        match self.connections.get(&token).cloned() {
            Some(client) => {
                self.unlist(&client);
                self.drop_client(&client, &fault.into());
            }
            None => self.shared.tell_fault(&fault),
        }
    }

    /// Reports, once, that all clients are gone and none will come any more.
    fn tell_if_deserted(&mut self) {
        if self.handshakes.is_over() && self.connections.is_empty() && !std::mem::replace(&mut self.deserted, true) {
            self.shared.tell(Notice::Deserted);
        }
    }

    fn handle(&mut self, token: u64, hung_up: bool) {
        if let Some(client) = self.connections.get(&token).cloned() {
            let mut hung_up = hung_up;
            match client.connection.signalled() {
                Ok(Some(wake_cost)) => self.budget.learn_wake_cost(wake_cost),
                Ok(None) => {}
                Err(error) => {
                    client.connection.tell_end(&error);
                    hung_up = true;
                }
            }
            if hung_up {
                // The client reads no more, but the frames that it sent before are still taken in. Relaxed: only the
                // thread that holds this reactor sets and reads the flag.
                client.hung_up.store(true, Ordering::Relaxed);
                client.connection.link.stop_sending();
                // The poller has no more news of the connection.
                self.shared.unwatch(client.connection.link.signal());
                if !client.connection.link.properties().leaves_work {
                    // To read on would only be work: a body may be long, and take much longer to decompress.
                    self.unlist(&client);
                    self.drop_client(&client, &LinkError::Closed);
                    return;
                }
            }
            flush(&client, &mut self.resumable);
            if !client.listed.swap(true, Ordering::Relaxed) {
                self.list_new(client);
            }
        } else if token == WAKE {
            descriptors::clear(&self.shared.wake);
            // A thread that is about to sleep must look at the server's state again, because the event is seen only
            // once.
            self.routed += 1;
            self.take_in_news();
        } else if token == KEPT {
            self.see_to(self.shared.kept_back.take(), |client, _| client.connection.release_kept());
        } else if token == OLD {
            self.see_to_old();
        } else {
            for client in self.handshakes.handle(token) {
                self.add_client(client);
            }
        }
    }

    /// Takes in what other threads have left for the receiving thread.
    fn take_in_news(&mut self) {
        let shared = Arc::clone(&self.shared);
        shared.session_events.take().into_iter().for_each(|event| self.keep(Work::Session(Box::new(event))));
        shared.releases.take().into_iter().for_each(|release| self.keep(Work::Release(Box::new(release))));
        Arc::clone(&self.adoptions).take(|adopted| {
            contained(|| self.adopt(adopted)).unwrap_or_else(|fault| {
                let error = fault.into();
                adopted.client().inspect(|client| shared.contain(|| client.mark_lost(&error)));
                true
            })
        });
        for token in shared.take_news() {
            if let Err(fault) = contained(|| self.handle(token, false)) {
                self.give_up(token, fault);
            }
        }
        for token in shared.session_events.take_admitted() {
            if let Some(client) = self.connections.get(&token) {
                self.list(Arc::clone(client));
            }
        }
        self.let_go(&shared);
        if shared.is_stopping() {
            self.say_goodbye();
        }
    }

    /// Reads from the clients whose calls were held up and may go on. For the others, memory that is freed wakes this thread
    /// once more.
    fn let_go(&mut self, shared: &Shared) {
        let are_left = shared.held_up.retain(|token| {
            let Some(client) = self.connections.get(token).cloned() else { return false };
            let held_up = client.connection.link.ledger().map_or(HeldUp::Nothing, Ledger::held_up);
            if held_up == HeldUp::MayGoOn && !client.listed.swap(true, Ordering::Relaxed) {
                self.list(client);
            }
            // Memory may be full again before it is read from.
            held_up != HeldUp::Nothing
        });
        if are_left && shared.budget.await_room() {
            // Memory may have been freed after the look and before the mark was set.
            shared.wake_reactor();
        }
    }

    fn add_client(&mut self, client: NewClient) {
        let NewClient { token, link, permit, url } = client;
        let connection = ServerConnection::new(&self.shared, token, link, permit, url);
        if let Err(error) = connection.begin_watch() {
            self.shared.notify(true, format!("cannot take in a client: {error}"));
            return;
        }
        let client = Inbound::new(connection);
        client.listed.store(true, Ordering::Relaxed);
        if client.connection.session().begin() {
            self.list(Arc::clone(&client));
        }
        // Its handshake was under way when the server began to stop.
        if self.said_goodbye {
            say_goodbye(&client, GOODBYE);
        }
        if self.said_last {
            say_goodbye(&client, Outgoing::LAST);
        }
        let listed: Arc<dyn Listed> = Arc::<ServerConnection>::clone(&client.connection);
        self.shared.roster.add(token, Arc::downgrade(&listed));
        self.connections.insert(token, client);
        if let Some(aging) = &mut self.aging {
            aging.add(token);
        }
        self.note_connections();
    }

    /// Receives from now on for a client of this process. `false` while a thread of the client still receives: that
    /// thread wakes the reactor when it stops, and this is tried again.
    fn adopt(&mut self, adopted: &Adopted) -> bool {
        let Some(client) = adopted.client() else { return true };
        let Some(shared) = client.shared() else { return true };
        if !client.leave_to_server() {
            return false;
        }
        let token = self.handshakes.token();
        let connection = ServerConnection::of_client(&self.shared, token, &client, shared);
        if let Err(error) = connection.begin_watch() {
            connection.lose(&LinkError::Exhausted(format!("cannot watch the connection: {error}")));
            return true;
        }
        // After it is watched: frames that were queued before are sent when the poller reports room.
        adopted.settle(&connection);
        let client = Inbound::new(connection);
        client.listed.store(true, Ordering::Relaxed);
        self.list(Arc::clone(&client));
        self.connections.insert(token, client);
        self.note_connections();
        true
    }
}

/// There may be room again to send to a client: sends the frames that wait, and lists the client in `resumable` if its
/// deferred requests may begin. A ring's reader reports room only once. So a ring's queue is flushed even if no frame
/// is noted: a thread that has just queued one may not have noted it yet.
fn flush(client: &Arc<Inbound<Request>>, resumable: &mut VecDeque<Arc<Inbound<Request>>>) {
    if (client.connection.looking_is_cheap() || client.connection.has_queued_frames())
        && client.flush()
        && !resumable.iter().any(|other| Arc::ptr_eq(other, client))
    {
        resumable.push_back(Arc::clone(client));
    }
}

#[cfg(test)]
mod tests;
