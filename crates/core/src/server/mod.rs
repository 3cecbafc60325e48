//! The server: it receives requests from any number of connections, over any number of URLs.
//!
//! - `reactor`: watches all connections, takes in new clients, hands out what comes;
//! - `leadership`: which thread runs the reactor at the moment, and who takes over from it;
//! - `worker`, `event_loop`: the two kinds of threads that take the lead and run handlers, and their queues;
//! - `connection`: one client: its frames, its calls under way, its session, what waits to be written to it;
//! - `call`: one call: its request, its streams, what its handler can learn of it;
//! - `native`: handlers in Rust;
//! - `statistics`: what is measured of calls.

mod call;
mod connection;
mod event_loop;
mod leadership;
mod native;
mod reactor;
mod receives;
pub(crate) mod statistics;
mod worker;

use crate::sync::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nearcall_platform::descriptors;
use nearcall_platform::lock::Mutex;
use nearcall_transport::{Budget, Listener, Options, Paths};
use nearcall_wire::{Failure, Limits, Welcome};
use rustix::event::epoll::{self, EventData, EventFlags};

pub use crate::exports::{HandlerKind, MethodRouting, Release};
pub use call::{CallContext, ItemOutcome, NextItem, Request, ServerCall};
pub use connection::ServerConnection;
pub use connection::session::{Found, SessionChange, SessionEvent, SessionHooks, SessionValue, Work};
pub use event_loop::{AsyncQueue, ForLoop};
pub use native::{Keeper, NativeHandler};
pub use statistics::{Counts, Histogram, MeasuredMethod, MethodCounts, Snapshot};
pub use worker::{Next, Worker};

use crate::exports::Releases;
use call::Told;
use connection::session::SessionEvents;
use leadership::Leadership;
use reactor::Reactor;
use receives::Adopted;
use statistics::Statistics;
use worker::Queue;

/// The methods of a server.
#[derive(Default)]
pub struct ServedMethods {
    /// Sent to each client; only clients read it.
    pub description: String,
    /// In the order of the description. `None`: it is called on objects only.
    pub routings: Vec<Option<MethodRouting>>,
    /// See [`HandlerKind::Native`].
    pub native_handlers: Vec<Box<dyn NativeHandler>>,
    /// For each method, in the same order: what it is called where it is measured. Those of one name are counted as one.
    pub measured: Vec<Option<MeasuredMethod>>,
    /// Those that clients name by their paths, over HTTP.
    pub paths: Paths,
}

/// What whoever runs the server should know.
#[derive(Debug, Clone)]
pub enum Notice {
    /// For the log.
    Line {
        /// Whether something is wrong with this server itself, not only with one client.
        serious: bool,
        /// One line.
        text: String,
    },
    /// All clients are gone, and none will ever come: they were given by whoever started this process.
    Deserted,
}

/// Called with each [`Notice`], from any thread.
pub type OnNotice = Box<dyn Fn(Notice) + Send + Sync>;

/// Receives requests from any number of connections, over any number of URLs.
pub struct Server {
    welcome: Welcome,
    /// `None`: it is called on objects only.
    methods: Vec<Option<MethodRouting>>,
    native_handlers: Vec<Box<dyn NativeHandler>>,
    notice: OnNotice,
    leadership: Leadership,
    reactor: Mutex<Reactor>,
    /// A hook stops the server: it is not waited for.
    in_hook: AtomicBool,
    stopping: AtomicBool,
    /// Set when everything is over: workers return.
    stopped: AtomicBool,
    /// Requests received and not finished.
    in_flight: Arc<AtomicUsize>,
    /// Connections open.
    connections: AtomicUsize,
    statistics: Arc<Statistics>,
    /// The system's poller of the reactor.
    poller: Arc<OwnedFd>,
    /// Wakes the receiving worker out of the system's poller.
    wake: Arc<OwnedFd>,
    /// The event loop that takes requests, if there is one.
    async_queue: OnceLock<Arc<AsyncQueue>>,
    /// Requests for the loop that a worker has received since the last one for a worker.
    loop_run: AtomicUsize,
    /// Workers alive, and those of them that wait for the lead.
    workers: AtomicUsize,
    standby: AtomicUsize,
    limits: WorkLimits,
    /// Sessions whose hooks are to be run.
    session_events: Arc<SessionEvents>,
    /// Objects that clients have let go of.
    releases: Arc<Releases>,
    /// Connections of this process's own clients whose calls are to be handled here.
    adopted: Mutex<Vec<Adopted>>,
    /// Workers that wait in a handler for the reply to a call over one of these connections.
    waiting: AtomicUsize,
    /// Whoever receives has woken a thread that waited for such a reply, and may leave receiving to it.
    woke_caller: AtomicBool,
    /// It has handed out requests since it last did so.
    served: AtomicBool,
    /// Requests that wait for a worker, because as many handlers run as may.
    queue: Mutex<Queue>,
    queued: AtomicUsize,
    /// Those of them that have a stream.
    queued_streams: AtomicUsize,
    /// Handlers of streams that run in threads.
    streams: Arc<AtomicUsize>,
    /// Clients that do not read what waits for them.
    unsent_connections: AtomicUsize,
    budget: Arc<Budget>,
    /// One-way calls that came while the server was stopping: nobody else could be told.
    came_too_late: AtomicUsize,
    /// Whether the reactor has been asked if all that went out is at the clients, and has found that it is.
    delivery: AtomicU8,
}

