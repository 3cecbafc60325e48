//! Who receives: a thread that waits for a reply does it by itself, for all others that wait too, and hands the task on
//! when its own reply has come.

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use nearcall_transport::{Incoming, LONGEST_SLEEP, LinkError};
use nearcall_wire::{Failure, Kind};

use super::table::{CallId, Table, Waker};
use super::{Connection, NoEvent};
use crate::event::Event;

/// How long a thread sleeps before it looks whether a signal wants its attention.
const SIGNAL_CHECK: Duration = Duration::from_millis(50);

impl Connection {
    /// The next event of a call, if it is here or can be received without waiting.
    #[must_use]
    pub fn try_event(&self, id: CallId) -> Option<Event> {
        if let Some(event) = self.table.lock().take(id) {
            return Some(event);
        }
        let guard = self.receiving.try_lock()?;
        let event = self.receive(Some(id));
        drop(guard);
        self.hand_on();
        event
    }

    /// Receives what is here, for a caller that sends much and would otherwise not learn that its call has ended.
    pub fn look(&self) {
        if let Some(guard) = self.receiving.try_lock() {
            self.receive(None);
            drop(guard);
            self.hand_on();
        }
    }

    /// Waits for the next event of a call.
    ///
    /// # Errors
    /// [`NoEvent`].
    pub fn next_event(&self, id: CallId, deadline: Option<Instant>) -> Result<Event, NoEvent> {
        // The usual case first: this thread receives, and what comes is for it.
        if let Some(guard) = self.receiving.try_lock() {
            let arrived = {
                let mut table = self.table.lock();
                if table.get(id).is_none() {
                    return Err(NoEvent::Ended);
                }
                table.take(id)
            };
            let event = match arrived {
                Some(event) => Ok(Some(event)),
                None => {
                    match self.link.receive(deadline.map(|deadline| deadline.min(Instant::now() + LONGEST_SLEEP))) {
                        Ok(Some(incoming)) => Ok(self.deliver(incoming, Some(id))),
                        Ok(None) => Ok(None),
                        Err(LinkError::Interrupted) => Err(NoEvent::Interrupted),
                        Err(error) => {
                            self.lost(&error);
                            Ok(None)
                        }
                    }
                }
            };
            drop(guard);
            self.hand_on();
            if let Some(event) = event? {
                return Ok(event);
            }
        }
        self.until(id, deadline, |table| match table.take(id) {
            Some(event) => Some(Ok(event)),
            None if table.get(id).is_none() => Some(Err(NoEvent::Ended)),
            None => None,
        })?
    }

    /// For an event loop: receives all that is here, and returns the loop's calls for which something came.
    pub fn pump(&self) -> Vec<CallId> {
        if let Some(_receiving) = self.receiving.try_lock() {
            self.receive(None);
        }
        std::mem::take(&mut self.table.lock().ready)
    }

    /// For an event loop: the link said that the peer hung up.
    pub fn notice_loss(&self) {
        self.lost(&LinkError::Closed);
    }

    /// For an event loop: spins for a moment, as a thread would before it sleeps. Whether it pays to look again.
    #[must_use]
    pub fn spin(&self) -> bool {
        self.receiving.try_lock().is_some_and(|_receiving| self.link.spin())
    }

    /// The event of a call that [`Connection::pump`] has already received.
    #[must_use]
    pub fn arrived(&self, id: CallId) -> Option<Event> {
        self.table.lock().take(id)
    }

    /// Whether an event of the call has been received and waits to be taken, or will never come.
    #[must_use]
    pub fn has_arrived(&self, id: CallId) -> bool {
        self.table.lock().get(id).is_none_or(|call| !call.arrived.is_empty())
    }

    /// Whether an item of the call's stream may be sent now, or the call has ended.
    #[must_use]
    pub fn has_room(&self, id: CallId) -> bool {
        let mut table = self.table.lock();
        table.get(id).is_none_or(|call| call.credit > 0 || call.arrived.iter().any(Event::ends_call))
    }

    /// Whether the call is still under way here.
    #[must_use]
    pub fn is_live(&self, id: CallId) -> bool {
        self.table.lock().get(id).is_some()
    }

    /// Receives what is here and delivers it. Stops at, and returns, an event for `mine`.
    pub(super) fn receive(&self, mine: Option<CallId>) -> Option<Event> {
        loop {
            match self.link.try_receive() {
                Ok(Some(incoming)) => {
                    if let Some(event) = self.deliver(incoming, mine) {
                        return Some(event);
                    }
                }
                Ok(None) => return None,
                Err(error) => {
                    self.lost(&error);
                    return mine.and_then(|id| self.table.lock().take(id));
                }
            }
        }
    }

