//! The server: it receives requests from any number of connections, over any number of URLs.
//!
//! From the ground up; no file knows one above it (`tools/check_floors.py` looks):
//!
//! - `shared`: what all parts know of their server: limits, counts, whether it stops. With it `statistics`, what is measured of
//!   calls; `early_ends`, who wants to know that nobody waits for a call any more; `kept_back`, whose items go out in a moment;
//!   `session`, what belongs to a client; `leadership`, which thread runs the reactor at the moment, and who takes over;
//! - `connection`: one client, as its calls know it: how frames reach it;
//! - `call`: one call: its streams, and what its handler can learn of it;
//! - `inbound`, `request`: what has come from one client, and what becomes of it;
//! - `work`, `native`, `directory`: what there is to do, and who handles it;
//! - `reactor`: watches all connections, takes in new clients, hands out what comes;
//! - [`Server`]: all of that, to be started and stopped;
//! - `worker`, `event_loop`: the two kinds of threads that take the lead and run handlers; `receives`: the threads that wait
//!   for replies of clients.

mod adopted;
mod call;
mod connection;
mod directory;
mod early_ends;
mod event_loop;
mod inbound;
mod kept_back;
mod leadership;
mod limits;
mod native;
mod notice;
mod reactor;
mod receives;
mod request;
mod session;
mod shared;
mod statistics;
mod work;
mod worker;

use crate::sync::{AtomicBool, AtomicUsize, Ordering};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_platform::descriptors;
use nearcall_platform::lock::Mutex;
use nearcall_transport::{Budget, Listener, Options};
use nearcall_wire::{Limits, Welcome};

pub use crate::exports::{HandlerKind, MethodRouting, Release};
pub use call::{CallContext, CallObserver, ItemOutcome, NextItem, ServerCall};
pub use connection::ServerConnection;
pub use directory::ServedMethods;
pub use early_ends::{EarlyEnds, Errand};
pub use event_loop::{AsyncQueue, ForLoop};
pub use limits::WorkLimits;
pub use native::NativeHandler;
pub use notice::{Notice, OnNotice};
pub use request::{OnewayTurn, Request};
pub use session::{Found, Session, SessionChange, SessionEvent, SessionHooks, SessionValue};
pub use statistics::{Counts, Histogram, MeasuredMethod, MethodCounts, Snapshot};
pub use work::Work;
pub use worker::{Next, Worker};

use adopted::Adoptions;
use directory::Directory;
use kept_back::KeptBack;
use leadership::Leadership;
use reactor::Reactor;
use session::SessionEvents;
use shared::Shared;
use statistics::Statistics;
use worker::Queue;

/// How often a server that stops looks whether its clients know of that.
const LOOK: Duration = Duration::from_millis(20);

/// Receives requests from any number of connections, over any number of URLs.
pub struct Server {
    shared: Arc<Shared>,
    directory: Arc<Directory>,
    reactor: Mutex<Reactor>,
    /// A hook stops the server: it is not waited for.
    in_hook: AtomicBool,
    /// Requests for the loop that a worker has received since the last one for a worker.
    loop_run: AtomicUsize,
    /// Connections of this process's own clients whose calls are to be handled here.
    adoptions: Arc<Adoptions>,
    /// Workers that wait in a handler for the reply to a call over one of these connections, and do not receive themselves.
    waiting: Arc<AtomicUsize>,
    /// Whoever receives has woken a thread that waited for such a reply, and may leave receiving to it.
    woke_caller: AtomicBool,
    /// It has handed out requests since it last did so.
    served: AtomicBool,
    /// Requests that wait for a worker, because as many handlers run as may.
    queue: Mutex<Queue>,
    /// Those of them that have a stream.
    queued_streams: AtomicUsize,
    /// Handlers of streams that run in threads.
    streams: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("methods", &self.directory.len()).finish_non_exhaustive()
    }
}

