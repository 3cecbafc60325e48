//! Receiving: a thread that waits for a reply receives for all waiting threads, and hands the task on when its own
//! reply has come.

pub(in crate::client) mod event_loop;
pub(in crate::client) mod received;
pub(in crate::client) mod several;
pub(in crate::client) mod wait;

use std::time::{Duration, Instant};

use nearcall_platform::fault::contained;
use nearcall_transport::{Body, Incoming, Ledger, LinkError, Outgoing, Room, Sent};
use nearcall_wire::{Failure, Kind, Malformed, flags, shown};

use super::connection::{Connection, Inner};
use super::table::{CallId, NO_CALL, Unbegun};
use crate::client::table::Woken;
use crate::client::table::leadership::ClientLead;
use crate::sync::Ordering;

/// Frames taken in before a thread looks at its deadline again, or an event loop at what else it has to do.
const MOST_FRAMES: usize = 1024;
/// The same for frames that are much work: parts of long ones, and those that are long.
const LONGEST_TURN: Duration = Duration::from_millis(1);
/// Bytes of a payload from which on a frame is much work.
const LONG: usize = 16 << 10;

/// The receiving thread's. When it is dropped another thread may receive, and the threads wake for which something came.
pub(super) struct Leader<'a> {
    pub(super) inner: &'a Inner,
    /// `None` once it has left.
    lead: Option<ClientLead<'a>>,
    /// They sleep on until this thread sleeps itself, or leaves.
    pub(super) woken: Woken,
}

impl Drop for Leader<'_> {
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() {
            // It may have taken out a frame that another thread waits for.
            let fault = LinkError::Fault("a thread that received here has failed, and has said why".into());
            let _ = contained(|| self.inner.mark_lost(&fault));
        }
        self.lead = None;
        self.woken.wake();
        if let Some(receiver) = self.inner.received.get() {
            receiver.take_over();
        }
    }
}

/// Whether it may have been much work to take in a frame. A failure may be all that is left of a long message.
fn is_work(frame: &Incoming) -> bool {
    frame.payload.len() >= LONG || frame.head.kind == Kind::Error
}

impl Connection {
    /// The next event of a call, if it is here or can be received without waiting.
    #[must_use]
    pub fn try_event(&self, id: CallId) -> Option<Incoming> {
        let inner = self.inner()?;
        let event = inner.table.lock().take(id);
        event.or_else(|| inner.try_lead()?.receive(Some(id)))
    }

    /// Receives what is here, for a caller that sends much and would otherwise not learn that its call has ended.
    pub fn look(&self) {
        if let Some(inner) = self.inner() {
            inner.look();
        }
    }

    /// The refusal of a call that the server has not begun, if that is the call's next event. Taking it ends the call.
    #[must_use]
    pub fn take_unbegun(&self, id: CallId) -> Option<Incoming> {
        let mut table = self.inner()?.table.lock();
        if !table.get(id)?.arrived.front()?.is_unbegun() {
            return None;
        }
        table.take(id)
    }

    /// Whether all that there will be of the call has been received, or was taken.
    #[must_use]
    pub fn has_ended(&self, id: CallId) -> bool {
        self.inner().is_none_or(|inner| inner.table.lock().has_ended(id))
    }

    /// Whether the call is still under way here.
    #[must_use]
    pub fn is_live(&self, id: CallId) -> bool {
        self.inner().is_some_and(|inner| inner.table.lock().get(id).is_some())
    }

    /// The connection is gone: every call under way ends. For a server that receives here.
    pub(crate) fn mark_lost(&self, error: &LinkError) {
        if let Some(inner) = self.inner() {
            inner.mark_lost(error);
        }
    }

    /// The peer is gone: every call under way ends, and new ones fail. What the peer sent before may still be read. For
    /// a server that receives on this connection.
    pub(crate) fn end_calls(&self) {
        if let Some(inner) = self.inner() {
            inner.table.lock().die(&inner.failure_of(&LinkError::Closed), Unbegun::These(&[]));
            inner.tell_loop();
        }
    }
}

