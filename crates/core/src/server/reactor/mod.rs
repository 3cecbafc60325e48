//! The reactor: receives from connections of every transport, and from clients whose handshakes are under way.

mod debts;
mod handshakes;
mod parting;
mod readable;
mod receiving;
mod routing;
mod shortage;
mod stalled;
mod waiting;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

use nearcall_platform::clock;
use nearcall_platform::fault::{Fault, contained};
use nearcall_ring::SpinBudget;
use nearcall_transport::{HeldUp, Ledger, LinkError, Options, Outgoing};
use nearcall_wire::Welcome;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};

use crate::server::connection::adopted::{Adopted, ReceivedFrom};
use crate::server::connection::{GOODBYE, ServerConnection};
use crate::server::handlers::directory::Directory;
use crate::server::handlers::work::Work;
use crate::server::inbound::request::Request;
use crate::server::inbound::{HUNG_UP, Inbound, LISTED};
use crate::server::reactor::debts::Shortage;
use crate::server::reactor::handshakes::Handshakes;
use crate::server::reactor::readable::Readable;
use crate::server::reactor::stalled::Stalled;
use crate::server::shared::Shared;
use crate::server::shared::mailbox::{News, TakenMail};
use crate::server::shared::notice::Notice;

/// At most so many frames are taken in between two looks at the system's poller, however busy the clients are. A long
/// frame counts as several.
const FRAMES_PER_POLL: u32 = 128;
/// A part of a long frame, 256 KiB, counts as so many frames: it takes about as long.
const PART: u32 = 64;

/// At most so often a thread looks at the connections before it sees to what else there is, however much comes.
const MOST_LOOKS: u32 = 16;

/// Events taken from the poller at once.
const EVENTS: usize = 64;

