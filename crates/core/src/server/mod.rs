//! The server: it receives requests from any number of connections, over any number of URLs.
//!
//! The modules from the ground up; none uses one above it (`tools/check_floors.py` checks):
//!
//! - `threads`: how many handlers run (`crew`), which thread receives, and which sleep (`leadership`);
//! - `shared`: what all parts of a server share: its limits, its counts (`statistics`), whether it stops; the clients'
//!   values (`session`), what is left for the receiving thread (`mailbox`), and for who runs errands (`early_ends`);
//! - `connection`: the connection to one client, as its calls see it: how frames reach the client;
//! - `call`: one call: its streams, and what its handler can learn of it;
//! - `inbound`: the frames from one client, and the requests made of them;
//! - `handlers`: the work for handlers, where it waits, and what runs it;
//! - `reactor`: watches all connections, takes in new clients, hands out requests;
//! - [`Server`]: puts the parts together, to be started and stopped;
//! - `receivers`: the threads that receive: workers and event loops, which run handlers, and threads that wait for replies
//!   to calls of their own.

mod call;
mod connection;
mod handlers;
mod inbound;
mod reactor;
mod receivers;
mod shared;
mod threads;

use crate::sync::Ordering;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_platform::descriptors;
use nearcall_platform::fault::Fault;
use nearcall_platform::freeing;
use nearcall_platform::lock::{Mutex, OuterMutex};
use nearcall_transport::{Listener, Options};
use nearcall_wire::{Limits, Welcome};

pub use crate::exports::{HandlerKind, MethodRouting};
pub use call::{CallContext, CallObserver, ItemOutcome, NextItem, ServerCall, UnderWay};
pub use connection::ServerConnection;
pub use connection::values::{ValueBudget, ValuesCharge};
pub use handlers::directory::{NativeHandler, ServedMethods};
pub use handlers::loop_queue::AsyncQueue;
pub use handlers::work::Work;
pub use inbound::request::{OnewayTurn, Request};
pub use receivers::event_loop::ForLoop;
pub use receivers::worker::{Next, Worker};
pub use shared::early_ends::{EarlyEnds, Errand};
pub use shared::limits::{Age, WorkLimits};
pub use shared::notice::{Notice, OnNotice};
pub use shared::roster::{ConnectionRow, MOST_SHOWN};
pub use shared::session::{Found, Hook, HookRun, Session, SessionChange, SessionHooks, SessionValue};
pub use shared::statistics::{Counts, Histogram, MeasuredMethod, MethodCounts, Snapshot};
pub use threads::loop_watch::{LoopWatch, Watchable};

use handlers::directory::Directory;
use handlers::queue::Queue;
use reactor::Reactor;
use shared::{DELIVERED, STOPPED, STOPPING, Shared};
use threads::leadership::lead::Trend;

/// How often a stopping server lets the receiving thread look whether the clients know of the stop.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Receives requests from any number of connections, over any number of URLs.
pub struct Server {
    shared: Arc<Shared>,
    directory: Arc<Directory>,
    reactor: OuterMutex<Reactor>,
    trend: Trend,
    /// Requests that wait for a worker, because as many handlers run as may.
    queue: Mutex<Queue>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

/// Code that still keeps a call of this server sees that the server has stopped.
impl Drop for Server {
    fn drop(&mut self) {
        self.shared.reach(STOPPED);
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
        freeing::serve();
        let shared = Shared::new(limits, session_hooks, measured, notice)?;
        let budget = Some(Arc::clone(&shared.budget));
        let options = Options { budget, paths: Arc::new(paths), ..options };
        let directory = Directory::new(routings, native_handlers);
        let welcome = Welcome {
            version: crate::VERSION.to_owned(),
            limits: Limits { max_message: options.max_message },
            description,
            memory: false,
            buffers: 0,
        };
        let reactor = Reactor::new(options, welcome, &shared, Arc::clone(&directory))?;
        Ok(Self {
            shared,
            directory,
            reactor: OuterMutex::new(reactor),
            trend: Trend::default(),
            queue: Mutex::default(),
        })
    }

    /// Accepts the clients of one more listener.
    ///
    /// # Errors
    /// What the system says.
    pub fn listen(&self, listener: Listener) -> io::Result<()> {
        descriptors::make_room(&self.shared.poller);
        self.reactor.lock().handshakes.listen(listener)
    }

