//! Sends streams again from their start, if the server has refused them before it began with them.
//!
//! Threads do that themselves, see [`route`](crate::calls::route). In an event loop a task does it, and readers and senders of
//! the stream wait for the task.

use std::sync::Arc;
use std::time::Instant;

use nearcall_core::client::Connection as Core;
use nearcall_core::{Body, Incoming, Kind, Outgoing};
use pyo3::prelude::*;

use crate::asyncio::waiting::{Owner, wake};
use crate::calls::calling::{Again, pause};
use crate::calls::opening::Anew;
use crate::calls::outcome::name_failure;
use crate::calls::route::{Claim, Leg};
use crate::calls::stream::Stream;
use crate::gil::callback::Callback;
use crate::gil::interpreter::detach;

impl Stream {
    /// For the reading thread, which finds that the call has ended without its end having arrived here: waits for
    /// another thread that may be sending the call again. Returns whether there is another leg. If not, `Err` holds the
    /// end, if the other thread has found it.
    #[cold]
    pub(crate) fn await_other(&self, py: Python<'_>, leg: &Leg) -> PyResult<Result<bool, Incoming>> {
        while self.route.is_claimed() {
            self.route.sleep(py)?;
        }
        Ok(match self.route.take_end() {
            Some(end) => Err(end),
            None => Ok(leg.has_next()),
        })
    }

    /// For a sending thread, when the call is being sent again and no more items may be kept: waits a moment. Returns
    /// whether the deadline is still ahead.
    #[cold]
    pub(crate) fn await_leg(&self, py: Python<'_>) -> PyResult<bool> {
        self.route.sleep(py)?;
        Ok(self.until.is_none_or(|until| Instant::now() < until))
    }

    /// For the reading thread: whether the call that ended with `end` is under way again.
    #[cold]
    pub(crate) fn refused(&self, py: Python<'_>, leg: &Leg, end: &Incoming) -> PyResult<bool> {
        loop {
            match self.route.claim(leg) {
                Claim::Ours => return self.send_claimed(py, leg, end),
                Claim::Nobodys => return Ok(false),
                // A sender has the claim and looks for the end. This thread has it, so the sender gives the claim back.
                Claim::Others if !leg.has_next() => self.route.sleep(py)?,
                Claim::Others => return Ok(true),
            }
        }
    }

    /// For a sending thread: whether a call that has ended goes on nevertheless, on another leg.
    #[cold]
    pub(crate) fn goes_on(&self, py: Python<'_>, leg: &Leg) -> PyResult<bool> {
        match self.route.claim(leg) {
            Claim::Others => return Ok(true),
            Claim::Nobodys => return Ok(false),
            Claim::Ours => {}
        }
        let Some(end) = leg.core.take_unbegun(leg.id) else {
            self.route.unclaim();
            // If the end is not there any more, the reading thread has it and is about to decide.
            return Ok(!leg.core.is_live(leg.id));
        };
        let again = self.send_claimed(py, leg, &end)?;
        if !again {
            self.route.leave_end(end);
        }
        Ok(again)
    }

    /// Like `goes_on`, for an event loop. `end` is the call's end if it was taken already.
    #[cold]
    pub(crate) fn goes_on_in_loop(slf: &Bound<'_, Self>, end: Option<Incoming>) -> PyResult<Result<bool, Incoming>> {
        let (py, this) = (slf.py(), slf.get());
        let leg = this.route.leg();
        match this.route.claim(leg) {
            Claim::Others => return Ok(Ok(true)),
            Claim::Nobodys => return Ok(end.map_or(Ok(false), Err)),
            Claim::Ours => {}
        }
        let Some(end) = end.or_else(|| leg.core.take_unbegun(leg.id)) else {
            this.route.unclaim();
            return Ok(Ok(false));
        };
        let left = this.until.map(|until| until.saturating_duration_since(Instant::now()));
        let again =
            this.again(leg, &end).filter(|again| again.pause.is_zero() || left.is_none_or(|left| again.pause < left));
        let (Owner::Loop(schedule), Some(again)) = (this.calling.waiting.owner(), again) else {
            this.route.close();
            return Ok(Err(end));
        };
        let (pause, left) = (again.pause.as_secs_f64(), left.map(|left| left.as_secs_f64()));
        schedule.send_again.bind(py).run_with((slf, pause, this.calling.patience(again.hopeful), left))?;
        Ok(Ok(true))
    }

