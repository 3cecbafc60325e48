//! Receiving: a thread that waits for a reply receives for all waiting threads, and hands the task on when its own
//! reply has come.

pub(in crate::client) mod at_once;
pub(in crate::client) mod first;
pub(in crate::client) mod received;
mod signalled;

use crate::sync::Ordering;
use std::time::{Duration, Instant};

use nearcall_platform::clock::is_past;
use nearcall_platform::fault::contained;
use nearcall_transport::{Body, Incoming, LONGEST_SLEEP, Ledger, LinkError, Outgoing, Room, Sent};
use nearcall_wire::{Failure, Kind, Malformed, flags, shown};

use super::connection::{Connection, Inner, NoEvent};
use super::table::{Table, Unbegun};
use crate::client::table::leadership::Lead;
use crate::client::table::shared_table::SharedTable;
use crate::client::table::slots::CallId;

/// How long a thread sleeps before it looks whether a signal wants its attention.
pub(super) const SIGNAL_CHECK: Duration = Duration::from_millis(50);

/// How long a thread may sleep now that waits until `deadline`: no longer than until its next look at signals.
pub(super) fn slice_until(deadline: Option<Instant>) -> Duration {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    left.map_or(SIGNAL_CHECK, |left| left.min(SIGNAL_CHECK))
}

/// Frames taken in before a thread looks at its deadline again, or an event loop at what else it has to do.
const MOST_FRAMES: usize = 1024;
/// The same for frames that are much work: parts of long ones, and those that are long.
const LONGEST_TURN: Duration = Duration::from_millis(1);
/// Bytes of a payload from which on a frame is much work.
const LONG: usize = 16 << 10;

/// Held by the receiving thread. Dropping it lets another thread receive, and wakes the threads for which something
/// came.
pub(super) struct Leading<'a> {
    // In this order: fields are dropped as they are declared.
    _breaks: Breaks<'a>,
    _lead: Lead<'a>,
    _wakes: Wakes<'a>,
    _leaves: Leaves<'a>,
}

/// When dropped by a panic, ends the connection: the leader may have taken out a frame that another thread waits for.
struct Breaks<'a>(&'a Inner);

impl Drop for Breaks<'_> {
    #[inline]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let fault = LinkError::Fault("a thread that received here has failed, and has said why".into());
            let _ = contained(|| self.0.mark_lost(&fault));
        }
    }
}

/// When dropped, tells the server that is to receive from now on, if there is one.
struct Leaves<'a>(&'a Inner);

impl Drop for Leaves<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(receiver) = self.0.received.get() {
            receiver.take_over();
        }
    }
}

struct Wakes<'a>(&'a SharedTable);