/// Whoever still keeps a call of it sees that nobody serves any more.
impl Drop for Server {
    fn drop(&mut self) {
        self.shared.begin_to_stop();
        self.shared.end();
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
        limits: WorkLimits,
        session_hooks: SessionHooks,
        notice: OnNotice,
    ) -> io::Result<Self> {
        let ServedMethods { description, routings, native_handlers, measured, paths } = methods;
        let (poller, wake) = (Arc::new(descriptors::new_poller()?), Arc::new(descriptors::new_event()?));
        let budget = Budget::waking(limits.max_memory, &Arc::downgrade(&wake));
        let options = Options { budget: Some(Arc::clone(&budget)), paths: Arc::new(paths), ..options };
        let shared = Shared::new(shared::Parts {
            limits,
            notice,
            leadership: Leadership::new(descriptors::new_event()?, descriptors::new_alarm()?, Arc::clone(&poller)),
            statistics: Statistics::new(measured),
            session_events: Arc::new(SessionEvents::new(session_hooks, Arc::clone(&wake))),
            poller,
            wake,
            budget,
            kept_back: KeptBack::new(descriptors::new_alarm()?),
        });
        let directory = Directory::new(routings, native_handlers);
        let adoptions = Arc::<Adoptions>::default();
        let welcome = Welcome {
            version: crate::VERSION.to_owned(),
            limits: Limits { max_message: options.max_message },
            description,
            memory: false,
            buffers: 0,
        };
        let reactor = Reactor::new(options, welcome, &shared, Arc::clone(&directory), Arc::clone(&adoptions))?;
        Ok(Self {
            shared,
            directory,
            reactor: Mutex::new(reactor),
            in_hook: AtomicBool::new(false),
            loop_run: AtomicUsize::new(0),
            adoptions,
            waiting: Arc::default(),
            woke_caller: AtomicBool::new(false),
            served: AtomicBool::new(false),
            queue: Mutex::default(),
            queued_streams: AtomicUsize::new(0),
            streams: Arc::default(),
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
        self.shared.begin_to_stop();
        for handler in self.directory.native_handlers() {
            handler.stopping();
        }
        self.shared.wake_reactor();
        let begun = Instant::now();
        let end = begun + grace;
        let mut look = begun + LOOK;
        let mut finished = self.has_finished();
        while !finished && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
            finished = self.has_finished();
            if Instant::now() >= look {
                // Clients that say nothing are not waited for, although nothing wakes who receives.
                self.shared.wake_reactor();
                look += LOOK;
            }
        }
        // Relaxed: what comes at this very moment goes down with the connection. Told before the workers return, who pass
        // it on.
        let too_late = self.shared.came_too_late.swap(0, Ordering::Relaxed);
        if too_late > 0 {
            self.shared.notify(true, format!("dropped {too_late} one-way calls that came while the server stopped"));
        }
        self.shared.end();
        self.shared.wake_reactor();
        self.shared.leadership.announce();
        finished
    }

    /// Whether [`Server::stop`] has closed everything.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.shared.is_stopped()
    }

    /// Whether it takes no more calls: [`Server::stop`] was called.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.shared.is_stopping()
    }

    /// Whether nothing is under way, and the replies are at the clients. To be asked again and again: the reactor looks
    /// for it meanwhile.
    fn has_finished(&self) -> bool {
        if !self.is_idle() {
            return false;
        }
        // Relaxed: a client who comes now has asked for nothing.
        if self.shared.connections.load(Ordering::Relaxed) == 0 {
            return true;
        }
        if self.shared.ask_delivery() {
            return true;
        }
        self.shared.wake_reactor();
        false
    }

    fn is_idle(&self) -> bool {
        // Acquire: a reply that had to wait is counted before its call is over.
        self.shared.in_flight.load(Ordering::Acquire) == 0
            && self.shared.unsent_connections.load(Ordering::Acquire) == 0
            && self.has_no_hooks()
    }

    /// Workers alive.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.shared.workers.load(Ordering::Acquire)
    }

    /// The queue of the event loop that handles coroutines; made at the first call. Calls that come after it are told to it.
    ///
    /// # Errors
    /// What the system says.
    pub fn use_event_loop(&self) -> io::Result<Arc<AsyncQueue>> {
        self.directory.use_event_loop()
    }

    /// Closes everything that is left, after the workers have returned.
    pub fn close(&self) {
        self.queue.lock().clear();
        self.reactor.lock().close();
    }

    /// The begin or end of a session whose hook nobody has run: for whoever is there when the server has stopped.
    #[must_use]
    pub fn take_session_event(&self) -> Option<SessionEvent> {
        self.shared.session_events.take_one()
    }

    /// The same for an object that clients have let go of.
    #[must_use]
    pub fn take_release(&self) -> Option<Release> {
        self.shared.releases.take_one()
    }

    /// Whether no hook of a session or for an object that was let go of runs just now, and none waits for it; not counting
    /// one that stops the server.
    #[must_use]
    pub fn has_no_hooks(&self) -> bool {
        // Relaxed: asked by the thread that has set it.
        let spared = usize::from(self.in_hook.load(Ordering::Relaxed));
        self.shared.session_events.pending() + self.shared.releases.pending() <= spared
    }

    /// The thread that has the lead begins to run a handler. It may lose the lead by that.
    fn begin_handler(&self) {
        self.shared.leadership.busy();
    }

    /// Lets another worker receive: the caller is going to wait for something else.
    fn release(&self) {
        self.shared.leadership.release();
    }
}