/// The poller's tokens for the descriptors of the mailbox.
const WAKE: u64 = 0;
const ALARM: u64 = 1;
/// No descriptor has these. They are due when stalled clients are to be looked at, and whether memory is still short.
const STALLED: u64 = 2;
const SHORT: u64 = 3;

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
    pub(in crate::server) handshakes: Handshakes,
    connections: HashMap<u64, Arc<Inbound<Request>>>,
    /// Shared memory connections that were active since the last sleep: their rings are looked at in a loop.
    memory: Vec<Arc<Inbound<Request>>>,
    cursor: usize,
    /// Sockets that have something to read.
    readable: Readable,
    /// A socket was active since the last sleep.
    sockets_active: bool,
    /// The event loop was handed a request since the last sleep: it may need this CPU.
    pub(in crate::server) loop_active: bool,
    /// The last sleep in the poller was longer than a handler may run unwatched.
    slept_long: bool,
    /// When the event loop that holds the lead went to sleep, nanoseconds on the monotonic clock.
    asleep_since: Option<u64>,
    /// Work that a thread has received and left to others.
    backlog: VecDeque<Work>,
    stalled: Stalled,
    /// One call has found no room, and it is looked who keeps it.
    shortage: Option<Shortage>,
    /// The connections with calls that wait until memory is freed. Some may have no such call any more.
    want_memory: BTreeSet<u64>,
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
    ) -> io::Result<Self> {
        for (token, descriptor) in [WAKE, ALARM].into_iter().zip(shared.mailbox.descriptors()) {
            epoll::add(&*shared.poller, descriptor, EventData::new_u64(token), EventFlags::IN)?;
        }
        Ok(Self {
            shared: Arc::clone(shared),
            directory,
            budget: SpinBudget::new(options.spin),
            handshakes: Handshakes::new(options, welcome, Arc::clone(shared), SHORT),
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
            shortage: None,
            want_memory: BTreeSet::new(),
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

    pub(in crate::server) fn close(&mut self) {
        self.handshakes.close();
        self.closed = true;
        self.backlog.drain(..).for_each(Work::give_up);
        self.memory.clear();
        self.readable = Readable::default();
        self.stalled.clear();
        for (_, client) in self.connections.drain() {
            self.shared.contain(|| client.die());
            client.oneway.clear();
        }
    }

    /// Receives without handing out work: keeps the first that comes. Whether any work waits now.
    pub(in crate::server) fn poll_into_backlog(&mut self) -> bool {
        if self.backlog.is_empty()
            && let Some(work) = self.poll()
        {
            self.keep(work);
        }
        !self.backlog.is_empty()
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
        match self.receive() {
            Some(request) => Look::Work(Work::of_call(request)),
            None if self.unpolled < FRAMES_PER_POLL => Look::Nothing,
            None => Look::More,
        }
    }

    /// Reads again from clients for which there may be room now.
    #[cold]
    fn resume(&mut self) {
        let (mut at, now) = (0, clock::monotonic_ns());
        while let Some(client) = self.stalled.next_ready(&mut at, now) {
            self.list(client);
        }
    }

    fn drop_client(&mut self, client: &Inbound<Request>, error: &LinkError) {
        let connection = &client.connection;
        self.routed += 1;
        if self.connections.remove(&connection.token()).is_some() {
            // The descriptor may be gone from the poller already.
            self.shared.unwatch(connection.link.signal());
            self.shared.mailbox.cancel(connection.token(), News::Due);
            self.shared.mailbox.cancel(connection.token(), News::Left);
        }
        self.stalled.remove(client);
        connection.tell_end(error);
        // Each of these even if the one before fails: a fault may be why the client is dropped.
        self.shared.contain(|| connection.say_why(error));
        self.shared.contain(|| connection.lose(error));
        self.shared.contain(|| client.die());
        self.tell_if_deserted();
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
        self.tell_if_deserted();
        happened
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
                // The client reads no more, but the frames that it sent before are still taken in.
                client.marks.set(HUNG_UP);
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
            client.flush();
            if client.marks.set(LISTED) {
                self.list_new(client);
            }
        } else if token == WAKE || token == ALARM {
            // A thread that is about to sleep must look at the server's state again, because the event is seen only
            // once.
            self.routed += 1;
            self.take_in_news(token == ALARM);
        } else {
            for client in self.handshakes.handle(token) {
                self.add_client(client);
            }
        }
    }

    /// Takes in what other threads have left for the receiving thread. `rang`: the alarm has woken it.
    fn take_in_news(&mut self, rang: bool) {
        let TakenMail { news, clients, hooks } = self.shared.mailbox.take(rang);
        for hook in hooks {
            self.keep(Work::of_hook(hook));
        }
        for client in clients {
            let Ok(adopted) = client.downcast::<Adopted>() else { continue };
            match contained(|| self.adopt(&adopted)) {
                Ok(true) => {}
                Ok(false) => self.shared.mailbox.put_client_back(adopted),
                Err(fault) => {
                    let error = fault.into();
                    adopted.client.upgrade().inspect(|client| self.shared.contain(|| client.mark_lost(&error)));
                }
            }
        }
        for (token, news) in news {
            if let Err(fault) = contained(|| self.see_to(token, news)) {
                self.give_up(token, fault);
            }
        }
        self.let_go();
        self.note_shortage();
        if self.shared.is_stopping() {
            self.part_from_all();
        }
    }

    fn see_to(&mut self, token: u64, news: News) {
        match (news, self.connections.get(&token).cloned()) {
            (News::Look, _) => self.handle(token, false),
            (News::Due, None) if token == SHORT => self.look_at_shortage(),
            (News::Due, None) => self.handshakes.see_to(token),
            (News::Due, Some(client)) => self.part_from(&client),
            (News::Admitted, Some(client)) => self.list(client),
            (News::KeptBack, Some(client)) => client.connection.release_kept(),
            (News::Left, Some(client)) => self.leave_behind(&client),
            (News::WantsMemory, Some(_)) => _ = self.want_memory.insert(token),
            (News::Admitted | News::KeptBack | News::Left | News::WantsMemory, None) => {}
        }
    }

    /// Reads from the clients whose calls were held up and may go on. For the others, memory that is freed wakes this thread
    /// once more: see `arm`.
    fn let_go(&mut self) {
        let mut held_up = std::mem::take(&mut self.want_memory);
        held_up.retain(|token| {
            let Some(client) = self.connections.get(token).cloned() else { return false };
            let held_up = client.connection.link.ledger().map_or(HeldUp::Nothing, Ledger::held_up);
            if held_up == HeldUp::MayGoOn && client.marks.set(LISTED) {
                self.list(client);
            }
            // Memory may be full again before it is read from.
            held_up != HeldUp::Nothing
        });
        self.want_memory = held_up;
    }

    /// A client's handshake is complete.
    fn add_client(&mut self, connection: Arc<ServerConnection>) {
        let token = connection.token();
        if let Err(error) = connection.begin_watch() {
            self.shared.notify(true, format!("cannot take in a client: {error}"));
            return;
        }
        let client = Inbound::new(connection);
        client.marks.set(LISTED);
        if client.connection.session().begin() {
            self.list(Arc::clone(&client));
        }
        // Its handshake was under way when the server began to stop.
        if self.said_goodbye {
            client.connection.say_goodbye(GOODBYE);
        }
        if self.said_last {
            client.connection.say_goodbye(Outgoing::LAST);
        }
        self.shared.roster.add(token, Arc::downgrade(&client.connection) as _);
        self.connections.insert(token, client);
        self.begin_to_age(token);
    }

    /// Receives from now on for a client of this process. `false` while a thread of the client still receives: that
    /// thread wakes the reactor when it stops, and this is tried again.
    fn adopt(&mut self, adopted: &Adopted) -> bool {
        let Some(client) = adopted.client.upgrade() else { return true };
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
        // It is settled once.
        let _ = adopted.connection.set(ReceivedFrom::new(&connection));
        // No thread was there to send the frames that were queued before. Noted after the connection is watched: they are sent
        // when the poller reports room.
        connection.note_queued_frame();
        let client = Inbound::new(connection);
        client.marks.set(LISTED);
        self.list(Arc::clone(&client));
        self.connections.insert(token, client);
        true
    }
}

#[cfg(test)]
mod tests;