impl Inner {
    /// Takes on receiving, if nobody else does.
    #[inline]
    pub(super) fn try_lead(&self) -> Option<Leader<'_>> {
        if self.received.get().is_some() {
            return None;
        }
        let lead = self.receiving.try_lead()?;
        Some(Leader { inner: self, lead: Some(lead), woken: Woken::default() })
    }

    /// Receives what is here, unless somebody receives.
    pub(super) fn look(&self) {
        if let Some(mut leader) = self.try_lead() {
            leader.receive(None);
        }
    }

    /// Delivers a frame. Returns whether `arrived` now holds an event for `mine`. The event is passed by reference,
    /// because moving it would be most of the work.
    #[inline]
    fn deliver(&self, arrived: &mut Option<Incoming>, mine: Option<CallId>, woken: &mut Woken) -> bool {
        match self.deliver_event(arrived, mine, woken) {
            Ok(is_mine) => is_mine,
            Err(malformed) => {
                *arrived = self.broken(malformed, mine);
                arrived.is_some()
            }
        }
    }

    /// Returns whether the event is for `mine`: then it stays in `arrived`. Any other event is taken in or dropped.
    #[inline]
    fn deliver_event(
        &self,
        arrived: &mut Option<Incoming>,
        mine: Option<CallId>,
        woken: &mut Woken,
    ) -> Result<bool, Malformed> {
        let Some(event) = arrived else { return Ok(false) };
        if event.head.flags & flags::BACK != self.side {
            return Err(Malformed("a frame belongs to a call that was never made"));
        }
        match event.head.kind {
            Kind::Release if self.side == 0 => self.exports.release(event)?,
            Kind::Release => return Err(Malformed("a release frame belongs to no call")),
            Kind::Ping => self.answer(event.payload.inline().unwrap_or_default()),
            // The server could not read what came from here, and says why.
            Kind::GoAway if !event.payload.is_empty() => {
                let why = String::from_utf8_lossy(event.payload.inline().unwrap_or_default());
                let what = format!("the server at {} ended the connection: {}", self.name, shown(&why));
                self.end(&Failure::new(Failure::INTERNAL, what));
            }
            // Calls under way go on; the server ends the connection after the last of them.
            Kind::GoAway => {
                self.parted.get_or_init(Instant::now);
                if event.head.flags & flags::LAST != 0 {
                    self.end_with(&self.stopped(), Unbegun::All);
                }
            }
            _ => {
                let is_unread = event.is_unread();
                if !self.exports.is_empty() {
                    self.keep_home(event);
                }
                let mut is_mine = false;
                // Not returned through the lock: as with a frame, it would be read back before it is written.
                self.table.with(woken, |table| table.deliver(arrived, mine).map(|mine| is_mine = mine))?;
                if is_unread {
                    // What was given with the call.
                    let refused = self.table.lock().take_refused();
                    self.exports.take_back(&refused);
                }
                if !is_mine && arrived.is_some() {
                    // The event came after its call had ended here.
                    let to_release = self.table.lock().take_to_release();
                    self.release_given(&to_release);
                }
                return Ok(is_mine);
            }
        }
        Ok(false)
    }

    /// Keeps own objects that may come home in an event, and not with the table's lock held.
    #[inline(never)]
    fn keep_home(&self, event: &mut Incoming) {
        if matches!(event.head.kind, Kind::Reply | Kind::Item)
            && self.table.lock().get(CallId::of(event.head.call)).is_some_and(|call| call.references)
        {
            self.exports.keep_home(event);
        }
    }

    /// The server broke the protocol: the connection is lost. Returns the event with which `mine` ends.
    #[cold]
    fn broken(&self, malformed: Malformed, mine: Option<CallId>) -> Option<Incoming> {
        self.mark_lost(&LinkError::Broken(malformed.0.to_owned()));
        mine.and_then(|id| self.table.lock().take(id))
    }

    /// Answers a ping, unless frames wait to be sent: a server that reads nothing must not make us queue answers.
    #[cold]
    fn answer(&self, ping: &[u8]) {
        if self.link.queued() == 0 {
            let pong = Outgoing::new(Kind::Pong, Body::Whole(ping));
            // If it cannot be sent, the next send finds out why.
            if let Ok(sent @ (Sent::Queued | Sent::LookAgain)) = self.link.send(self.key(NO_CALL), &pong, Room::Later) {
                self.note_queued(sent);
            }
        }
    }

    /// The connection is gone: every call under way ends.
    pub(super) fn mark_lost(&self, error: &LinkError) {
        // Asked before the link is closed: a closed link cannot say it.
        let mut unsent = self.link.ledger().map_or_else(Vec::new, Ledger::never_sent);
        unsent.sort_unstable();
        self.end_with(&self.failure_of(error), Unbegun::These(&unsent));
    }

    /// The server stopped in good order.
    pub(super) fn stopped(&self) -> Failure {
        Failure::new(Failure::UNAVAILABLE, format!("the server at {} has stopped", self.name))
    }

    fn failure_of(&self, error: &LinkError) -> Failure {
        let (name, other) = (&self.name, self.other());
        match error {
            LinkError::Closed => Failure::new(
                Failure::UNAVAILABLE,
                format!("the connection to {name} was lost: the {other} stopped or died"),
            ),
            LinkError::Exhausted(what) => {
                Failure::new(Failure::RESOURCE_EXHAUSTED, format!("the connection to {name} was given up: {what}"))
            }
            error => Failure::new(Failure::INTERNAL, format!("the connection to {name} is broken: {error}")),
        }
    }

    /// Ends every call under way, and the connection.
    pub(super) fn end(&self, failure: &Failure) {
        self.end_with(failure, Unbegun::These(&[]));
    }

    /// Like `end`, where the peer has not begun the calls in `unbegun`.
    fn end_with(&self, failure: &Failure, unbegun: Unbegun<'_>) {
        {
            // Within the lock: a call that the table refuses must find the connection lost, so that it may try another
            // one.
            let mut table = self.table.lock();
            table.die(failure, unbegun);
            self.lost.store(true, Ordering::Release);
        }
        self.link.close();
        self.exports.end();
        if self.received.get().is_some() {
            self.tell_loop();
        }
    }
}