const UNASKED: u8 = 0;
const ASKED: u8 = 1;
const DELIVERED: u8 = 2;

/// How much a server takes on at once.
#[derive(Debug, Clone, Copy)]
pub struct WorkLimits {
    /// Handlers that run in threads; coroutines are not counted.
    pub max_concurrency: usize,
    /// Requests received and not finished, those that wait included.
    pub max_pending: usize,
    /// Calls with a stream under way on one connection.
    pub max_streams: usize,
    /// Bytes kept of what clients have sent, and of what waits for them to read.
    pub max_memory: usize,
    /// Objects that one client may hold.
    pub max_references: usize,
}

impl WorkLimits {
    /// So many requests may be there before one-way calls wait at their clients: some room is left for those who would be
    /// refused.
    fn most_oneway(&self) -> usize {
        self.max_pending - self.max_pending / 4
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("methods", &self.methods.len()).finish_non_exhaustive()
    }
}

impl Server {
    /// A server that listens nowhere yet.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(
        methods: ServedMethods,
        options: Options,
        work_limits: WorkLimits,
        session_hooks: SessionHooks,
        notice: OnNotice,
    ) -> io::Result<Self> {
        let ServedMethods { description, routings, native_handlers, measured, paths } = methods;
        let limits = Limits { max_message: options.max_message };
        let budget = Budget::new(work_limits.max_memory);
        let options = Options { budget: Some(Arc::clone(&budget)), paths: Arc::new(paths), ..options };
        let wake = Arc::new(descriptors::new_event()?);
        let poller = Arc::new(descriptors::new_poller()?);
        Ok(Self {
            reactor: Mutex::new(Reactor::new(options, Arc::clone(&poller), Arc::clone(&wake))?),
            welcome: Welcome { version: crate::VERSION.to_owned(), limits, description, memory: false, buffers: 0 },
            async_queue: OnceLock::new(),
            loop_run: AtomicUsize::new(0),
            methods: routings,
            native_handlers,
            notice,
            leadership: Leadership::new(descriptors::new_event()?, descriptors::new_alarm()?, Arc::clone(&poller)),
            poller,
            session_events: Arc::new(SessionEvents::new(session_hooks, Arc::clone(&wake))),
            releases: Releases::new(Arc::clone(&wake)),
            adopted: Mutex::default(),
            waiting: AtomicUsize::new(0),
            woke_caller: AtomicBool::new(false),
            served: AtomicBool::new(false),
            wake,
            in_hook: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            in_flight: Arc::default(),
            connections: AtomicUsize::new(0),
            statistics: Arc::new(Statistics::new(measured)),
            workers: AtomicUsize::new(0),
            standby: AtomicUsize::new(0),
            limits: work_limits,
            queue: Mutex::default(),
            queued: AtomicUsize::new(0),
            queued_streams: AtomicUsize::new(0),
            streams: Arc::default(),
            unsent_connections: AtomicUsize::new(0),
            budget,
            came_too_late: AtomicUsize::new(0),
            delivery: AtomicU8::new(UNASKED),
        })
    }

    /// Takes in the clients of one more listener.
    ///
    /// # Errors
    /// What the system says.
    pub fn listen(&self, listener: Listener) -> io::Result<()> {
        self.reactor.lock().listen(listener)
    }

    /// Ends: no new clients, no new calls; waits until the calls under way are finished, `grace` at most; then closes all
    /// connections. Workers return. Whether all calls were finished. A hook of a session or for an object that was let go
    /// of that calls this, as `in_hook` says, is not waited for.
    pub fn stop(&self, grace: Duration, in_hook: bool) -> bool {
        // Relaxed: see `has_no_hooks`.
        self.in_hook.store(in_hook, Ordering::Relaxed);
        // Release: a worker that sees it also sees what was done before stopping.
        self.stopping.store(true, Ordering::Release);
        for handler in &self.native_handlers {
            handler.stopping(self);
        }
        self.wake_reactor();
        let end = Instant::now() + grace;
        let mut finished = self.has_finished();
        while !finished && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
            finished = self.has_finished();
        }
        // Relaxed: what comes at this very moment goes down with the connection. Told before the workers return, who pass
        // it on.
        let too_late = self.came_too_late.swap(0, Ordering::Relaxed);
        if too_late > 0 {
            self.notify(true, format!("dropped {too_late} one-way calls that came while the server stopped"));
        }
        self.stopped.store(true, Ordering::Release);
        self.wake_reactor();
        self.leadership.announce();
        finished
    }

    /// Whether [`Server::stop`] has closed everything.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Whether it takes no more calls: [`Server::stop`] was called.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Whether nothing is under way, and the replies are at the clients. To be asked again and again: the reactor looks
    /// for it meanwhile.
    fn has_finished(&self) -> bool {
        if !self.is_idle() {
            return false;
        }
        // Relaxed: a client who comes now has asked for nothing.
        if self.connections.load(Ordering::Relaxed) == 0 {
            return true;
        }
        // AcqRel: whoever answers sees that nothing is under way any more.
        if self.delivery.compare_exchange(UNASKED, ASKED, Ordering::AcqRel, Ordering::Acquire) == Err(DELIVERED) {
            return true;
        }
        self.wake_reactor();
        false
    }

    fn is_idle(&self) -> bool {
        // Acquire: a reply that had to wait is counted before its call is over.
        self.in_flight.load(Ordering::Acquire) == 0
            && self.unsent_connections.load(Ordering::Acquire) == 0
            && self.has_no_hooks()
    }

    /// Workers alive.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.workers.load(Ordering::Acquire)
    }

    /// The queue of the event loop that handles coroutines; made at the first call. Calls that come after it are told to it.
    ///
    /// # Errors
    /// What the system says.
    pub fn use_event_loop(&self) -> io::Result<Arc<AsyncQueue>> {
        if let Some(queue) = self.async_queue.get() {
            return Ok(Arc::clone(queue));
        }
        let queue = Arc::new(AsyncQueue::new()?);
        Ok(Arc::clone(self.async_queue.get_or_init(|| queue)))
    }

    /// Who is told of news of a call.
    fn told(&self, handler: HandlerKind) -> Told {
        match handler {
            HandlerKind::Thread => Told::Nobody,
            HandlerKind::EventLoop => self.async_queue.get().cloned().map_or(Told::Nobody, Told::Loop),
            HandlerKind::Native(handler) => Told::Native(handler),
        }
    }

    /// What is measured of the calls, and how busy the server is, for a call that asks.
    fn snapshot(&self) -> Snapshot {
        // Relaxed: each number is true by itself, and old a moment later.
        Snapshot {
            pid: std::process::id(),
            version: crate::VERSION,
            connections: self.connections.load(Ordering::Relaxed),
            workers: self.workers.load(Ordering::Relaxed),
            idle_workers: self.standby.load(Ordering::Relaxed),
            queued: self.queued.load(Ordering::Relaxed),
            // The call that asks is under way, too, but is not what somebody wants to know.
            in_flight: self.in_flight.load(Ordering::Relaxed).saturating_sub(1),
            memory: self.budget.used(),
            max_memory: self.budget.limit(),
            ..self.statistics.snapshot()
        }
    }

    /// Closes everything that is left, after the workers have returned.
    pub fn close(&self) {
        self.queue.lock().clear();
        self.reactor.lock().close(self);
    }

    /// The begin or end of a session whose hook nobody has run: for whoever is there when the server has stopped.
    #[must_use]
    pub fn take_session_event(&self) -> Option<SessionEvent> {
        self.session_events.take_one()
    }

    /// The same for an object that clients have let go of.
    #[must_use]
    pub fn take_release(&self) -> Option<Release> {
        self.releases.take_one()
    }

    /// Whether no hook of a session or for an object that was let go of runs just now, and none waits for it; not counting
    /// one that stops the server.
    #[must_use]
    pub fn has_no_hooks(&self) -> bool {
        // Relaxed: asked by the thread that has set it.
        let spared = usize::from(self.in_hook.load(Ordering::Relaxed));
        self.session_events.pending() + self.releases.pending() <= spared
    }

    /// What is known of a method of its services.
    #[inline]
    fn method(&self, number: u16) -> Option<MethodRouting> {
        match self.methods.get(usize::from(number)) {
            Some(Some(method)) => Some(*method),
            _ => None,
        }
    }

    fn too_many_pending(&self) -> Failure {
        let limit = self.limits.max_pending;
        Failure::new(
            Failure::RESOURCE_EXHAUSTED,
            format!("the server has {limit} calls under way, which is its limit; raise it there with max_pending"),
        )
    }

    /// Lets the poller tell of room in a client's socket, or no longer. A ring's reader rings the bell by itself.
    fn watch_room(&self, connection: &ServerConnection, watch: bool) {
        if !connection.link.is_memory() {
            let flags = if watch { reactor::SOCKET | EventFlags::OUT } else { reactor::SOCKET };
            // It fails for a connection that is gone.
            let _ = epoll::modify(&*self.poller, connection.link.fd(), EventData::new_u64(connection.token), flags);
        }
    }

    fn too_many_streams(&self) -> Failure {
        let limit = self.limits.max_streams;
        Failure::new(
            Failure::RESOURCE_EXHAUSTED,
            format!(
                "this client has {limit} streams open, which is the server's limit for one connection; close some, or \
                 raise it there with max_streams"
            ),
        )
    }

    fn wake_reactor(&self) {
        descriptors::signal(&self.wake);
    }

    fn notify(&self, serious: bool, text: String) {
        self.tell(Notice::Line { serious, text });
    }

    fn tell(&self, notice: Notice) {
        (self.notice)(notice);
        // The worker that receives tells it on, and may be about to sleep.
        self.wake_reactor();
    }
}
