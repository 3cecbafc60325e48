//! The futures of an event loop that wait for something to come on a connection.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use nearcall_core::client::{CallId, Connection as Core, WakesBy};
use nearcall_core::lock::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::{PyTraverseError, PyVisit, ffi, intern};
use smallvec::SmallVec;

use crate::callback::Callback;
use crate::interpreter::detach;
use crate::reply_future::ReplyFuture;

/// `asyncio.get_running_loop`.
static RUNNING_LOOP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The futures of an event loop that wait for something to come for a call.
///
/// A task that suspends does not put the connection to sleep: others may be about to send. When the loop has run all
/// that was ready, it comes by [`Waiting::on_idle`], which receives, spins while that pays, and only then sleeps.
pub(crate) struct Waiting {
    /// Two may wait for one call: the reader of its replies, and the sender of its stream.
    futures: Mutex<HashMap<Call, SmallVec<[Sleeper; 1]>, RandomState>>,
    /// Tasks whose replies have come, for [`Waiting::on_idle`] to run.
    due: Mutex<Vec<Py<ReplyFuture>>>,
    /// The connections that the loop watches: those of the moment, and those before them that calls are still under way on.
    watched: Mutex<SmallVec<[Watch; 1]>>,
    owner: Mutex<Owner>,
    /// asyncio's [mark](loop_mark) of the owner while it runs.
    mark: Mutex<Option<Py<PyAny>>>,
    scheduled: AtomicBool,
    /// Calls in a row that ended without the loop having its turn.
    at_once: AtomicU32,
    /// A server receives, and tells of what came.
    of_server: bool,
}

/// Who waits for something to come for a call.
enum Sleeper {
    /// A task that awaits the call.
    Task(Py<ReplyFuture>),
    /// Something with `done` and `set_result`.
    Future(Py<PyAny>),
}

/// Who was woken: the loop runs those who wait by futures in its next round, and [`Waiting::on_idle`] the tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Woken {
    Nobody,
    Tasks,
    Futures,
}

/// How long tasks are run, as one reply comes after the other, before the loop has its turn.
const TURN: Duration = Duration::from_micros(100);

/// Calls in a row that end while their task waits for them, without a look at what else the loop has to do.
const MOST_AT_ONCE: u32 = 64;

/// Looks at connections that have something for nobody, in a row.
const MOST_LOOKS: usize = 4;

/// A connection that a loop watches, and how.
#[derive(Clone)]
struct Watch {
    core: Arc<Core>,
    by: WakesBy,
    /// It is of the moment: calls go there.
    current: bool,
}

impl Watch {
    /// Whether it is that connection, watched in that way.
    fn is(&self, core: &Arc<Core>, by: WakesBy) -> bool {
        Arc::ptr_eq(&self.core, core) && self.by == by
    }
}

/// A call by its connection and its number there.
type Call = (usize, CallId);

fn key(core: &Core, id: CallId) -> Call {
    (std::ptr::from_ref(core).addr(), id)
}

/// Whose a connection is.
#[derive(Clone)]
pub(crate) enum Owner {
    Threads,
    Loop(Arc<Schedule>),
    /// It was an event loop's, and is closed.
    Nobody,
}

/// The event loop that owns a connection, and callables of it. They know the connection: closing it lets go of them.
pub(crate) struct Schedule {
    pub(crate) running: Py<PyAny>,
    pub(crate) call_soon: Py<PyAny>,
    /// Calls [`Waiting::on_idle`].
    pub(crate) on_idle: Py<PyAny>,
    /// Takes a call, seconds to wait before it, whether a successor of the server is hoped for, the seconds left, and the
    /// exception to raise if there is none; returns a coroutine that connects and makes the call.
    pub(crate) call_again: Py<PyAny>,
    /// Takes a stream, and seconds and so on as above; begins a task that connects and sends it again.
    pub(crate) send_again: Py<PyAny>,
    /// Lets the loop watch the connections of the moment.
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

    /// Whether no event loop has it, or had it.
    pub(crate) fn is_threads(&self) -> bool {
        !self.of_server && matches!(*self.owner.lock(), Owner::Threads)
    }

    /// Names that loop.
    pub(crate) fn use_loop_of_server(&self, py: Python<'_>, running: Py<PyAny>) {
        self.use_loop(Schedule {
            running,
            call_soon: py.None(),
            on_idle: py.None(),
            call_again: py.None(),
            send_again: py.None(),
            follow: py.None(),
        });
    }

    /// Names the loop, and what it is to call.
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

    /// Lets go of the loop, for good. It and the connection refer to each other.
    pub(crate) fn leave_loop(&self) {
        let mut owner = self.owner.lock();
        let left =
            if matches!(*owner, Owner::Loop(_)) { std::mem::replace(&mut *owner, Owner::Nobody) } else { return };
        drop(owner);
        let mark = self.mark.lock().take();
        // Outside the locks: what Python runs now may come here.
        drop((left, mark));
    }

