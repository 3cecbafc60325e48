//! The futures of an event loop that wait for frames on a connection.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use nearcall_core::client::{CallId, Connection as Core};
use nearcall_core::lock::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::{PyTraverseError, PyVisit, ffi, intern};
use smallvec::SmallVec;

use crate::asyncio::reply_future::ReplyFuture;
use crate::gil::callback::Callback;
use crate::gil::interpreter::detach;

/// `asyncio.get_running_loop`.
static RUNNING_LOOP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The futures of an event loop that wait for frames of calls.
///
/// A task that suspends does not let the connection sleep, because other tasks may be about to send. When the loop has
/// run all ready callbacks, it calls [`Waiting::on_idle`], which receives, spins while that pays, and only then sleeps.
pub(crate) struct Waiting {
    /// Two may wait for one call: the reader of its replies, and the sender of its stream.
    futures: Mutex<HashMap<Call, SmallVec<[Sleeper; 1]>, RandomState>>,
    /// Tasks whose replies have come, for [`Waiting::on_idle`] to run.
    due: Mutex<Vec<Py<ReplyFuture>>>,
    /// The connections that the loop watches: the current ones, and earlier ones that calls are still under way on.
    watched: Mutex<SmallVec<[Watch; 1]>>,
    owner: Mutex<Owner>,
    /// asyncio's [mark](loop_mark) of the owner while it runs.
    mark: Mutex<Option<Py<PyAny>>>,
    scheduled: AtomicBool,
    /// Calls in a row that ended without giving the loop its turn.
    at_once: AtomicU32,
    /// A server receives, and wakes the loop.
    of_server: bool,
}

/// What waits for a frame of a call.
enum Sleeper {
    /// A task that awaits the call.
    Task(Py<ReplyFuture>),
    /// An object with `done` and `set_result`.
    Future(Py<PyAny>),
}

/// What was woken. The loop itself runs those that wait by futures, in its next round; [`Waiting::on_idle`] runs the
/// tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Woken {
    Nobody,
    Tasks,
    Futures,
}

/// How long tasks are run, while one reply follows the other, before the loop has its turn.
const TURN: Duration = Duration::from_micros(100);

/// How many calls in a row may end without suspending, before the loop has its turn.
const MOST_AT_ONCE: u32 = 64;

/// How often in a row `look` may find frames that wake nothing, before the loop has its turn.
const MOST_LOOKS: usize = 4;

/// A connection that a loop watches.
#[derive(Clone)]
struct Watch {
    core: Arc<Core>,
    /// What the loop polls for reading. It stays open as long as the connection is here.
    fileno: i32,
    /// It is a current connection: new calls use it.
    current: bool,
}

/// A call by its connection and its number there.
type Call = (usize, CallId);

fn key(core: &Core, id: CallId) -> Call {
    (std::ptr::from_ref(core).addr(), id)
}

/// What a connection belongs to.
#[derive(Clone)]
pub(crate) enum Owner {
    Threads,
    Loop(Arc<Schedule>),
    /// The connection belonged to an event loop, and is closed.
    Nobody,
}

/// The event loop that owns a connection, and Python callables that use the loop. They refer to the connection, so
/// closing it drops them.
pub(crate) struct Schedule {
    pub(crate) running: Py<PyAny>,
    pub(crate) call_soon: Py<PyAny>,
    /// Calls [`Waiting::on_idle`].
    pub(crate) on_idle: Py<PyAny>,
    /// Takes the seconds to wait first, whether a successor of the server is hoped for, the seconds left, and the
    /// exception to raise if there is none; returns a coroutine that connects.
    pub(crate) connect_again: Py<PyAny>,
    /// Takes a stream and the same values but the exception; begins a task that connects and sends the stream again.
    pub(crate) send_again: Py<PyAny>,
    /// Makes the loop watch the current connections.
    pub(crate) follow: Py<PyAny>,
}

impl Default for Waiting {
    fn default() -> Self {
        Self {
            futures: Mutex::default(),
            watched: Mutex::default(),
            owner: Mutex::new(Owner::Threads),
            due: Mutex::default(),
            mark: Mutex::default(),
            scheduled: AtomicBool::new(false),
            at_once: AtomicU32::new(0),
            of_server: false,
        }
    }
}

