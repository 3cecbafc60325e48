//! Connections on which a server of this process receives in place of the callers: the half of a server's connection
//! that calls the client, and a client whose server may call it. Their callers wait as the server's own handlers do.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use nearcall_platform::clock::is_past;
use nearcall_platform::descriptors;
use nearcall_transport::{Body, CallKey, Incoming, Link, Outgoing, Room};
use nearcall_wire::Kind;

use crate::client::connection::{Connection, Inner, NoEvent, Receiver};
use crate::client::receiving::{SIGNAL_CHECK, slice_until};
use crate::client::table::Table;
use crate::client::table::awaited::{Awaited, Sleeper};
use crate::client::table::slots::CallId;
use crate::exports::{Exports, OnRelease};
use crate::sync::Ordering;

/// How an event loop that makes calls over a connection is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakesBy {
    /// By the link itself, from which the loop receives.
    Link,
    /// By an event descriptor: a server receives.
    Event,
}

/// A server of this process that receives on clients' connections, so that the other side can call this process's
/// objects.
pub trait Adopter: Send + Sync {
    /// Receives for a connection from now on. Never waits.
    fn adopt(self: Arc<Self>, connection: &Arc<Connection>);
}

impl Connection {
    /// Leaves receiving to a server, and asks a thread that receives now to stop. Returns whether no server did so
    /// before.
    pub(crate) fn use_receiver(&self, receiver: Arc<dyn Receiver>) -> bool {
        let Some(inner) = self.inner() else { return false };
        let first = inner.received.set(receiver).is_ok();
        if first && inner.receiving.is_led() {
            // The PONG wakes that thread. If the PING cannot be sent, the connection is lost, which wakes it, too.
            let ping = Outgoing::new(Kind::Ping, Body::Whole(&[]));
            let _ = inner.link.send(CallKey { number: u32::MAX, side: 0 }, &ping, Room::Later);
        }
        first
    }

    /// To be called by the server: whether no thread receives here any more, nor ever will.
    pub(crate) fn leave_to_server(&self) -> bool {
        match self.inner().and_then(|inner| inner.receiving.try_lead()) {
            Some(lead) => {
                std::mem::forget(lead);
                true
            }
            None => false,
        }
    }

    /// Takes in the frame in a place, which a server has received.
    pub(crate) fn take_in(&self, place: &mut Option<Incoming>) {
        if let Some(inner) = self.inner() {
            inner.take_in_for(place, None);
        }
    }

    /// For an event loop: how it is woken.
    ///
    /// # Errors
    /// What the system says.
    pub fn wakes_by(&self) -> io::Result<WakesBy> {
        let Some(inner) = self.inner() else { return Ok(WakesBy::Link) };
        if inner.received.get().is_none() {
            return inner.signal_fd().map(|_| WakesBy::Link);
        }
        if inner.loop_event.get().is_none() {
            // If two threads make an event, the first one stays.
            let _ = inner.loop_event.set(descriptors::new_event()?);
        }
        // Something may have come before the event was made: wake the loop once.
        inner.tell_loop();
        Ok(WakesBy::Event)
    }

    /// The descriptor that an event loop polls for reading.
    #[must_use]
    pub fn poll_fd(&self, by: WakesBy) -> BorrowedFd<'_> {
        let inner = self.even_in_child();
        match inner.loop_event.get() {
            Some(event) if by == WakesBy::Event => event.as_fd(),
            _ => inner.signal_fd().expect("wakes_by has made what there is to make"),
        }
    }

    /// For an event loop, when that descriptor is readable. `false` if the peer hung up.
    pub fn on_readable(&self, by: WakesBy) -> bool {
        let Some(inner) = self.inner() else { return false };
        match inner.loop_event.get() {
            Some(event) if by == WakesBy::Event => {
                descriptors::clear(event);
                true
            }
            // The server receives, and notices that the peer hung up.
            _ if inner.received.get().is_some() => true,
            _ => {
                inner.stay_awake();
                inner.signalled().is_ok()
            }
        }
    }

    /// For an event loop: this side is awake, and need not be woken.
    pub fn stay_awake(&self) {
        // If a server receives, it keeps track of the threads that sleep.
        if let Some(inner) = self.inner().filter(|inner| inner.received.get().is_none()) {
            inner.stay_awake();
        }
    }

    /// For an event loop: this side is about to sleep. `false` if something may have come already.
    pub fn may_sleep(&self) -> bool {
        self.inner().is_none_or(|inner| match inner.received.get() {
            Some(_) => inner.table.lock().ready.is_empty(),
            None => inner.link.arm(),
        })
    }

    /// The link, and the objects given over it, for the server's half of the connection.
    pub(crate) fn shared(&self) -> Option<(Arc<dyn Link>, Arc<Exports>)> {
        self.inner().map(|inner| (Arc::clone(&inner.link), Arc::clone(&inner.exports)))
    }

    /// From now on the other side may call objects that are given to it, at most `most` at a time. Those that it
    /// releases go to `releases`.
    pub(crate) fn open_exports(&self, most: usize, releases: Arc<dyn OnRelease>) {
        if let Some(inner) = self.inner() {
            inner.exports.open(most, releases);
        }
    }
}