impl Leader<'_> {
    /// Receives what is here and delivers it. Stops at, and returns, an event for `mine`. A server that never stops sending
    /// does not keep the caller for ever.
    pub(super) fn receive(&mut self, mine: Option<CallId>) -> Option<Incoming> {
        let mut begun = None;
        let mut turn_is_over = || begun.get_or_insert_with(Instant::now).elapsed() >= LONGEST_TURN;
        for _ in 0..MOST_FRAMES {
            let mut arrived = None;
            match self.inner.link.try_receive_part(&mut arrived) {
                Ok(()) if arrived.is_none() => return None,
                Ok(()) => {
                    let is_work = arrived.as_ref().is_some_and(is_work);
                    if self.deliver(&mut arrived, mine) {
                        return arrived;
                    }
                    if is_work && turn_is_over() {
                        return None;
                    }
                }
                Err(LinkError::Unfinished) if turn_is_over() => return None,
                Err(LinkError::Unfinished) => {}
                Err(error) => {
                    self.inner.mark_lost(&error);
                    return mine.and_then(|id| self.inner.table.lock().take(id));
                }
            }
        }
        None
    }

    /// Delivers a frame. Returns whether `arrived` now holds an event for `mine`.
    #[inline]
    pub(super) fn deliver(&mut self, arrived: &mut Option<Incoming>, mine: Option<CallId>) -> bool {
        self.inner.deliver(arrived, mine, &mut self.woken)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::{Arc, OnceLock};

    use super::*;
    use crate::chosen_link::{Chosen, Faulty};
    use crate::client::Expected;
    use crate::exports::Exports;

    #[test]
    fn a_fault_of_the_thread_that_receives_ends_the_calls_of_all() {
        let link = Chosen::new(VecDeque::new());
        let (name, exports) = ("here".to_owned(), Exports::new());
        let connection = Connection::of(Arc::clone(&link) as _, None, name, 0, exports, OnceLock::new());
        let begin = || connection.begin(&Outgoing::new(Kind::Call, Body::Whole(&[])), Expected::default());
        let (first, second) = (begin().expect("it is sent"), begin().expect("it is sent"));
        *link.faulty.lock() = Faulty::Reading;
        let mut slot = None;
        assert!(contained(|| connection.next_event(first, None, &mut slot, &mut || true)).is_err());
        *link.faulty.lock() = Faulty::Nothing;
        let soon = Instant::now() + Duration::from_secs(2);
        assert_eq!(connection.next_event(second, Some(soon), &mut slot, &mut || true), Ok(()));
        assert_eq!(slot.expect("its end").head.kind, Kind::Error);
    }
}