impl Drop for Wakes<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.wake();
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
        if let Some(event) = inner.table.lock().take(id) {
            return Some(event);
        }
        let _lead = inner.try_lead()?;
        inner.receive(Some(id))
    }

    /// Receives what is here, for a caller that sends much and would otherwise not learn that its call has ended.
    pub fn look(&self) {
        if let Some(inner) = self.inner() {
            inner.look();
        }
    }

    /// Waits for the next event of a call.
    ///
    /// # Errors
    /// [`NoEvent`].
    pub fn next_event(&self, id: CallId, deadline: Option<Instant>) -> Result<Incoming, NoEvent> {
        let mut place = None;
        self.next_event_in(id, deadline, &mut place)?;
        Ok(place.expect("there is an event"))
    }

    /// Waits for the next event of a call, and puts it into an empty place: to move it would be much of the work.
    ///
    /// # Errors
    /// [`NoEvent`]; then the place stays empty.
    #[inline]
    pub fn next_event_in(
        &self,
        id: CallId,
        deadline: Option<Instant>,
        place: &mut Option<Incoming>,
    ) -> Result<(), NoEvent> {
        self.inner().ok_or(NoEvent::Inherited)?.next_event(id, deadline, place)
    }

    /// For an event loop: receives all that is here, and returns the loop's calls for which something came.
    pub fn pump(&self) -> Vec<CallId> {
        let Some(inner) = self.inner() else { return Vec::new() };
        inner.look();
        if inner.link.queued() > 0 {
            // The peer has given credit for more than there was room for. A loop sleeps without a look at that.
            inner.note_queued(Sent::Queued);
        }
        inner.table.lock().take_ready()
    }

    /// For an event loop: the link said that the peer hung up.
    pub fn notice_loss(&self) {
        if let Some(inner) = self.inner() {
            inner.notice_loss();
        }
    }

    /// For an event loop: spins for a moment, as a thread would before it sleeps. Returns whether it pays to look
    /// again.
    #[must_use]
    pub fn spin(&self) -> bool {
        self.inner().is_some_and(|inner| inner.try_lead().is_some_and(|_lead| inner.link.spin()))
    }

    /// The event of a call that [`Connection::pump`] has already received, if there is one.
    ///
    /// # Errors
    /// [`NoEvent::Ended`] if the call is not under way, [`NoEvent::Inherited`].
    pub fn arrived(&self, id: CallId) -> Result<Option<Incoming>, NoEvent> {
        let mut table = self.inner().ok_or(NoEvent::Inherited)?.table.lock();
        match table.take(id) {
            None if table.get(id).is_none() => Err(NoEvent::Ended),
            event => Ok(event),
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

    /// Whether an event of the call has been received and waits to be taken, or will never come.
    #[must_use]
    pub fn has_arrived(&self, id: CallId) -> bool {
        self.inner().is_none_or(|inner| inner.table.lock().get(id).is_none_or(|call| !call.arrived.is_empty()))
    }

    /// Whether an item of the call's stream may be sent now, or the call has ended.
    #[must_use]
    pub fn has_room(&self, id: CallId) -> bool {
        let Some(inner) = self.inner() else { return true };
        let mut table = inner.table.lock();
        table.get(id).is_none_or(|call| call.credit > 0 || call.ended)
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
    pub(super) fn try_lead(&self) -> Option<Leading<'_>> {
        if self.received.get().is_some() {
            return None;
        }
        let lead = self.receiving.try_lead()?;
        Some(Leading { _breaks: Breaks(self), _lead: lead, _wakes: Wakes(&self.table), _leaves: Leaves(self) })
    }

    /// Receives what is here, unless somebody receives.
    pub(super) fn look(&self) {
        if let Some(_lead) = self.try_lead() {
            self.receive(None);
        }
    }

    #[inline]
    fn next_event(&self, id: CallId, deadline: Option<Instant>, place: &mut Option<Incoming>) -> Result<(), NoEvent> {
        // The usual case first: this thread receives, and what comes is for it.
        if let Some(lead) = self.try_lead() {
            {
                let mut table = self.table.lock();
                let Some(call) = table.get(id) else { return Err(NoEvent::Ended) };
                if !call.arrived.is_empty() {
                    *place = table.take(id);
                    return Ok(());
                }
            }
            let until = deadline.map(|deadline| deadline.min(Instant::now() + LONGEST_SLEEP));
            let received = match self.link.receive(until, place) {
                Ok(()) if self.deliver(place, Some(id)) => return Ok(()),
                Ok(()) => Ok(()),
                Err(LinkError::Interrupted) => Err(NoEvent::Interrupted),
                Err(error) => {
                    self.mark_lost(&error);
                    Ok(())
                }
            };
            // What came is not for this call.
            *place = None;
            drop(lead);
            received?;
        }
        *place = Some(self.until(&[id], deadline, Some(Ok), |table| match table.take(id) {
            Some(event) => Some(Ok(event)),
            None if table.get(id).is_none() => Some(Err(NoEvent::Ended)),
            None => None,
        })??);
        Ok(())
    }

    pub(super) fn notice_loss(&self) {
        // Take in what the peer sent before it hung up.
        self.look();
        self.mark_lost(&LinkError::Closed);
    }

    /// Receives what is here and delivers it. Stops at, and returns, an event for `mine`. A server that never stops sending
    /// does not keep the caller for ever.
    pub(super) fn receive(&self, mine: Option<CallId>) -> Option<Incoming> {
        let mut begun = None;
        let mut turn_is_over = || begun.get_or_insert_with(Instant::now).elapsed() >= LONGEST_TURN;
        for _ in 0..MOST_FRAMES {
            let mut arrived = None;
            match self.link.try_receive_part(&mut arrived) {
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
                    self.mark_lost(&error);
                    return mine.and_then(|id| self.table.lock().take(id));
                }
            }
        }
        None
    }

    /// Delivers a frame. Returns whether `arrived` now holds an event for `mine`. The event is passed by reference,
    /// because moving it would be most of the work.
    #[inline]
    pub(super) fn deliver(&self, arrived: &mut Option<Incoming>, mine: Option<CallId>) -> bool {
        match self.deliver_event(arrived, mine) {
            Ok(is_mine) => is_mine,
            Err(malformed) => {
                *arrived = self.broken(malformed, mine);
                arrived.is_some()
            }
        }
    }

    /// Returns whether the event is for `mine`: then it stays in `arrived`. Any other event is taken in or dropped.
    #[inline]
    pub(super) fn deliver_event(
        &self,
        arrived: &mut Option<Incoming>,
        mine: Option<CallId>,
    ) -> Result<bool, Malformed> {
        let Some(event) = arrived else { return Ok(false) };
        if event.head.flags & flags::BACK != self.side {
            return Err(Malformed("a frame belongs to a call that was never made"));
        }
        match event.head.kind {
            Kind::Release if self.side == 0 => self.exports.release(event)?,
            Kind::Release => return Err(Malformed("a release frame belongs to no call")),
            Kind::Ping => self.answer(event.payload.inline().unwrap_or_default()),
            // Calls under way go on; the server ends the connection after the last of them.
            Kind::GoAway if !event.payload.is_empty() => {
                let why = String::from_utf8_lossy(event.payload.inline().unwrap_or_default()).into_owned();
                self.end_with(&self.sent_away(&why), Unbegun::These(&[]));
            }
            Kind::GoAway => {
                self.parted.get_or_init(Instant::now);
                self.going_away.store(true, Ordering::Relaxed);
                if event.head.flags & flags::LAST != 0 {
                    self.end_with(&self.stopped(), Unbegun::All);
                }
            }
            kind => {
                let mut is_mine = false;
                if event.is_unread() {
                    is_mine = self.deliver_refusal(arrived, mine)?;
                } else if !self.exports.is_empty() && matches!(kind, Kind::Reply | Kind::Item) {
                    is_mine = self.deliver_home(arrived, mine)?;
                } else {
                    // Not returned through the lock: as with a frame, it would be read back before it is written.
                    self.table.leading(|table| table.deliver(arrived, mine).map(|mine| is_mine = mine))?;
                }
                if !is_mine && arrived.is_some() {
                    // The event came after its call had ended here.
                    let unread = self.table.lock().take_unread();
                    self.release_given(&unread);
                }
                return Ok(is_mine);
            }
        }
        Ok(false)
    }

    /// Delivers an event in which own objects may come home: those are kept, and not with the table's lock held.
    #[inline(never)]
    fn deliver_home(&self, arrived: &mut Option<Incoming>, mine: Option<CallId>) -> Result<bool, Malformed> {
        let Some(event) = arrived else { return Ok(false) };
        let id = CallId::of(event.head.call);
        let delivered = self.table.leading(|table| {
            let brings_home = table.get(id).is_some_and(|call| call.references);
            (!brings_home).then(|| table.deliver(arrived, mine))
        });
        delivered.unwrap_or_else(|| {
            if let Some(event) = arrived {
                self.exports.keep_home(event);
            }
            self.table.leading(|table| table.deliver(arrived, mine))
        })
    }

    /// Delivers an error with `UNREAD`, and takes back the references given with the call.
    #[cold]
    fn deliver_refusal(&self, arrived: &mut Option<Incoming>, mine: Option<CallId>) -> Result<bool, Malformed> {
        let (delivered, refused) = self.table.leading(|table| (table.deliver(arrived, mine), table.take_refused()));
        self.exports.take_back(&refused);
        delivered
    }

    /// The server broke the protocol: the connection is lost. Returns the event with which `mine` ends.
    #[cold]
    pub(super) fn broken(&self, malformed: Malformed, mine: Option<CallId>) -> Option<Incoming> {
        self.mark_lost(&LinkError::Broken(malformed.0.to_owned()));
        mine.and_then(|id| self.table.lock().take(id))
    }

    /// Answers a ping, unless frames wait to be sent: a server that reads nothing must not make us queue answers.
    #[cold]
    fn answer(&self, ping: &[u8]) {
        if self.link.queued() == 0 {
            let pong = Outgoing::new(Kind::Pong, Body::Whole(ping));
            // If it cannot be sent, the next send finds out why.
            if let Ok(sent @ (Sent::Queued | Sent::QueuedAnew)) = self.link.send(self.key(u32::MAX), &pong, Room::Later)
            {
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

    /// The server could not read what came from here, and said why.
    fn sent_away(&self, why: &str) -> Failure {
        Failure::new(Failure::INTERNAL, format!("the server at {} ended the connection: {}", self.name, shown(why)))
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

    /// Waits until `check` finds in the table what the caller wants of these calls: receives, or sleeps while another thread
    /// does. If that is the next event of the one call there is, `of_event` makes it of an event that need not go through
    /// the table.
    pub(super) fn until<T>(
        &self,
        ids: &[CallId],
        deadline: Option<Instant>,
        of_event: Option<fn(Incoming) -> T>,
        mut check: impl FnMut(&mut Table) -> Option<T>,
    ) -> Result<T, NoEvent> {
        loop {
            if let Some(receiver) = self.received.get() {
                return self.until_received(&**receiver, ids, deadline, of_event, check);
            }
            if let Some(_lead) = self.try_lead() {
                return self.lead(deadline, &mut check);
            }
            if let Some(ended) = self.follow(ids, deadline, &mut check).transpose() {
                self.receiving.pass_on();
                return ended;
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
            if let Some(found) = self.table.leading(&mut *check) {
                return Ok(found);
            }
            self.table.wake();
            if self.received.get().is_some() {
                // A server receives from now on.
                return Err(NoEvent::Interrupted);
            }
            if is_past(deadline) {
                return Err(NoEvent::DeadlinePassed);
            }
            // Without a deadline the link wakes by itself after `LONGEST_SLEEP`.
            let slice = deadline.map(|deadline| deadline.min(Instant::now() + LONGEST_SLEEP));
            let mut arrived = None;
            match self.link.receive(slice, &mut arrived) {
                Ok(()) if arrived.is_some() => {
                    self.deliver(&mut arrived, None);
                }
                // A signal that came just before the thread went to sleep has not interrupted the sleep.
                Ok(()) if begun.elapsed() >= SIGNAL_CHECK => return Err(NoEvent::Interrupted),
                Ok(()) => {}
                Err(LinkError::Interrupted) => return Err(NoEvent::Interrupted),
                Err(error) => self.mark_lost(&error),
            }
        }
    }

    /// Sleeps until something was delivered for one of the calls, or nobody receives any more.
    fn follow<T>(
        &self,
        ids: &[CallId],
        deadline: Option<Instant>,
        check: &mut impl FnMut(&mut Table) -> Option<T>,
    ) -> Result<Option<T>, NoEvent> {
        let me = std::thread::current();
        {
            let mut table = self.table.lock();
            if let Some(found) = check(&mut table) {
                return Ok(Some(found));
            }
            table.wait(ids, &me);
        }
        let woken = self.receiving.follow(slice_until(deadline));
        let found = {
            let mut table = self.table.lock();
            table.stop_waiting(ids, me.id());
            check(&mut table)
        };
        match found {
            Some(found) => Ok(Some(found)),
            None if is_past(deadline) => Err(NoEvent::DeadlinePassed),
            None if woken => Ok(None),
            None => Err(NoEvent::Interrupted),
        }
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
        assert!(contained(|| connection.next_event(first, None)).is_err());
        *link.faulty.lock() = Faulty::Nothing;
        let soon = Instant::now() + Duration::from_secs(2);
        let event = connection.next_event(second, Some(soon)).expect("it has ended");
        assert_eq!(event.head.kind, Kind::Error);
    }
}
