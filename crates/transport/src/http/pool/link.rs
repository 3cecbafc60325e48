//! The pool as the core uses it: one link.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_platform::sys;
use nearcall_wire::Kind;
use rustix::event::PollFlags;

use super::{Counted, LOOK_INTERVAL, Pool, carried, never_sent};
use crate::errors::LinkError;
use crate::frame::incoming::Incoming;
use crate::frame::outgoing::{CallKey, Outgoing};
use crate::http::frames::bare;
use crate::http::receiving::receive;
use crate::link::{Flushed, Ledger, Link, Properties, Room, Sent, Wait};
use crate::signal::Signal;
use crate::sync::Ordering;

impl Wait for Pool {
    fn signal(&self) -> Signal<'_> {
        Signal::Descriptor(self.bell.fd())
    }

    fn arm(&self) -> bool {
        let state = self.state.lock();
        state.frames.is_empty() && state.members.iter().all(|member| member.link.arm())
    }

    /// Spins on the only connection. With several, a spin on one would keep the others waiting.
    fn spin(&self) -> bool {
        self.only().is_some_and(|link| link.spin())
    }

    fn may_have_more(&self) -> bool {
        true
    }

    fn wait_room(&self, receiving: bool, timeout: Duration) -> Result<(), LinkError> {
        if receiving && !self.arm() {
            return Ok(());
        }
        let until = Instant::now() + if receiving && self.queued() == 0 { timeout } else { timeout.min(LOOK_INTERVAL) };
        let events = if receiving { PollFlags::IN } else { PollFlags::empty() };
        match sys::wait_for(self.bell.fd(), events, Some(until)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
        if self.is_closed() { Err(LinkError::Closed) } else { Ok(()) }
    }
}

impl Ledger for Pool {
    fn why_no_room(&self) -> Option<String> {
        let connections = self.state.lock().members.len();
        Some(format!("takes one call at a time on a connection of HTTP/1.1, and all {connections} are busy"))
    }

    fn never_sent(&self) -> Vec<u32> {
        let state = self.state.lock();
        let unsent = state.members.iter().flat_map(|member| never_sent(&*member.link));
        unsent.chain(state.waiting.numbers()).collect()
    }
}

impl Link for Pool {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        Some(self)
    }

    fn send(&self, call: CallKey, frame: &Outgoing<'_>, room: Room<'_>) -> Result<Sent, LinkError> {
        if self.is_closed() {
            return Err(LinkError::Closed);
        }
        if frame.kind == Kind::Ping && call.number == u32::MAX {
            // This ping only wakes the receiving thread. It needs no server.
            self.tell(bare(Kind::Pong, call.number));
            return Ok(Sent::Out);
        }
        if frame.kind != Kind::Call {
            return self.send_on(call, frame, room);
        }
        let mut room = room;
        let mut counted = None;
        loop {
            let claimed = self.claim(&mut self.state.lock(), carried(call.number, frame))?;
            if let Some(link) = claimed {
                return self.pass(&link, call, frame, Room::Later);
            }
            match &mut room {
                Room::Now => return Err(LinkError::Full),
                Room::Later | Room::Together => {
                    let mut state = self.state.lock();
                    state.waiting.push(call.number, frame)?;
                    self.grow(&mut state);
                    drop(state);
                    // A connection may have become free meanwhile: the receiving thread looks.
                    self.bell.ring();
                    return Ok(Sent::Out);
                }
                Room::Wait(blocked) => {
                    counted.get_or_insert_with(|| Counted::new(self));
                    self.grow(&mut self.state.lock());
                    blocked()?;
                    if self.is_closed() {
                        return Err(LinkError::Closed);
                    }
                }
            }
        }
    }

    fn flush(&self) -> Result<Flushed, LinkError> {
        let mut left = Flushed::All;
        for link in self.links() {
            match link.flush() {
                Ok(Flushed::All) => {}
                Ok(some) => left = some,
                Err(error) => self.lost(&link, error)?,
            }
        }
        Ok(left)
    }

    fn release(&self) -> Result<Sent, LinkError> {
        Ok(Sent::Out)
    }

    fn queued(&self) -> usize {
        self.state.lock().members.iter().map(|member| member.link.queued()).sum()
    }

    fn stop_sending(&self) {
        self.links().iter().for_each(|link| link.stop_sending());
    }

    fn try_receive_part(&self, slot: &mut Option<Incoming>) -> Result<(), LinkError> {
        *slot = self.try_next()?;
        Ok(())
    }

    fn receive(&self, deadline: Option<Instant>, slot: &mut Option<Incoming>) -> Result<(), LinkError> {
        let sleep = |until| sys::wait_for(self.bell.fd(), PollFlags::IN, Some(until));
        receive(&self.budget, deadline, || self.try_next(), sleep, slot)
    }

    fn is_stale(&self) -> bool {
        self.only().is_some_and(|link| link.is_stale())
    }

    fn has_delivered(&self) -> bool {
        self.links().iter().all(|link| link.has_delivered())
    }

    fn close(&self) {
        // Release: pairs with the acquire in `is_closed`.
        self.closed.store(true, Ordering::Release);
        self.links().iter().for_each(|link| link.close());
    }
}

impl Pool {
    /// Sends a frame of a call that has begun, or keeps it if the call waits.
    fn send_on(&self, call: CallKey, frame: &Outgoing<'_>, room: Room<'_>) -> Result<Sent, LinkError> {
        let link = {
            let mut state = self.state.lock();
            let link = state.members.iter().find(|member| member.carries(call.number) || frame.kind == Kind::Ping);
            let Some(link) = link.map(|member| Arc::clone(&member.link)) else {
                // A waiting call has no connection yet. An ended call has none any more, and `follow` ignores the
                // frame.
                return state.waiting.follow(call.number, frame).map(|()| Sent::Out);
            };
            link
        };
        let sent = link.send(call, frame, room);
        if frame.kind == Kind::Cancel {
            let mut state = self.state.lock();
            if let Some(member) = state.of(&link) {
                // HTTP/1.1 can cancel a call only by closing its connection.
                member.retires = true;
            }
            self.freed(&mut state, &link);
        }
        match sent {
            Err(error) if !error.spares_connection() => {
                self.lost(&link, error)?;
                self.bell.ring();
                Ok(Sent::Out)
            }
            sent => sent,
        }
    }
}