impl Waiting {
    /// For the loop of a server's coroutine handlers, which the server wakes.
    pub(crate) fn of_server() -> Self {
        Self { of_server: true, ..Self::default() }
    }

    /// Whether no event loop owns the connection, or ever has.
    pub(crate) fn is_threads(&self) -> bool {
        !self.of_server && matches!(*self.owner.lock(), Owner::Threads)
    }

    /// Sets the loop of a server's coroutine handlers.
    pub(crate) fn use_loop_of_server(&self, py: Python<'_>, running: Py<PyAny>) {
        self.use_loop(Schedule {
            running,
            call_soon: py.None(),
            on_idle: py.None(),
            connect_again: py.None(),
            send_again: py.None(),
            follow: py.None(),
        });
    }

    /// Sets the loop, and the callables that it gives.
    pub(crate) fn use_loop(&self, schedule: Schedule) {
        let mut owner = self.owner.lock();
        // A connection belongs to one loop for life.
        if matches!(*owner, Owner::Threads) {
            *owner = Owner::Loop(Arc::new(schedule));
        }
    }

    pub(crate) fn owner(&self) -> Owner {
        self.owner.lock().clone()
    }

    /// Drops the loop, for good. The loop and the connection refer to each other.
    pub(crate) fn leave_loop(&self) {
        let mut owner = self.owner.lock();
        let left =
            if matches!(*owner, Owner::Loop(_)) { std::mem::replace(&mut *owner, Owner::Nobody) } else { return };
        drop(owner);
        let mark = self.mark.lock().take();
        // Outside the locks: Python code that runs now may call this object.
        drop((left, mark));
    }