    /// Stops the server: takes no new clients and no new calls, waits until the calls under way are finished, for at
    /// most `grace`, and lets the workers return. Asks now and then whether to `go_on` waiting. Returns whether all calls
    /// were finished. The connections stay open until [`Server::close`]. `in_hook`: the caller is a hook of a session or of
    /// a released object; this does not wait for that hook.
    pub fn stop(&self, grace: Duration, in_hook: bool, go_on: &mut dyn FnMut() -> bool) -> bool {
        self.shared.mailbox.spare_hook(in_hook);
        self.shared.reach(STOPPING);
        for handler in &self.directory.native_handlers {
            handler.stopping();
        }
        self.shared.mailbox.wake();
        let begun = Instant::now();
        let end = begun + grace;
        let mut look = begun + LOOK_INTERVAL;
        let mut finished = self.has_finished();
        while !finished && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
            finished = self.has_finished();
            if Instant::now() >= look {
                if !go_on() {
                    break;
                }
                // A client that sends nothing does not wake the receiving thread, which must end its wait for that
                // client.
                self.shared.mailbox.wake();
                look += LOOK_INTERVAL;
            }
        }
        // Relaxed: a call that comes at this very moment is lost with its connection. Notified before the workers
        // return, because they pass the notice on.
        let too_late = self.shared.came_too_late.swap(0, Ordering::Relaxed);
        if too_late > 0 {
            self.shared.notify(true, format!("dropped {too_late} one-way calls that came while the server stopped"));
        }
        self.shared.reach(STOPPED);
        self.shared.mailbox.wake();
        self.shared.leadership.close();
        finished
    }

    /// Whether [`Server::stop`] has waited for the calls under way: workers return.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.shared.is_stopped()
    }

    /// Whether the server takes no more calls: [`Server::stop`] was called.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.shared.is_stopping()
    }

    /// Whether nothing is under way, and all replies have reached the clients. Call this again and again: each time it
    /// lets the reactor look for the replies.
    fn has_finished(&self) -> bool {
        let idle = self.shared.is_idle();
        if idle && !self.shared.has_reached(DELIVERED) {
            self.shared.mailbox.wake();
            return false;
        }
        idle
    }

    /// The queue of the event loop that runs coroutine handlers; made at the first call. Requests for coroutines that
    /// come after that go into the queue.
    ///
    /// # Errors
    /// What the system says.
    pub fn use_event_loop(&self) -> io::Result<Arc<AsyncQueue>> {
        self.directory.use_event_loop()
    }

    /// What the statistics say now, for a process that serves together with this one.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.shared.snapshot(0)
    }

    /// What is known of the first connections whose numbers are greater than `after`: of at most `limit`, and at most
    /// [`MOST_SHOWN`], in the order in which they came.
    #[must_use]
    pub fn connection_rows(&self, after: u64, limit: usize) -> Vec<ConnectionRow> {
        self.shared.connection_rows(after, limit)
    }

    /// A process that serves together with this one begins to watch the statistics, or ends.
    pub fn watch_statistics(&self, begins: bool) {
        if begins {
            self.shared.statistics.add_watcher();
        } else {
            self.shared.statistics.remove_watcher();
        }
    }

    /// This is one of several processes that serve together: its number, and how many there are. Only the first call
    /// counts.
    pub fn set_place(&self, number: usize, count: usize) {
        let _ = self.shared.process.set((number, count));
    }

    /// The watch over that event loop.
    #[must_use]
    pub fn loop_watch(&self) -> &LoopWatch {
        &self.shared.loop_watch
    }

    /// Closes everything that is left, after the workers have returned.
    pub fn close(&self) {
        let waiting = std::mem::take(&mut *self.queue.lock());
        waiting.give_up();
        self.reactor.lock().close();
    }

    /// The begin or end of a session whose hook has not run, or an object that clients have released and whose owner was
    /// not told. For the thread that has stopped the server.
    #[must_use]
    pub fn take_hook(&self) -> Option<Work> {
        self.shared.mailbox.take_hook().map(Work::of_hook)
    }

    /// Whether no hook of a session or of a released object runs or waits. A hook that stops the server does not count.
    #[must_use]
    pub fn has_no_hooks(&self) -> bool {
        self.shared.mailbox.hooks_are_over()
    }

    /// Does some work for a client. If it panics, the log says so, the client gets an answer, and this thread goes on.
    #[inline]
    pub fn contain(&self, work: impl FnOnce()) {
        self.shared.contain(work);
    }

    /// Tells the operator of a fault.
    #[cold]
    pub fn tell(&self, fault: &Fault) {
        self.shared.tell_fault(fault);
    }

    /// The thread that holds the lead begins to run a handler. If the handler takes long, another thread takes the
    /// lead.
    fn begin_handler(&self) {
        self.shared.leadership.busy();
    }

    /// Frees the lead for another worker: the calling thread is about to wait for something else.
    fn release(&self) {
        self.shared.leadership.release();
    }
}