    /// Decides whether and how to send a refused call again.
    fn again(&self, leg: &Leg, end: &Incoming) -> Option<Again> {
        let mut tally = self.route.tally();
        let again = self.calling.again(&leg.core, self.method.get(), end, &mut tally);
        self.route.set_tally(tally);
        again
    }

    /// Sends the call again; this thread has claimed it. Returns whether the call was sent again.
    fn send_claimed(&self, py: Python<'_>, leg: &Leg, end: &Incoming) -> PyResult<bool> {
        let sent = self.try_again(py, leg, end);
        if !matches!(sent, Ok(true)) {
            self.route.close();
        }
        sent
    }

    fn try_again(&self, py: Python<'_>, leg: &Leg, end: &Incoming) -> PyResult<bool> {
        let Some(mut again) = self.again(leg, end) else { return Ok(false) };
        loop {
            // What happened to the call says more than that its deadline passes, or that no server is there now.
            if !pause(py, again.pause, self.until)? {
                return Ok(false);
            }
            let core = match self.calling.usable_again(py, again.hopeful, self.until) {
                Ok(core) => core,
                Err(_) if self.method.get().idempotent => return Ok(false),
                Err(error) => return Err(error),
            };
            match self.begin_again(py, &core)? {
                Ok(()) => return Ok(true),
                Err(next) => again = next,
            }
        }
    }

    /// Begins the call's next leg, and sends everything that was kept. The inner failure means that the connection was
    /// lost before the leg began.
    pub(crate) fn begin_again(&self, py: Python<'_>, core: &Arc<Core>) -> PyResult<Result<(), Again>> {
        let method = self.method.get();
        let Some(arguments) = self.route.arguments() else {
            self.route.unclaim();
            return Ok(Ok(()));
        };
        let mut tally = self.route.tally();
        let for_loop = self.for_loop();
        let (calling, surroundings, until) = (&self.calling, &self.surroundings, self.until);
        let id = match (Anew { calling, method, surroundings, until, tally, for_loop }).begin(py, core, &arguments)? {
            Ok(id) => id,
            Err(failure) if calling.may_begin_elsewhere(core, &failure) => {
                let again = calling.again_unsent(core, method, failure, &mut tally);
                self.route.set_tally(tally);
                return again.map(Err).map_err(|failure| name_failure(py, &failure, &method.name));
            }
            Err(failure) => return Err(name_failure(py, &failure, &method.name)),
        };
        let mut leg = Some(Leg::new(Arc::clone(core), id));
        let mut place = 0;
        while let Some((kind, compress, bytes)) = self.route.next_frame(place, &mut leg) {
            place += 1;
            let send = || {
                let frame = Outgoing { compress, ..Outgoing::new(kind, Body::Whole(&bytes)) };
                match kind {
                    // All kept items together are less than a stream may send before the server grants more.
                    Kind::Item => core.try_send_item(id, &frame, &[], until).map(|sent| sent == Some(true)),
                    _ => core.end_stream(id, until).map(|()| true),
                }
            };
            // An event loop must not wait.
            let sent = if for_loop { send() } else { detach(py, send) };
            match sent {
                Ok(true) => {}
                // The leg has ended as well: the thread that looks next finds why.
                Ok(false) => self.route.go_on(&mut leg),
                Err(_) if core.is_dead() => self.route.go_on(&mut leg),
                Err(failure) => {
                    core.cancel(id);
                    return Err(name_failure(py, &failure, &method.name));
                }
            }
            if leg.is_none() {
                break;
            }
        }
        if self.route.is_given_up() {
            core.cancel(id);
        }
        Ok(Ok(()))
    }

    /// For an event loop: completes `future` when the call has been sent again. Returns whether there is anything to
    /// wait for.
    pub(crate) fn notify_when_sent_again(&self, py: Python<'_>, future: &Py<PyAny>) -> bool {
        if !self.route.is_claimed() {
            return false;
        }
        self.route.add_future(future.clone_ref(py));
        true
    }

    /// Wakes the futures that wait for the call to be sent again.
    pub(crate) fn wake_futures(&self, py: Python<'_>) -> PyResult<()> {
        self.route.take_futures().iter().try_for_each(|future| wake(future.bind(py)))
    }

    /// For an event loop: the call could not be sent again.
    pub(crate) fn fail_to_send_again(&self, py: Python<'_>, failure: PyErr) -> PyResult<()> {
        self.route.fail(failure);
        self.wake_futures(py)
    }
}