    /// Shows Python's garbage collector what is held here, on behalf of the connection.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(owner) = self.owner.try_lock()
            && let Owner::Loop(schedule) = &*owner
        {
            let Schedule { running, call_soon, on_idle, connect_again, send_again, follow } = &**schedule;
            let all = [running, call_soon, on_idle, connect_again, send_again, follow];
            return all.into_iter().try_for_each(|held| visit.call(held));
        }
        Ok(())
    }

    /// Makes sure that the running loop is the one that the connection belongs to.
    #[inline]
    pub(crate) fn check_loop(&self, py: Python<'_>) -> PyResult<()> {
        let mark = loop_mark(py);
        let known = |mark: &Bound<'_, PyAny>| self.mark.lock().as_ref().is_some_and(|known| mark.is(known));
        if mark.as_ref().is_some_and(known) { Ok(()) } else { self.check_running_loop(py, mark) }
    }

    fn check_running_loop(&self, py: Python<'_>, mark: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(running) = running_loop(py) else {
            return Err(PyRuntimeError::new_err(
                "what nearcall.aio connected is used from coroutines of asyncio, and no event loop of it runs in this thread",
            ));
        };
        match &*self.owner.lock() {
            Owner::Loop(schedule) if running.is(&schedule.running) => {}
            // The connection is closed: the call itself raises an error that says so.
            Owner::Nobody => return Ok(()),
            Owner::Threads => return Err(not_a_loops()),
            Owner::Loop(_) => {
                return Err(PyRuntimeError::new_err(
                    "this connection belongs to another event loop, in which it was made: make one for each loop with \
                     nearcall.aio.connect or nearcall.aio.Channel, or share one for threads between them. Objects and \
                     functions that a coroutine handler has got are called in the loop of its server: from another one \
                     with asyncio.run_coroutine_threadsafe",
                ));
            }
        }
        let earlier = std::mem::replace(&mut *self.mark.lock(), mark.map(Bound::unbind));
        // Outside the lock: Python code that runs now may call this object.
        drop(earlier);
        Ok(())
    }

    /// The loop that the connection belongs to.
    pub(crate) fn running(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match &*self.owner.lock() {
            Owner::Loop(schedule) => Ok(schedule.running.clone_ref(py)),
            Owner::Nobody | Owner::Threads => Err(PyRuntimeError::new_err("its event loop let go of it")),
        }
    }

    /// Whether a task may have its reply without suspending. Now and then it may not, so that a task that makes one
    /// quick call after the other does not keep the loop from everything else.
    pub(crate) fn may_end_at_once(&self) -> bool {
        // Relaxed, here and below: only the loop's thread comes here.
        let calls = self.at_once.load(Ordering::Relaxed) + 1;
        self.at_once.store(calls % (MOST_AT_ONCE + 1), Ordering::Relaxed);
        calls <= MOST_AT_ONCE
    }

    /// Returns the future that the task awaiting the call is to wait for.
    pub(crate) fn await_reply(&self, py: Python<'_>, core: &Core, id: CallId) -> PyResult<Py<ReplyFuture>> {
        let future = Py::new(py, ReplyFuture::new(self.running(py)?))?;
        self.sleep(py, core, id, Sleeper::Task(future.clone_ref(py)))?;
        Ok(future)
    }

    /// Sets `future`'s result when a frame of the call has arrived; for a `sender`, when there is room to send.
    pub(crate) fn register(
        &self,
        py: Python<'_>,
        core: &Core,
        id: CallId,
        future: Py<PyAny>,
        sender: bool,
    ) -> PyResult<()> {
        if core.is_ready(id, sender) {
            return wake(future.bind(py));
        }
        self.sleep(py, core, id, Sleeper::Future(future))
    }

    fn sleep(&self, py: Python<'_>, core: &Core, id: CallId, sleeper: Sleeper) -> PyResult<()> {
        self.futures.lock().entry(key(core, id)).or_default().push(sleeper);
        self.call_when_idle(py)
    }

    /// To be called whenever the loop's thread sends or receives outside of [`Waiting::on_idle`]: frames of other calls
    /// may have arrived, and the loop may no longer be marked as asleep, so that nobody would wake it.
    pub(crate) fn stirred(&self, py: Python<'_>) -> PyResult<()> {
        // Relaxed: see `call_when_idle`.
        if self.scheduled.load(Ordering::Relaxed) || matches!(*self.owner.lock(), Owner::Threads) {
            return Ok(());
        }
        self.call_when_idle(py)
    }

    fn call_when_idle(&self, py: Python<'_>) -> PyResult<()> {
        if self.of_server {
            return Ok(());
        }
        // Relaxed: only the loop's thread comes here. The load comes first, because a swap costs more.
        if self.scheduled.load(Ordering::Relaxed) || self.scheduled.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        self.schedule(py)
    }

    fn schedule(&self, py: Python<'_>) -> PyResult<()> {
        match self.owner() {
            Owner::Loop(schedule) => schedule.call_soon.bind(py).run([schedule.on_idle.bind(py)]).map(drop),
            Owner::Nobody => Ok(()),
            Owner::Threads => Err(not_a_loops()),
        }
    }

    /// Forgets the futures of a call that is given up.
    pub(crate) fn forget(&self, core: &Core, id: CallId) {
        let futures = self.futures.lock().remove(&key(core, id));
        drop(futures);
    }

    /// Wakes the futures of a call that is given up.
    pub(crate) fn give_up(&self, py: Python<'_>, core: &Core, id: CallId) -> PyResult<()> {
        let sleepers = self.futures.lock().remove(&key(core, id));
        sleepers.into_iter().flatten().try_for_each(|sleeper| sleeper.wake(py))
    }

    /// Sets the current connections. Returns the descriptors that the loop does not poll yet.
    pub(crate) fn watch(&self, current: &[Arc<Core>]) -> io::Result<Vec<i32>> {
        let filenos: Vec<i32> =
            current.iter().map(|core| core.poll_fd().map(|fd| fd.as_raw_fd())).collect::<io::Result<_>>()?;
        let mut watched = self.watched.lock();
        watched.iter_mut().for_each(|watch| watch.current = filenos.contains(&watch.fileno));
        let mut new = Vec::new();
        for (core, fileno) in current.iter().zip(filenos) {
            if !watched.iter().any(|watch| watch.fileno == fileno) {
                watched.push(Watch { core: Arc::clone(core), fileno, current: true });
                new.push(fileno);
            }
        }
        Ok(new)
    }

    /// Makes sure that the loop watches a connection that it is about to call over.
    pub(crate) fn follow(&self, py: Python<'_>, core: &Arc<Core>) -> PyResult<()> {
        if self.watched.lock().iter().any(|watch| watch.current && Arc::ptr_eq(&watch.core, core)) {
            return Ok(());
        }
        match self.owner() {
            Owner::Loop(schedule) => schedule.follow.bind(py).run([]).map(drop),
            Owner::Nobody | Owner::Threads => Ok(()),
        }
    }

    fn watched_by(&self, fileno: i32) -> Option<Watch> {
        self.watched.lock().iter().find(|watch| watch.fileno == fileno).cloned()
    }

    /// Whether the loop must go on polling the descriptor: the connection is a current one, or calls are under way on it. That
    /// of a lost connection stays readable for ever.
    pub(crate) fn goes_on(&self, fileno: i32) -> bool {
        let Some(Watch { core, current, .. }) = self.watched_by(fileno) else { return false };
        // The same connection may be watched in another way by now.
        let otherwise = || self.watched.lock().iter().any(|watch| watch.current && Arc::ptr_eq(&watch.core, &core));
        !core.is_dead() && (current || core.in_flight() > 0 && !otherwise())
    }

    /// To be called when the loop polls the descriptor no more.
    pub(crate) fn unwatch(&self, fileno: i32) {
        let watched = self.watched_by(fileno);
        self.watched.lock().retain(|watch| watch.fileno != fileno);
        // Outside the lock: the connection may end with it.
        drop(watched);
    }

    /// To be called when the descriptor is readable.
    pub(crate) fn on_readable(&self, py: Python<'_>, fileno: i32) -> PyResult<()> {
        let Some(Watch { core, .. }) = self.watched_by(fileno) else { return Ok(()) };
        if !core.on_readable() {
            // The connection is lost. What is in the ring is delivered first; then receiving finds the loss.
            self.deliver(py, &core)?;
            core.notice_loss();
        }
        self.deliver(py, &core)?;
        self.call_when_idle(py)
    }

    /// To be called when the loop has run all ready callbacks.
    pub(crate) fn on_idle(&self, py: Python<'_>) -> PyResult<()> {
        // Relaxed, both: as in `call_when_idle`. `scheduled` stays set, so that tasks that run here do not ask for the
        // next time: that comes after everything they ask for.
        self.at_once.store(0, Ordering::Relaxed);
        match self.look(py) {
            Ok(false) => {
                self.scheduled.store(false, Ordering::Relaxed);
                Ok(())
            }
            // Woken tasks may send again before the connection sleeps.
            Ok(true) => self.schedule(py),
            Err(error) => self.schedule(py).and(Err(error)),
        }
    }

    /// Receives, and runs the tasks whose replies have arrived, for at most [`TURN`] as long as one reply follows the
    /// other. Returns whether to look again before the loop sleeps.
    fn look(&self, py: Python<'_>) -> PyResult<bool> {
        let watched = self.watched.lock().clone();
        watched.iter().for_each(|Watch { core, .. }| core.stay_awake());
        let mut current = watched.iter().filter(|watch| watch.current);
        // Only a single connection is spun on: with several, the others would be kept waiting.
        let spins = if let (Some(watch), None) = (current.next(), current.next()) { Some(&watch.core) } else { None };
        let begun = Instant::now();
        loop {
            let mut woken = Woken::Nobody;
            for Watch { core, .. } in &watched {
                woken = woken.max(self.deliver(py, core)?);
            }
            if woken == Woken::Nobody
                && let Some(core) = spins
                && !self.futures.lock().is_empty()
                && detach(py, || core.spin())
            {
                woken = self.deliver(py, core)?;
            }
            match self.run_due(py)?.max(woken) {
                Woken::Nobody => break,
                // asyncio runs them.
                Woken::Futures => return Ok(true),
                Woken::Tasks if begun.elapsed() >= TURN => return Ok(true),
                Woken::Tasks => {}
            }
        }
        // Frames that arrive before the connection sleeps may wake nothing; then the next try finds nothing more. If
        // the server never stops sending, the tries end, so that the loop's other work has its turn.
        for _ in 0..MOST_LOOKS {
            let Some(Watch { core: awake, .. }) =
                watched.iter().find(|Watch { core, .. }| !core.is_dead() && !core.may_sleep())
            else {
                return Ok(false);
            };
            if self.deliver(py, awake)? != Woken::Nobody {
                break;
            }
        }
        Ok(true)
    }

    /// Runs the tasks that are to run now, each until it waits again.
    fn run_due(&self, py: Python<'_>) -> PyResult<Woken> {
        let due = std::mem::take(&mut *self.due.lock());
        let (woken, mut due) = (if due.is_empty() { Woken::Nobody } else { Woken::Tasks }, due.into_iter());
        while let Some(future) = due.next() {
            if let Err(error) = ReplyFuture::run(future.bind(py)) {
                // The error ends the loop's round.
                due.try_for_each(|future| ReplyFuture::run_soon(future.bind(py)))?;
                return Err(error);
            }
        }
        Ok(woken)
    }

    /// Receives what has arrived, and wakes what waits for it.
    pub(crate) fn deliver(&self, py: Python<'_>, core: &Core) -> PyResult<Woken> {
        let ready = core.pump();
        if ready.is_empty() {
            return Ok(Woken::Nobody);
        }
        let sleepers: SmallVec<[Sleeper; 8]> = {
            let mut futures = self.futures.lock();
            ready.into_iter().filter_map(|id| futures.remove(&key(core, id))).flatten().collect()
        };
        // asyncio runs the tasks if another task may be running now (a server's loop), or if `on_idle` is never called.
        let by_loop = self.of_server || !matches!(*self.owner.lock(), Owner::Loop(_));
        let mut woken = Woken::Nobody;
        for sleeper in sleepers {
            match sleeper {
                Sleeper::Task(future) if !by_loop => {
                    self.due.lock().push(future);
                    woken = woken.max(Woken::Tasks);
                }
                sleeper => {
                    sleeper.wake(py)?;
                    woken = Woken::Futures;
                }
            }
        }
        if woken != Woken::Nobody {
            self.call_when_idle(py)?;
        }
        Ok(woken)
    }

    /// The client is closed: ends all connections, and wakes everything that waits.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        let watched = std::mem::take(&mut *self.watched.lock());
        for Watch { core, .. } in watched {
            core.close(None);
            core.pump();
        }
        let due = std::mem::take(&mut *self.due.lock());
        due.iter().try_for_each(|future| ReplyFuture::run_soon(future.bind(py)))?;
        let all = std::mem::take(&mut *self.futures.lock());
        all.into_values().flatten().try_for_each(|sleeper| sleeper.wake(py))
    }
}