    pub(super) fn deliver(&self, incoming: Incoming, mine: Option<CallId>) -> Option<Event> {
        let event = match Event::parse(incoming) {
            Ok(event) => event,
            Err(malformed) => {
                self.lost(&LinkError::Broken(malformed.0.to_owned()));
                return mine.and_then(|id| self.table.lock().take(id));
            }
        };
        match event.head.kind {
            Kind::Ping => {
                self.pongs.lock().push(event.payload.to_vec());
                // Release: whoever sees the flag finds the ping.
                self.has_pongs.store(true, Ordering::Release);
                None
            }
            Kind::GoAway => {
                // Calls under way go on; the server ends the connection when it is through with them.
                self.going_away.store(true, Ordering::Relaxed);
                None
            }
            _ => self.table.lock().deliver(event, mine),
        }
    }

    /// The connection is gone: every call under way ends.
    pub(super) fn lost(&self, error: &LinkError) {
        let failure = match error {
            LinkError::Closed => Failure::new(
                Failure::UNAVAILABLE,
                format!("the connection to {} was lost: the server stopped or died", self.url),
            ),
            LinkError::Exhausted(what) => Failure::new(
                Failure::RESOURCE_EXHAUSTED,
                format!("the connection to {} was given up: {what}", self.url),
            ),
            error => Failure::new(Failure::INTERNAL, format!("the connection to {} is broken: {error}", self.url)),
        };
        self.table.lock().die(&failure);
        self.lost.store(true, Ordering::Release);
        self.link.close();
    }

    /// Waits until `check` finds what the caller wants in the table: receives, or sleeps while another thread does.
    pub(super) fn until<T>(
        &self,
        id: CallId,
        deadline: Option<Instant>,
        mut check: impl FnMut(&mut Table) -> Option<T>,
    ) -> Result<T, NoEvent> {
        loop {
            if let Some(guard) = self.receiving.try_lock() {
                let result = self.lead(deadline, &mut check);
                drop(guard);
                self.hand_on();
                return result;
            }
            if let Some(found) = self.follow(id, deadline, &mut check)? {
                return Ok(found);
            }
        }
    }

    fn lead<T>(
        &self,
        deadline: Option<Instant>,
        check: &mut impl FnMut(&mut Table) -> Option<T>,
    ) -> Result<T, NoEvent> {
        let begun = Instant::now();
        loop {
            self.receive(None);
            if let Some(found) = check(&mut self.table.lock()) {
                return Ok(found);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(NoEvent::DeadlinePassed);
            }
            // Without a deadline the link wakes by itself after `LONGEST_SLEEP`.
            let slice = deadline.map(|deadline| deadline.min(Instant::now() + LONGEST_SLEEP));
            match self.link.receive(slice) {
                Ok(Some(incoming)) => {
                    self.deliver(incoming, None);
                }
                // A signal may have come just before we went to sleep: it interrupts nothing then.
                Ok(None) if begun.elapsed() >= SIGNAL_CHECK => return Err(NoEvent::Interrupted),
                Ok(None) => {}
                Err(LinkError::Interrupted) => return Err(NoEvent::Interrupted),
                Err(error) => self.lost(&error),
            }
        }
    }

    /// Sleeps until something was delivered for the call, or nobody receives any more.
    fn follow<T>(
        &self,
        id: CallId,
        deadline: Option<Instant>,
        check: &mut impl FnMut(&mut Table) -> Option<T>,
    ) -> Result<Option<T>, NoEvent> {
        {
            let mut table = self.table.lock();
            if let Some(found) = check(&mut table) {
                return Ok(Some(found));
            }
            if let Some(call) = table.get(id) {
                call.waker = Waker::Thread(std::thread::current());
            }
        }
        self.followers.lock().push(id);
        // SeqCst, as the fence in `hand_on`: either the leader that leaves sees this follower, or we find the task free.
        self.follower_count.fetch_add(1, Ordering::SeqCst);
        let mut interrupted = false;
        if !self.is_free() {
            let slice = match deadline {
                Some(deadline) => deadline.saturating_duration_since(Instant::now()).min(SIGNAL_CHECK),
                None => SIGNAL_CHECK,
            };
            let begun = Instant::now();
            std::thread::park_timeout(slice);
            interrupted = begun.elapsed() >= slice;
        }
        self.follower_count.fetch_sub(1, Ordering::SeqCst);
        self.followers.lock().retain(|&follower| follower != id);
        let found = check(&mut self.table.lock());
        if found.is_some() {
            // The task of receiving may have been handed to us: it goes on to the next.
            self.hand_on();
            return Ok(found);
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            self.hand_on();
            return Err(NoEvent::DeadlinePassed);
        }
        if interrupted { Err(NoEvent::Interrupted) } else { Ok(None) }
    }

    fn is_free(&self) -> bool {
        self.receiving.try_lock().is_some()
    }

    /// Called by a thread that has just stopped receiving: another one that waits takes over.
    pub(super) fn hand_on(&self) {
        // SeqCst: see `follow`.
        fence(Ordering::SeqCst);
        if self.follower_count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let next = self.followers.lock().first().copied();
        if let Some(id) = next
            && let Some(call) = self.table.lock().get(id)
            && let Waker::Thread(thread) = &call.waker
        {
            thread.unpark();
        }
    }
}
