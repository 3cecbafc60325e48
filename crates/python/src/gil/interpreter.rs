//! Releases the interpreter, and takes it again. No other module does.
//!
//! Other threads may hold the interpreter for long. A thread that waits for it and holds a lock keeps all threads
//! waiting that want the lock, also those that move bytes for everybody. So no lock of nearcall may be held here: debug
//! builds check that (`make locks`), and `make lint` refuses `PyO3`'s own functions elsewhere
//! (`tools/check_floors.py`).

use std::time::{Duration, Instant};

use nearcall_core::lock::held_here;
use pyo3::ffi;
use pyo3::prelude::*;

/// How long a thread sleeps before it looks whether a signal has arrived.
pub(crate) const SIGNAL_CHECK: Duration = Duration::from_millis(50);

/// To be called where the interpreter may go to another thread. Panics in debug builds if this thread holds a lock.
#[inline]
#[track_caller]
pub(crate) fn may_switch() {
    debug_assert!(held_here() == 0, "{} locks are held where the interpreter may be waited for", held_here());
}

/// Waits for the interpreter, and runs a closure while this thread holds it. Never returns if the interpreter has ended.
#[track_caller]
pub(crate) fn attach<R>(run: impl for<'py> FnOnce(Python<'py>) -> R) -> R {
    may_switch();
    if has_ended() && !is_attached() {
        stay();
    }
    Python::attach(run)
}

/// Releases the interpreter, runs a closure, and waits for the interpreter afterwards. Never returns if the interpreter has
/// ended meanwhile.
#[inline]
#[track_caller]
pub(crate) fn detach<R: Send>(py: Python<'_>, run: impl FnOnce() -> R + Send) -> R {
    may_switch();
    if has_ended() {
        // This thread has it, so it is the one that ends it, and no other gets it any more.
        return run();
    }
    py.detach(|| {
        let result = run();
        may_switch();
        if has_ended() {
            stay();
        }
        result
    })
}

/// Whether the interpreter ends, or has ended: only the thread that ends it may still have it.
#[inline]
fn has_ended() -> bool {
    // SAFETY: may be called at any time, by any thread.
    unsafe { ffi::Py_IsInitialized() == 0 }
}

/// What a thread does that wants an interpreter which has ended, until the process ends: as `CPython` itself does since 3.14.
/// The thread's state is gone by then, and to end the thread would run destructors that want the interpreter.
#[cold]
fn stay() -> ! {
    loop {
        std::thread::park();
    }
}

/// Like [`detach`], for a wait of the core, which asks now and then whether to go on: not if a signal's handler has raised.
#[inline]
#[track_caller]
pub(crate) fn waiting<R: Send>(py: Python<'_>, wait: impl FnOnce(&mut dyn FnMut() -> bool) -> R + Send) -> PyResult<R> {
    let mut raised = None;
    let result = detach(py, || {
        wait(&mut || {
            attach(|py| raised = py.check_signals().err());
            raised.is_none()
        })
    });
    raised.map_or(Ok(result), Err)
}

/// Whether no other thread can want the interpreter now: it has no other thread, and the process no other interpreter.
#[inline]
pub(crate) fn is_alone(py: Python<'_>) -> bool {
    threads(py, 2) == 1 && is_only_interpreter(py)
}

/// Whether the process has no other interpreter.
#[inline]
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "one reason holds for all of them")]
pub(crate) fn is_only_interpreter(_py: Python<'_>) -> bool {
    // SAFETY: attached, so this thread's interpreter stays. The pointer to the first one is only compared: an interpreter that
    // is just being added is that first one.
    unsafe {
        let own = ffi::PyInterpreterState_Get();
        ffi::PyInterpreterState_Head() == own && ffi::PyInterpreterState_Next(own).is_null()
    }
}

/// The number of the interpreter's newest thread. Numbers are never used again.
#[inline]
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "one reason holds for all of them")]
pub(crate) fn newest_thread(_py: Python<'_>) -> i64 {
    // SAFETY: attached, so the interpreter's list is not empty, and its first thread stays: a thread that ends has the
    // interpreter when it is taken off the list. A new thread may come first at any time.
    unsafe { ffi::PyThreadState_GetID(ffi::PyInterpreterState_ThreadHead(ffi::PyInterpreterState_Get())) }
}

/// How many threads the interpreter has, with the calling one. Does not count beyond `most`.
#[inline]
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "one reason holds for all of them")]
pub(crate) fn threads(_py: Python<'_>, most: u64) -> u64 {
    let mut count = 0;
    // SAFETY: attached, so no thread is taken off the list meanwhile (see `newest_thread`), and those behind its first one do
    // not change.
    unsafe {
        let mut next = ffi::PyInterpreterState_ThreadHead(ffi::PyInterpreterState_Get());
        while !next.is_null() && count < most {
            count += 1;
            next = ffi::PyThreadState_Next(next);
        }
    }
    count
}

/// How long a loop that runs no line of Python keeps the interpreter while others want it. Between two lines of Python
/// other threads may take the interpreter; in such a loop they cannot.
const TURN: Duration = Duration::from_millis(1);

/// The same while nobody wants the interpreter: the interval after which Python itself switches.
const LONGEST_TURN: Duration = Duration::from_millis(5);

/// How long the interpreter is left alone between two turns. A waiting thread has to be woken first, which takes up to
/// 60 µs on a virtual machine. Without this pause the loop has taken the interpreter again before that, and the thread
/// waits for ever: it asks for a turn only after 5 ms in which the interpreter was never released.
const PAUSE: Duration = Duration::from_micros(50);

/// If the interpreter is taken back sooner than this, no other thread had it.
const AT_ONCE: Duration = Duration::from_micros(20);

/// Gives other Python threads their turns in a long loop.
pub(crate) struct Turns {
    /// When this turn began, as far as the loop knows: a short loop never asks for the time.
    since: Option<Instant>,
    turn: Duration,
}

impl Turns {
    pub(crate) fn new() -> Self {
        Self { since: None, turn: TURN }
    }

    /// Lets other threads have the interpreter if this thread has had it for a while. To be called in each round, or
    /// every few rounds if these are short.
    #[inline]
    #[track_caller]
    pub(crate) fn give(&mut self, py: Python<'_>) {
        if self.since.get_or_insert_with(Instant::now).elapsed() >= self.turn {
            self.pause(py);
        }
    }

    #[cold]
    #[track_caller]
    fn pause(&mut self, py: Python<'_>) {
        let paused = detach(py, || {
            std::thread::sleep(PAUSE);
            Instant::now()
        });
        let now = Instant::now();
        self.since = Some(now);
        let alone = now.duration_since(paused) < AT_ONCE;
        self.turn = if alone { LONGEST_TURN.min(self.turn * 2) } else { TURN };
    }
}

/// Releases the interpreter, if this thread holds it, while the thread waits in the core.
pub(crate) fn detached(wait: &mut (dyn FnMut(bool) + Send)) {
    if is_attached() {
        Python::attach(|py| detach(py, || wait(true)));
    } else {
        wait(false);
    }
}

/// Whether this thread holds the interpreter. `PyGILState_Check` says so of every thread once the interpreter has ended, and
/// a thread that then asked for it would end the process.
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "one reason holds for all of them")]
fn is_attached() -> bool {
    // SAFETY: both may be called at any time, by any thread. The pointers are only compared.
    unsafe {
        let current = ffi::compat::PyThreadState_GetUnchecked();
        // Before 3.12 it is the state of the thread that holds the interpreter, which may be another one.
        !current.is_null() && current == ffi::PyGILState_GetThisThreadState()
    }
}
