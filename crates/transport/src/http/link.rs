//! What both ends of a connection of HTTP have in common: the lock around their session, and who looks and waits.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_http::Connection;
use nearcall_platform::lock::Mutex;
use nearcall_platform::{clock, sys};
use nearcall_ring::SpinBudget;
use rustix::event::PollFlags;

use super::bell::Bell;
use super::exchange::{Exchange, ExchangeState};
use super::receiving::receive;
use super::role::Role;
use crate::errors::LinkError;
use crate::frame::incoming::Incoming;
use crate::frame::outgoing::{CallKey, Outgoing};
use crate::limits::budget::Account;
use crate::link::end::LinkEnd;
use crate::link::silence::{Silence, has_come};
use crate::link::wire::Wire;
use crate::link::{Flushed, HeldUp, Ledger, Link, Properties, ROOM_LOOK, Room, Sent, Wait};
use crate::options::Options;
use crate::peer::Peer;
use crate::signal::Signal;

/// Whoever may wait with a frame does so while more bytes than this wait in front of it.
const MUCH: usize = 4 << 20;

/// A connection of HTTP that carries calls.
///
/// All that is known of it is behind one lock, which is held for a frame at a time and never while somebody waits. What is to
/// be written waits in the session, which is the connection's one outgoing queue.
#[derive(Debug)]
pub(crate) struct HttpLink<W, R: Role> {
    exchange: Exchange<W>,
    properties: Properties,
    state: Mutex<ExchangeState<R>>,
    /// How long the one who receives spins.
    budget: Mutex<SpinBudget>,
    silence: Silence,
    end: LinkEnd,
    /// The peer may end the connection between two calls: that is looked for before each.
    may_end: bool,
}

impl<W: Wire, R: Role> HttpLink<W, R> {
    pub(crate) fn new(
        wire: W,
        peer: Peer,
        session: R::Session,
        role: R,
        account: Arc<Account>,
        options: &Options,
    ) -> Self {
        let may_end = session.may_end();
        Self {
            state: Mutex::new(ExchangeState::new(session, role, &account)),
            exchange: Exchange::new(wire, account),
            // Each call waits for an answer.
            properties: Properties {
                leaves_work: false,
                takes_last_calls: true,
                tells_unbegun: true,
                ..Properties::new(peer)
            },
            budget: Mutex::new(SpinBudget::new(options.spin)),
            silence: Silence::begin(),
            end: LinkEnd::open(),
            may_end,
        }
    }

    /// The same for a client, whose threads receive by themselves.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn with_bell(mut self) -> io::Result<Self> {
        self.exchange.bell = Some(Bell::beside(Signal::Descriptor(self.exchange.wire.fd()))?);
        Ok(self)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.exchange.bell.as_ref().map_or_else(|| self.exchange.wire.fd(), Bell::fd)
    }
}

impl<W: Wire, R: Role> HttpLink<W, R> {
    /// The next frame, if one has arrived.
    fn try_next(&self) -> Result<Option<Incoming>, LinkError> {
        let found = self.exchange.look(&mut self.state.lock());
        if let (Err(LinkError::Unfinished), Some(bell)) = (&found, &self.exchange.bell) {
            // What is left may have been read already, and the socket tells a poller nothing of that.
            bell.ring();
        }
        found
    }

    /// Sleeps until something has arrived, if this thread receives, or there is room in the socket for what waits. Whether
    /// something happened.
    fn sleep(&self, receiving: bool, until: Instant) -> io::Result<bool> {
        match (receiving, self.queued() > 0) {
            (true, true) => {
                sys::wait_for_any([(self.fd(), PollFlags::IN), (self.exchange.wire.fd(), PollFlags::OUT)], until)
            }
            (true, false) => sys::wait_for(self.fd(), PollFlags::IN, Some(until)),
            (false, true) => sys::wait_for(self.exchange.wire.fd(), PollFlags::OUT, Some(until)),
            // Room comes with what another thread receives.
            (false, false) => {
                sys::wait_for(self.exchange.wire.fd(), PollFlags::empty(), Some(until.min(Instant::now() + ROOM_LOOK)))
            }
        }
    }
}

impl<W: Wire, R: Role> Wait for HttpLink<W, R> {
    fn signal(&self) -> Signal<'_> {
        Signal::Descriptor(self.fd())
    }

    fn arm(&self) -> bool {
        let state = self.state.lock();
        state.frames.is_empty() && (state.is_paused || !self.exchange.wire.holds())
    }

    fn spin(&self) -> bool {
        let mut budget = self.budget.lock();
        let begun = clock::monotonic_ns();
        let limit = budget.next();
        loop {
            let mut state = self.state.lock();
            // A broken connection is something to look at, too.
            let ready = !state.frames.is_empty() || self.exchange.read(&mut state).map_or(true, |len| len > 0);
            drop(state);
            if ready {
                budget.uncrowded();
                budget.learn(clock::monotonic_ns() - begun);
                return true;
            }
            if clock::monotonic_ns() - begun >= limit || !budget.share_cpu() {
                return false;
            }
        }
    }

    fn may_have_more(&self) -> bool {
        !self.state.lock().seems_read_out()
    }

    fn wait_room(&self, receiving: bool, timeout: Duration) -> Result<(), LinkError> {
        if receiving && self.exchange.wire.holds() && !self.state.lock().is_paused {
            return Ok(());
        }
        match self.sleep(receiving, Instant::now() + timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
        self.end.check()
    }
}