impl Sleeper {
    fn wake(self, py: Python<'_>) -> PyResult<()> {
        match self {
            Self::Task(future) => ReplyFuture::run_soon(future.bind(py)),
            Self::Future(future) => wake(future.bind(py)),
        }
    }
}

/// The event loop of asyncio that runs in this thread.
pub(crate) fn running_loop(py: Python<'_>) -> Option<Bound<'_, PyAny>> {
    RUNNING_LOOP.import(py, "asyncio", "get_running_loop").and_then(|get_loop| get_loop.run([])).ok()
}

/// The object that asyncio keeps in this thread's state while a loop runs here. Another loop has another object, and so
/// has the same loop when it runs again. `asyncio.get_running_loop` also asks the system, each time, whether the
/// process is still the same. From Python 3.14 on it does not, and keeps no such object.
#[inline]
fn loop_mark(py: Python<'_>) -> Option<Bound<'_, PyAny>> {
    let key = intern!(py, "__asyncio_running_event_loop__");
    // SAFETY: attached.
    let state = unsafe { ffi::PyThreadState_GetDict() };
    if state.is_null() {
        return None;
    }
    // SAFETY: a dict and a str, both alive.
    let mark = unsafe { ffi::PyDict_GetItemWithError(state, key.as_ptr()) };
    // SAFETY: borrowed from that dict, or null; the search for a str in a dict of such keys raises nothing.
    unsafe { Bound::from_borrowed_ptr_or_opt(py, mark) }
}

fn not_a_loops() -> PyErr {
    PyRuntimeError::new_err("this connection was not opened by an event loop")
}

pub(crate) fn wake(future: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = future.py();
    if !future.run_method(intern!(py, "done"), [])?.is_truthy()? {
        future.run_method(intern!(py, "set_result"), [py.None().bind(py)])?;
    }
    Ok(())
}
