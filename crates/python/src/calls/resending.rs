//! Sends streams again from their start, if the server has refused them before it began with them.
//!
//! Threads do that themselves, see [`route`](crate::calls::route). In an event loop a task does it, and readers and senders of
//! the stream wait for the task.

use std::sync::Arc;

use nearcall_core::client::{Again, Connection as Core, NextStep};
use nearcall_core::{Body, Incoming, Kind, Outgoing, seconds_left};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::asyncio::waiting::{Owner, wake};
use crate::calls::driving::Call;
use crate::calls::outcome::name_failure;
use crate::calls::route::{Claim, Leg};
use crate::calls::stream::Stream;
use crate::gil::callback::Callback;
use crate::gil::interpreter::detach;
use crate::values::encoded::{Encoded, LentBuffer, Main};

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

    /// Whether a call that has ended on `leg` goes on nevertheless, on another leg. `end` is its end, which the reader has
    /// taken; a sender looks for it. If the call does not go on, `Err` has the end.
    #[cold]
    pub(crate) fn goes_on(slf: &Bound<'_, Self>, leg: &Leg, end: Option<Incoming>) -> PyResult<Result<bool, Incoming>> {
        let (py, this) = (slf.py(), slf.get());
        loop {
            match this.route.claim(leg) {
                Claim::Ours => break,
                Claim::Nobodys => return Ok(end.map_or(Ok(false), Err)),
                // A sender has the claim and looks for the end. This thread has it, so the sender gives the claim back.
                Claim::Others if end.is_some() && !leg.has_next() => this.route.sleep(py)?,
                Claim::Others => return Ok(Ok(true)),
            }
        }
        let Some(end) = end.or_else(|| leg.core.take_unbegun(leg.id)) else {
            this.route.unclaim();
            // If the end is not there any more, the reading thread has it and is about to decide.
            return Ok(Ok(!leg.core.is_live(leg.id)));
        };
        let goes_on = match (this.again(leg, &end), this.calling.waiting.owner()) {
            (Some(again), Owner::Threads) => this.send_anew(py, again).map(|()| true),
            (Some(again), Owner::Loop(schedule)) => {
                let (pause, left) = (again.pause.as_secs_f64(), this.until.map(seconds_left));
                schedule
                    .send_again
                    .bind(py)
                    .run_with((slf, pause, this.calling.patience(again.hopeful), left))
                    .map(|_| true)
            }
            (None, _) | (_, Owner::Nobody) => Ok(false),
        };
        if !matches!(goes_on, Ok(true)) {
            this.route.close();
        }
        Ok(if goes_on? { Ok(true) } else { Err(end) })
    }

    /// The same for a sender, which leaves the end to the reader.
    #[cold]
    pub(crate) fn sends_on(slf: &Bound<'_, Self>, leg: &Leg) -> PyResult<bool> {
        Ok(Self::goes_on(slf, leg, None)?.unwrap_or_else(|end| {
            slf.get().route.leave_end(end);
            false
        }))
    }

    /// How to send a refused call again, if it is.
    fn again(&self, leg: &Leg, end: &Incoming) -> Option<Box<Again>> {
        let mut driver = self.route.driver();
        let next = driver.came(&self.calling.rules(self.method.get()), &leg.core, end);
        self.route.set_driver(driver);
        if let NextStep::Again(again) = next { Some(again) } else { None }
    }

    /// The call, as it is sent again now.
    fn call(&self, py: Python<'_>) -> Call {
        Call { surroundings: self.surroundings.look_again(py), driver: self.route.driver() }
    }

    /// Sends the call again; this thread has claimed it, and waits.
    fn send_anew(&self, py: Python<'_>, mut again: Box<Again>) -> PyResult<()> {
        loop {
            let core = self.calling.renewed(py, self.method.get(), &mut self.call(py), &again)?;
            match self.begin_again(py, &core)? {
                Ok(()) => return Ok(()),
                Err(next) => again = next,
            }
        }
    }

    /// Begins the call's next leg, and sends everything that was kept. The inner failure means that the connection was
    /// lost before the leg began.
    pub(crate) fn begin_again(&self, py: Python<'_>, core: &Arc<Core>) -> PyResult<Result<(), Box<Again>>> {
        let method = self.method.get();
        let Some(arguments) = self.route.arguments() else {
            self.route.unclaim();
            return Ok(Ok(()));
        };
        let (for_loop, until, mut call) = (self.for_loop(), self.until, self.call(py));
        let encode = || Ok(Encoded::whole(Main::Lent(LentBuffer::Bytes(PyBytes::new(py, &arguments)))));
        let sent = self.calling.send(py, core, method, &mut call, for_loop, encode, |request, expected| {
            // An event loop must not wait.
            if for_loop { core.begin(request, expected) } else { detach(py, || core.begin(request, expected)) }
        });
        self.route.set_driver(call.driver);
        let id = match sent? {
            Ok(id) => id,
            Err(again) => return Ok(Err(again)),
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

    /// Wakes the futures that wait for the call to be sent again.
    pub(crate) fn wake_futures(&self, py: Python<'_>) -> PyResult<()> {
        self.route.take_futures().iter().try_for_each(|future| wake(future.bind(py)))
    }
}