impl<W: Wire, R: Role> Ledger for HttpLink<W, R> {
    fn finished(&self, call: u32) {
        if self.exchange.given_up() > 0 {
            let mut state = self.state.lock();
            let ExchangeState { session, role, .. } = &mut *state;
            role.finished(session, call);
            self.exchange.note(&mut state);
        }
    }

    fn is_held_up(&self, call: u32, len: usize) -> bool {
        self.exchange.is_over() && {
            let ExchangeState { session, role, .. } = &mut *self.state.lock();
            role.is_held_up(session, call, len)
        }
    }

    fn held_up(&self) -> HeldUp {
        if !self.exchange.has_room() {
            return HeldUp::Still;
        }
        let ExchangeState { session, role, .. } = &*self.state.lock();
        if role.holds_up(session) { HeldUp::MayGoOn } else { HeldUp::Nothing }
    }

    fn why_no_room(&self) -> Option<String> {
        let ExchangeState { session, role, .. } = &mut *self.state.lock();
        role.why_no_room(session)
    }

    fn never_sent(&self) -> Vec<u32> {
        self.state.lock().never_sent()
    }
}

impl<W: Wire, R: Role> Link for HttpLink<W, R> {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        Some(self)
    }

    fn send(&self, call: CallKey, frame: &Outgoing<'_>, room: Room<'_>) -> Result<Sent, LinkError> {
        let (may_queue, together) = (matches!(room, Room::Later | Room::Together), matches!(room, Room::Together));
        let mut blocked = match room {
            Room::Now if self.queued() > 0 && self.flush()? != Flushed::All => return Err(LinkError::Full),
            Room::Later | Room::Together | Room::Now => None,
            Room::Wait(blocked) => Some(blocked),
        };
        loop {
            let mut state = self.state.lock();
            self.end.check()?;
            if blocked.is_none() || state.session.queued() + state.session.waiting() < MUCH {
                match self.exchange.put(&mut state, call, frame, together) {
                    Err(LinkError::Full) if blocked.is_some() => {}
                    Err(LinkError::Full) if may_queue => {
                        return state.role.wait(call, frame).map(|()| Sent::Out);
                    }
                    sent => return sent,
                }
            }
            drop(state);
            if let Some(blocked) = &mut blocked {
                blocked()?;
            }
        }
    }

    fn flush(&self) -> Result<Flushed, LinkError> {
        let mut state = self.state.lock();
        let mut sent = self.exchange.flush_from(&mut state)?;
        if self.exchange.bell.is_some() {
            if self.exchange.has_made_frames(&mut state)? {
                sent = Sent::Queued;
            }
        } else if sent == Sent::Queued {
            self.exchange.take_in(&mut state)?;
            sent = self.exchange.flush_from(&mut state)?;
        }
        Ok(if sent == Sent::Out { Flushed::All } else { Flushed::Full })
    }

    fn release(&self) -> Result<Sent, LinkError> {
        let mut state = self.state.lock();
        state.looks_again = false;
        self.exchange.flush_from(&mut state)
    }

    fn queued(&self) -> usize {
        self.exchange.queued()
    }

    fn account(&self) -> Option<&Account> {
        Some(self.exchange.account())
    }

    fn stop_sending(&self) {
        let mut state = self.state.lock();
        state.is_deaf = true;
        // Nothing is written any more, so nothing can fail.
        let _ = self.exchange.flush_from(&mut state);
    }

    fn try_receive_part(&self, slot: &mut Option<Incoming>) -> Result<(), LinkError> {
        *slot = self.try_next()?;
        Ok(())
    }

    fn receive(&self, deadline: Option<Instant>, slot: &mut Option<Incoming>) -> Result<(), LinkError> {
        receive(&self.budget, deadline, || self.try_next(), |until| self.sleep(true, until), slot)
    }

    fn is_stale(&self) -> bool {
        if self.may_end {
            let state = self.state.lock();
            // A goodbye is among them.
            return !state.frames.is_empty() || state.session.has_arrived() || has_come(&self.exchange.wire);
        }
        self.silence.hides_something(&self.exchange.wire)
    }

    fn has_delivered(&self) -> bool {
        let mut state = self.state.lock();
        let ExchangeState { session, role, .. } = &mut *state;
        if !role.has_parted(session, true) || (session.queued() > 0 && self.exchange.flush_from(&mut state).is_err()) {
            return false;
        }
        state.session.queued() + state.session.waiting() == 0 && sys::is_delivered(self.exchange.wire.fd())
    }

    fn close(&self) {
        let Some(first) = self.end.come() else { return };
        if first {
            let mut state = self.state.lock();
            let ExchangeState { session, role, .. } = &mut *state;
            role.has_parted(session, false);
            // What there is room for, a goodbye for instance.
            let _ = self.exchange.write(&mut state);
        }
        self.exchange.wire.say_goodbye();
        let _ = rustix::net::shutdown(self.exchange.wire.fd(), rustix::net::Shutdown::Both);
    }
}
