//! The futures of an event loop that wait for something to come on a connection.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nearcall_core::client::{CallId, Connection as Core, WakesBy};
use nearcall_core::lock::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::{PyTraverseError, PyVisit, intern};
use smallvec::SmallVec;

use crate::callback::Callback;
use crate::interpreter::detach;
use crate::rounds::{Round, Rounds};

/// `asyncio.get_running_loop`.
static RUNNING_LOOP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The futures of an event loop that wait for something to come for a call.
///
/// A task that suspends does not put the connection to sleep: others may be about to send. When the loop has run all
/// that was ready, it comes by [`Waiting::on_idle`], which receives, spins while that pays, and only then sleeps.
pub(crate) struct Waiting {
    /// Two may wait for one call: the reader of its replies, and the sender of its stream.
    futures: Mutex<HashMap<Call, SmallVec<[Py<PyAny>; 1]>>>,
    /// The connections that the loop watches: those of the moment, and those before them that calls are still under way on.
    watched: Mutex<SmallVec<[Watch; 1]>>,
    owner: Mutex<Owner>,
    scheduled: AtomicBool,
    rounds: Arc<Rounds>,
    /// A server receives, and tells of what came.
    of_server: bool,
}

/// Calls in flight from which on a task first lets the others run once instead of waiting by a future: until its turn comes
/// again they have sent theirs, and its reply is likely to be there.
const MANY_CALLS: usize = 8;

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
            scheduled: AtomicBool::new(false),
            rounds: Arc::default(),
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
        // Outside the lock: what Python runs now may come here.
        drop(left);
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

    /// The running loop, if it is the one that the connection belongs to.
    pub(crate) fn check_loop<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let get_loop = RUNNING_LOOP
            .get_or_try_init(py, || Ok::<_, PyErr>(py.import("asyncio")?.getattr("get_running_loop")?.unbind()))?;
        let Ok(running) = get_loop.bind(py).run([]) else {
            return Err(PyRuntimeError::new_err(
                "what nearcall.aio connected is used from coroutines of asyncio, and no event loop of it runs in this thread",
            ));
        };
        match &*self.owner.lock() {
            // Of a closed one the call itself says what is wrong.
            Owner::Loop(schedule) if !running.is(&schedule.running) => {}
            Owner::Loop(_) | Owner::Nobody => return Ok(running),
            Owner::Threads => return Err(not_a_loops()),
        }
        Err(PyRuntimeError::new_err(
            "this connection belongs to another event loop, in which it was made: make one for each loop with \
             nearcall.aio.connect or nearcall.aio.Channel, or share one for threads between them",
        ))
    }

    /// A round of the loop, if a task that finds no reply is to let the others run once, and look again, before it waits by a
    /// future.
    pub(crate) fn begin_round(&self, core: &Core) -> Option<Round> {
        if self.of_server || core.in_flight() < MANY_CALLS { None } else { self.rounds.begin() }
    }

    /// Sets `future`'s result when something has come for the call.
    pub(crate) fn register(&self, py: Python<'_>, core: &Core, id: CallId, future: Py<PyAny>) -> PyResult<()> {
        if core.has_arrived(id) {
            return wake(future.bind(py));
        }
        self.sleep(py, core, id, future)
    }

    /// The same for a sender: it may send if there is room, not if items wait to be read.
    pub(crate) fn register_sender(&self, py: Python<'_>, core: &Core, id: CallId, future: Py<PyAny>) -> PyResult<()> {
        if core.has_room(id) {
            return wake(future.bind(py));
        }
        self.sleep(py, core, id, future)
    }

    fn sleep(&self, py: Python<'_>, core: &Core, id: CallId, future: Py<PyAny>) -> PyResult<()> {
        self.futures.lock().entry(key(core, id)).or_default().push(future);
        self.call_when_idle(py)
    }

    /// To be called whenever the loop's thread sends or receives outside of [`Waiting::on_idle`]: what came may be for
    /// others, and the loop may no longer be said to sleep, so that nobody would wake it.
    pub(crate) fn stirred(&self, py: Python<'_>) -> PyResult<()> {
        if matches!(*self.owner.lock(), Owner::Threads) { Ok(()) } else { self.call_when_idle(py) }
    }

    fn call_when_idle(&self, py: Python<'_>) -> PyResult<()> {
        if self.of_server {
            return Ok(());
        }
        // Relaxed: only the loop's thread comes here. Looked at first, because a swap is dearer.
        if self.scheduled.load(Ordering::Relaxed) || self.scheduled.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
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
        let future = self.futures.lock().remove(&key(core, id));
        future.into_iter().flatten().try_for_each(|future| wake(future.bind(py)))
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
        // Relaxed: as in `call_when_idle`.
        self.scheduled.store(false, Ordering::Relaxed);
        let watched = self.watched.lock().clone();
        let mut delivered = false;
        for Watch { core, .. } in &watched {
            core.stay_awake();
            delivered |= self.deliver(py, core)?;
        }
        // Whoever has let others run is about to look.
        delivered |= self.rounds.are_under_way();
        // Of several connections none is worth to keep the others waiting.
        let mut current = watched.iter().filter(|watch| watch.current);
        if let (Some(Watch { core, .. }), None) = (current.next(), current.next())
            && !delivered
            && !self.futures.lock().is_empty()
            && detach(py, || core.spin())
        {
            delivered = self.deliver(py, core)?;
        }
        // If something comes while we fall asleep, and is not for us, the next look finds nothing; unless the server never
        // stops sending, and the loop's other work has its turn.
        for _ in 0..MOST_LOOKS {
            if delivered {
                break;
            }
            let Some(Watch { core: awake, .. }) =
                watched.iter().find(|Watch { core, .. }| !core.is_dead() && !core.may_sleep())
            else {
                return Ok(());
            };
            delivered = self.deliver(py, awake)?;
        }
        // Who was woken may send again before we sleep.
        self.call_when_idle(py)
    }

    /// Receives what is here. Whether a future was woken.
    pub(crate) fn deliver(&self, py: Python<'_>, core: &Core) -> PyResult<bool> {
        let ready = core.pump();
        let mut any = false;
        for id in ready {
            let futures = self.futures.lock().remove(&key(core, id));
            for future in futures.into_iter().flatten() {
                wake(future.bind(py))?;
                any = true;
            }
        }
        Ok(any)
    }

    /// The client is closed: all connections end, and everybody looks.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        for Watch { core, .. } in std::mem::take(&mut *self.watched.lock()) {
            core.close();
            core.pump();
        }
        let all = std::mem::take(&mut *self.futures.lock());
        all.into_values().flatten().try_for_each(|future| wake(future.bind(py)))
    }
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