impl Inner {
    /// Takes in a frame that a server has received. Whether `arrived` now holds an event for the call `mine`; any other
    /// event is taken.
    #[inline]
    fn take_in_for(&self, arrived: &mut Option<Incoming>, mine: Option<CallId>) -> bool {
        let is_mine = self.deliver(arrived, mine);
        if self.table.owes() {
            if let Some(receiver) = self.received.get() {
                receiver.note_woken();
            }
            self.table.wake();
        }
        // Relaxed: set before a call of an event loop is in the table. This thread has taken the table's lock since.
        if self.in_loop.load(Ordering::Relaxed) && self.table.lock().tells_loop() {
            self.tell_loop();
        }
        is_mine
    }

    /// Wakes the event loop that makes calls here: something has come for them, or the connection is gone.
    pub(in crate::client) fn tell_loop(&self) {
        match (self.loop_event.get(), self.received.get(), self.this.upgrade()) {
            (Some(event), ..) => descriptors::signal(event),
            (None, Some(receiver), Some(this)) => receiver.tell_loop(&this),
            _ => {}
        }
    }

    /// Waits until `check` finds what the caller wants in the table, while a server receives. `of_event`: see
    /// [`Inner::until`].
    pub(in crate::client) fn until_received<T>(
        &self,
        receiver: &dyn Receiver,
        ids: &[CallId],
        deadline: Option<Instant>,
        of_event: Option<fn(Incoming) -> T>,
        mut check: impl FnMut(&mut Table) -> Option<T>,
    ) -> Result<T, NoEvent> {
        if let Some(found) = check(&mut self.table.lock()) {
            return Ok(found);
        }
        let mut waiting = Waiting { connection: self, ids, deadline, of_event, check, begun: None, found: None };
        loop {
            receiver.wait(&mut waiting, slice_until(deadline));
            if let Some(found) = waiting.found {
                return Ok(found);
            }
            if is_past(deadline) {
                return Err(NoEvent::DeadlinePassed);
            }
            if waiting.wants_signals() {
                return Err(NoEvent::Interrupted);
            }
        }
    }
}

/// A thread that waits for something of a call while a server receives.
struct Waiting<'a, T, C> {
    connection: &'a Inner,
    /// Exactly one, if there is an `of_event`.
    ids: &'a [CallId],
    deadline: Option<Instant>,
    of_event: Option<fn(Incoming) -> T>,
    check: C,
    /// When the wait began. The clock is read only after the first look has found nothing.
    begun: Option<Instant>,
    found: Option<T>,
}

impl<T, C> Waiting<'_, T, C> {
    /// Whether a signal may want this thread's attention.
    fn wants_signals(&self) -> bool {
        self.begun.is_some_and(|begun| begun.elapsed() >= SIGNAL_CHECK)
    }
}

impl<T, C: FnMut(&mut Table) -> Option<T>> Awaited for Waiting<'_, T, C> {
    fn is_over(&mut self) -> bool {
        if self.found.is_none() {
            self.found = (self.check)(&mut self.connection.table.lock());
        }
        if self.found.is_some() || is_past(self.deadline) {
            return true;
        }
        if self.begun.is_none() {
            self.begun = Some(Instant::now());
            return false;
        }
        self.wants_signals()
    }

    #[inline]
    fn take_in(&mut self, arrived: &mut Option<Incoming>) -> bool {
        let mine = self.of_event.and_then(|_| self.ids.first().copied());
        if !self.connection.take_in_for(arrived, mine) {
            return self.is_over();
        }
        self.found = arrived.take().zip(self.of_event).map(|(event, of_event)| of_event(event));
        true
    }
}

impl<T, C: FnMut(&mut Table) -> Option<T>> Sleeper for Waiting<'_, T, C> {
    fn sleep(&mut self) -> bool {
        let (slice, me) = (slice_until(self.deadline), std::thread::current());
        self.connection.table.lock().wait(self.ids, &me);
        // This thread was not woken for what came before it was in the table.
        if !self.is_over() {
            std::thread::park_timeout(slice);
        }
        self.connection.table.lock().stop_waiting(self.ids, me.id());
        self.is_over()
    }
}