    /// Shows the collector of cycles what is held here, on behalf of the connection.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(owner) = self.owner.try_lock()
            && let Owner::Loop(schedule) = &*owner
        {
            visit.call(&schedule.running)?;
            visit.call(&schedule.call_soon)?;
            visit.call(&schedule.on_idle)?;
            visit.call(&schedule.call_again)?;
            visit.call(&schedule.send_again)?;
            visit.call(&schedule.follow)?;
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
        let get_loop = RUNNING_LOOP
            .get_or_try_init(py, || Ok::<_, PyErr>(py.import("asyncio")?.getattr("get_running_loop")?.unbind()))?;
        let Ok(running) = get_loop.bind(py).run([]) else {
            return Err(PyRuntimeError::new_err(
                "what nearcall.aio connected is used from coroutines of asyncio, and no event loop of it runs in this thread",
            ));
        };
        match &*self.owner.lock() {
            Owner::Loop(schedule) if running.is(&schedule.running) => {}
            // Of a closed one the call itself says what is wrong.
            Owner::Nobody => return Ok(()),
            Owner::Threads => return Err(not_a_loops()),
            Owner::Loop(_) => {
                return Err(PyRuntimeError::new_err(
                    "this connection belongs to another event loop, in which it was made: make one for each loop with \
                     nearcall.aio.connect or nearcall.aio.Channel, or share one for threads between them",
                ));
            }
        }
        let earlier = std::mem::replace(&mut *self.mark.lock(), mark.map(Bound::unbind));
        // Outside the lock: what Python runs now may come here.
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

    /// Whether a task may have its reply without suspending. Now and then it may not, so that one which makes one quick call
    /// after the other does not keep the loop from all else.
    pub(crate) fn may_end_at_once(&self) -> bool {
        // Relaxed, here and below: only the loop's thread comes here.
        let calls = self.at_once.load(Ordering::Relaxed) + 1;
        self.at_once.store(calls % (MOST_AT_ONCE + 1), Ordering::Relaxed);
        calls <= MOST_AT_ONCE
    }

    /// What the task that awaits the call is to wait for.
    pub(crate) fn await_reply(&self, py: Python<'_>, core: &Core, id: CallId) -> PyResult<Py<ReplyFuture>> {
        let future = Py::new(py, ReplyFuture::new(self.running(py)?))?;
        self.sleep(py, core, id, Sleeper::Task(future.clone_ref(py)))?;
        Ok(future)
    }

    /// Sets `future`'s result when something has come for the call.
    pub(crate) fn register(&self, py: Python<'_>, core: &Core, id: CallId, future: Py<PyAny>) -> PyResult<()> {
        if core.has_arrived(id) {
            return wake(future.bind(py));
        }
        self.sleep(py, core, id, Sleeper::Future(future))
    }

    /// The same for a sender: it may send if there is room, not if items wait to be read.
    pub(crate) fn register_sender(&self, py: Python<'_>, core: &Core, id: CallId, future: Py<PyAny>) -> PyResult<()> {
        if core.has_room(id) {
            return wake(future.bind(py));
        }
        self.sleep(py, core, id, Sleeper::Future(future))
    }

    fn sleep(&self, py: Python<'_>, core: &Core, id: CallId, sleeper: Sleeper) -> PyResult<()> {
        self.futures.lock().entry(key(core, id)).or_default().push(sleeper);
        self.call_when_idle(py)
    }

    /// To be called whenever the loop's thread sends or receives outside of [`Waiting::on_idle`]: what came may be for
    /// others, and the loop may no longer be said to sleep, so that nobody would wake it.
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
        // Relaxed: only the loop's thread comes here. Looked at first, because a swap is dearer.
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

    /// Forgets the future of a call that is given up.
    pub(crate) fn forget(&self, core: &Core, id: CallId) {
        let futures = self.futures.lock().remove(&key(core, id));
        drop(futures);
    }

    /// Wakes whoever waits for a call that is given up.
    pub(crate) fn give_up(&self, py: Python<'_>, core: &Core, id: CallId) -> PyResult<()> {
        let sleepers = self.futures.lock().remove(&key(core, id));
        sleepers.into_iter().flatten().try_for_each(|sleeper| sleeper.wake(py))
    }

    /// The connections of the moment: those of them that the loop does not watch yet in that way.
    pub(crate) fn watch(&self, current: Vec<(Arc<Core>, WakesBy)>) -> Vec<(Arc<Core>, WakesBy)> {
        let mut watched = self.watched.lock();
        for watch in watched.iter_mut() {
            watch.current = current.iter().any(|(core, by)| watch.is(core, *by));
        }
        let is_new = |(core, by): &(Arc<Core>, WakesBy)| !watched.iter().any(|watch| watch.is(core, *by));
        let new: Vec<_> = current.into_iter().filter(is_new).collect();
        watched.extend(new.iter().map(|(core, by)| Watch { core: Arc::clone(core), by: *by, current: true }));
        new
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

    /// Whether the loop is to watch the connection on: it is one of the moment, or calls are under way on it.
    pub(crate) fn goes_on(&self, core: &Arc<Core>, by: WakesBy) -> bool {
        let watched = self.watched.lock();
        let current = watched.iter().any(|watch| watch.current && watch.is(core, by));
        // The same connection may be watched in another way by now.
        let otherwise = watched.iter().any(|watch| watch.current && Arc::ptr_eq(&watch.core, core));
        drop(watched);
        !core.is_dead() && (current || !otherwise && core.in_flight() > 0)
    }

    /// The loop watches the connection no more.
    pub(crate) fn unwatch(&self, core: &Arc<Core>, by: WakesBy) {
        self.watched.lock().retain(|watch| !watch.is(core, by));
    }

    pub(crate) fn on_readable(&self, py: Python<'_>, core: &Core, by: WakesBy) -> PyResult<()> {
        if !core.on_readable(by) {
            // What is in the ring comes first; the loss itself is found by receiving.
            self.deliver(py, core)?;
            core.notice_loss();
        }
        self.deliver(py, core)?;
        self.call_when_idle(py)
    }

    /// The loop has run all that was ready.
    pub(crate) fn on_idle(&self, py: Python<'_>) -> PyResult<()> {
        // Relaxed, both: as in `call_when_idle`. The tasks that are run here do not ask for the next time: that comes after
        // all that they ask for.
        self.at_once.store(0, Ordering::Relaxed);
        match self.look(py) {
            Ok(false) => {
                self.scheduled.store(false, Ordering::Relaxed);
                Ok(())
            }
            // Who was woken may send again before we sleep.
            Ok(true) => self.schedule(py),
            Err(error) => self.schedule(py).and(Err(error)),
        }
    }

    /// Receives, and runs the tasks whose replies have come, for a while as long as one comes after the other. Whether to look
    /// again before the loop sleeps.
    fn look(&self, py: Python<'_>) -> PyResult<bool> {
        let watched = self.watched.lock().clone();
        watched.iter().for_each(|Watch { core, .. }| core.stay_awake());
        let mut current = watched.iter().filter(|watch| watch.current);
        // Of several connections none is worth to keep the others waiting.
        let spins = if let (Some(watch), None) = (current.next(), current.next()) { Some(&watch.core) } else { None };
        let begun = Instant::now();
        loop {
            let mut woken = self.deliver_all(py, &watched)?;
            if woken == Woken::Nobody
                && let Some(core) = spins
                && !self.futures.lock().is_empty()
                && detach(py, || core.spin())
            {
                woken = self.deliver(py, core)?;
            }
            match self.run_due(py)?.max(woken) {
                Woken::Nobody => break,
                // They are asyncio's to run.
                Woken::Futures => return Ok(true),
                Woken::Tasks if begun.elapsed() >= TURN => return Ok(true),
                Woken::Tasks => {}
            }
        }
        // If something comes while we fall asleep, and is not for us, the next look finds nothing; unless the server never
        // stops sending, and the loop's other work has its turn.
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

    fn deliver_all(&self, py: Python<'_>, watched: &[Watch]) -> PyResult<Woken> {
        watched.iter().try_fold(Woken::Nobody, |woken, Watch { core, .. }| Ok(self.deliver(py, core)?.max(woken)))
    }

    /// Runs the tasks that are to run now, each until it waits again.
    fn run_due(&self, py: Python<'_>) -> PyResult<Woken> {
        let due = std::mem::take(&mut *self.due.lock());
        let (woken, mut due) = (if due.is_empty() { Woken::Nobody } else { Woken::Tasks }, due.into_iter());
        while let Some(future) = due.next() {
            if let Err(error) = ReplyFuture::run(future.bind(py)) {
                // The loop's round is over.
                due.try_for_each(|future| ReplyFuture::run_soon(future.bind(py)))?;
                return Err(error);
            }
        }
        Ok(woken)
    }

    /// Receives what is here, and wakes those who wait for it.
    pub(crate) fn deliver(&self, py: Python<'_>, core: &Core) -> PyResult<Woken> {
        let ready = core.pump();
        if ready.is_empty() {
            return Ok(Woken::Nobody);
        }
        let sleepers: SmallVec<[Sleeper; 8]> = {
            let mut futures = self.futures.lock();
            ready.into_iter().filter_map(|id| futures.remove(&key(core, id))).flatten().collect()
        };
        // Where another task may run just now, or nobody comes by, asyncio runs them.
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

    /// The client is closed: all connections end, and everybody looks.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        for Watch { core, .. } in std::mem::take(&mut *self.watched.lock()) {
            core.close();
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

/// What asyncio keeps in the state of this thread while a loop runs here: another loop, or the same one when it runs again, has
/// another one. `asyncio.get_running_loop` asks the system besides, each time, whether the process is still the same. From
/// Python 3.14 on it does not, and nothing is kept there.
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
