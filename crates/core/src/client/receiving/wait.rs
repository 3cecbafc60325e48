//! How a thread waits for something of its calls, whatever that is: it [leads](Leader), and receives for all who wait; it sleeps
//! while another thread does; or, where a server receives, it receives for the server.

use std::thread;
use std::time::{Duration, Instant};

use nearcall_platform::clock::is_past;
use nearcall_transport::{Incoming, LONGEST_SLEEP, LinkError, Outgoing, Room, Sent};

use crate::client::connection::Awaited;
use crate::client::connection::{Connection, Expected, Inner, NoEvent};
use crate::client::receiving::Leader;
use crate::client::table::{CallId, Table};

/// How long a thread waits before it looks whether a signal wants its attention.
pub(super) const SIGNAL_CHECK: Duration = Duration::from_millis(50);

/// What a thread waits for.
pub(in crate::client) enum For<'a> {
    /// The next event of a call. It is put into the empty slot: to move it would be much of the work.
    Event(CallId, &'a mut Option<Incoming>),
    /// The end of one of these calls. No frame of theirs is taken.
    End(&'a [CallId]),
    /// Credit for an item of the call's stream, or the call's end.
    Credit(CallId),
    /// The next event of a call, which stays where it is.
    News(CallId),
}

impl For<'_> {
    fn calls(&self) -> &[CallId] {
        match self {
            Self::Event(id, _) | Self::Credit(id) | Self::News(id) => std::slice::from_ref(id),
            Self::End(ids) => ids,
        }
    }

    /// How the wait ends, if it does.
    #[inline]
    fn look(&mut self, table: &mut Table) -> Option<Result<(), NoEvent>> {
        match self {
            Self::Event(id, slot) => match table.get(*id) {
                Some(call) if call.arrived.is_empty() => None,
                Some(_) => {
                    **slot = table.take(*id);
                    Some(Ok(()))
                }
                None => Some(Err(NoEvent::Ended)),
            },
            Self::End(ids) => table.any_has_ended(ids).then_some(Ok(())),
            Self::Credit(id) => table.is_ready(*id, true).then_some(Ok(())),
            Self::News(id) => table.is_ready(*id, false).then_some(Ok(())),
        }
    }
}

/// A thread that waits.
struct Waiting<'a> {
    connection: &'a Inner,
    what: For<'a>,
    deadline: Option<Instant>,
    /// When the wait began. The clock is read only after the first look has found nothing.
    begun: Option<Instant>,
    over: Option<Result<(), NoEvent>>,
}

impl Inner {
    /// Waits. The only function that does, but for those that wait [for room](Self::blocked), or at [several
    /// connections](super::several). After a signal, and every 50 ms, it asks `go_on` whether to go on.
    ///
    /// # Errors
    /// [`NoEvent`], but not [`NoEvent::Inherited`].
    #[inline]
    pub(in crate::client) fn wait(
        &self,
        what: For<'_>,
        deadline: Option<Instant>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), NoEvent> {
        let mut waiting = Waiting { connection: self, what, deadline, begun: None, over: None };
        loop {
            if let Some(leader) = self.try_lead() {
                leader.lead(&mut waiting);
            } else if let Some(receiver) = self.received.get() {
                if !waiting.look() {
                    let slice = waiting.slice();
                    receiver.wait(&mut waiting, slice);
                    waiting.is_over();
                }
            } else {
                waiting.sleep();
            }
            match waiting.over {
                None => {}
                // Nothing is held now that another thread could want.
                Some(Err(NoEvent::Interrupted)) if go_on() => (waiting.over, waiting.begun) = (None, None),
                Some(over) => return over,
            }
        }
    }
}

impl Leader<'_> {
    /// Receives for all, until the wait is over or a server is to receive.
    #[inline]
    fn lead(mut self, waiting: &mut Waiting<'_>) {
        if waiting.look() {
            return;
        }
        loop {
            let until = waiting.deadline.map(|deadline| deadline.min(Instant::now() + LONGEST_SLEEP));
            let mut other = None;
            let (mine, slot) = match &mut waiting.what {
                For::Event(id, slot) if waiting.begun.is_none() => (Some(*id), &mut **slot),
                // Where others get frames, too, all that is here is taken in before this thread leaves.
                _ => (None, &mut other),
            };
            match self.inner.link.receive(until, slot) {
                // The usual case: what comes is for this thread, and does not go through the table.
                Ok(()) if self.deliver(slot, mine) => {
                    waiting.over = Some(Ok(()));
                    return;
                }
                Ok(()) => {}
                Err(LinkError::Interrupted) => {
                    waiting.over = Some(Err(NoEvent::Interrupted));
                    return;
                }
                Err(error) => self.inner.mark_lost(&error),
            }
            *slot = None;
            self.receive(None);
            if waiting.is_over() {
                return;
            }
            self.woken.wake();
            if self.inner.received.get().is_some() {
                return;
            }
        }
    }
}

impl Waiting<'_> {
    /// Looks in the table whether the wait is over.
    #[inline]
    fn look(&mut self) -> bool {
        if self.over.is_none() {
            self.over = self.what.look(&mut self.connection.table.lock());
        }
        self.over.is_some()
    }

    /// How long the thread may sleep now: until its deadline, or its next look at signals. Reads no clock in a wait that begins
    /// now and has no deadline.
    fn slice(&self) -> Duration {
        if self.begun.is_none() && self.deadline.is_none() {
            return SIGNAL_CHECK;
        }
        let now = Instant::now();
        let end = self.begun.unwrap_or(now) + SIGNAL_CHECK;
        self.deadline.map_or(end, |deadline| deadline.min(end)).saturating_duration_since(now)
    }
}

impl Awaited for Waiting<'_> {
    fn is_over(&mut self) -> bool {
        if self.look() {
            return true;
        }
        let now = Instant::now();
        let begun = *self.begun.get_or_insert(now);
        if is_past(self.deadline) {
            self.over = Some(Err(NoEvent::DeadlinePassed));
        } else if now - begun >= SIGNAL_CHECK {
            self.over = Some(Err(NoEvent::Interrupted));
        }
        self.over.is_some()
    }

    #[inline]
    fn take_in(&mut self, arrived: &mut Option<Incoming>) -> bool {
        let mine = if let For::Event(id, _) = self.what { Some(id) } else { None };
        if !self.connection.take_in_for(arrived, mine) {
            return self.is_over();
        }
        if let For::Event(_, slot) = &mut self.what {
            **slot = arrived.take();
        }
        self.over = Some(Ok(()));
        true
    }

    fn sleep(&mut self) -> bool {
        let (table, me) = (&self.connection.table, thread::current());
        {
            let mut table = table.lock();
            // This thread was not woken for what came before it was in the table.
            self.over = self.over.take().or_else(|| self.what.look(&mut table));
            if self.over.is_none() {
                table.wait(self.what.calls(), &me);
            }
        }
        if self.over.is_none() {
            self.begun.get_or_insert_with(Instant::now);
            let slice = self.slice();
            match self.connection.received.get() {
                Some(_) => thread::park_timeout(slice),
                None => self.connection.receiving.follow(slice),
            }
            table.lock().stop_waiting(self.what.calls(), me.id());
        }
        let over = self.is_over();
        if over {
            self.connection.receiving.pass_on();
        }
        over
    }
}

impl Connection {
    /// Waits for the next event of a call, and puts it into an empty slot: to move it would be much of the work. After a signal,
    /// and every 50 ms, it asks `go_on` whether to go on.
    ///
    /// # Errors
    /// [`NoEvent`]; then the slot stays empty.
    #[inline]
    pub fn next_event(
        &self,
        id: CallId,
        deadline: Option<Instant>,
        slot: &mut Option<Incoming>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), NoEvent> {
        self.inner().ok_or(NoEvent::Inherited)?.wait(For::Event(id, slot), deadline, go_on)
    }

    /// Waits until there is credit for an item of the call's stream, or the call has ended. After a signal, and every 50 ms, it asks
    /// `go_on` whether to go on.
    ///
    /// # Errors
    /// [`NoEvent`].
    pub fn await_credit(
        &self,
        id: CallId,
        deadline: Option<Instant>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), NoEvent> {
        self.inner().ok_or(NoEvent::Inherited)?.wait(For::Credit(id), deadline, go_on)
    }

    /// Waits until there is an event of a call, or the call has ended, for another thread to take it. After a signal, and every
    /// 50 ms, it asks `go_on` whether to go on.
    ///
    /// # Errors
    /// [`NoEvent`], but not [`NoEvent::Ended`].
    pub fn await_news(
        &self,
        id: CallId,
        deadline: Option<Instant>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), NoEvent> {
        self.inner().ok_or(NoEvent::Inherited)?.wait(For::News(id), deadline, go_on)
    }

    /// Sends a call, and puts its first event into an empty slot if that comes before the thread would sleep. For a
    /// caller that gives something up before it sleeps, and takes it back afterwards.
    ///
    /// The thread leads from before it sends, so nobody else can have received the event.
    ///
    /// Returns `None` if nothing was sent: there is no room, another thread receives, the connection is no shared memory
    /// or cannot be used. [`Connection::begin`] then says why, or waits.
    #[inline]
    pub fn call_at_once(
        &self,
        request: &Outgoing<'_>,
        expected: Expected<'_>,
        deadline: Option<Instant>,
        slot: &mut Option<Incoming>,
    ) -> Option<CallId> {
        let inner = self.inner()?;
        let memory = inner.memory.as_ref().filter(|memory| !memory.is_stale())?;
        let mut leader = inner.try_lead()?;
        let id = inner.table.lock().begin(false, expected.references, expected.given).ok()?;
        match memory.send(inner.key(id.number()), request, Room::Now) {
            Ok(Sent::Out) => {}
            Ok(sent) => inner.note_queued(sent),
            Err(_) => {
                // What others had queued before it may be out.
                inner.note_room_made();
                inner.take_back_call(id, expected.given);
                return None;
            }
        }
        match memory.receive_soon(deadline, slot) {
            // What came is not for this call.
            Ok(()) if !leader.deliver(slot, Some(id)) => *slot = None,
            Ok(()) | Err(LinkError::Unfinished) => {}
            Err(error) => inner.mark_lost(&error),
        }
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, OnceLock};

    use nearcall_transport::Body;
    use nearcall_wire::{FrameHead, Kind, flags};

    use super::*;
    use crate::chosen_link::Chosen;
    use crate::exports::Exports;

    /// A connection over shared memory, by which these frames have come.
    fn connected(frames: impl IntoIterator<Item = Incoming>) -> (Arc<Chosen>, Arc<Connection>) {
        connected_by(Chosen::over_memory(frames.into_iter().collect()))
    }

    fn connected_by(link: Arc<Chosen>) -> (Arc<Chosen>, Arc<Connection>) {
        let (name, exports) = ("here".to_owned(), Exports::new());
        let connection = Connection::of(Arc::clone(&link) as _, None, name, 0, exports, OnceLock::new());
        (link, connection)
    }

    fn call(connection: &Connection, slot: &mut Option<Incoming>) -> Option<CallId> {
        connection.call_at_once(&Outgoing::new(Kind::Call, Body::Whole(&[])), Expected::default(), None, slot)
    }

    /// The number of the first call of a connection.
    fn first_number() -> u32 {
        let (_, connection) = connected([]);
        call(&connection, &mut None).expect("it is sent").number()
    }

    fn reply(number: u32) -> Incoming {
        Incoming::new(FrameHead::new(Kind::Reply, number), b"well")
    }

    #[test]
    fn a_reply_that_is_here_ends_the_call() {
        let (_, connection) = connected([reply(first_number())]);
        let mut slot = None;
        assert!(call(&connection, &mut slot).is_some());
        assert_eq!(slot.expect("a reply").head.kind, Kind::Reply);
        assert_eq!(connection.in_flight(), 0);
    }

    #[test]
    fn news_are_waited_for_and_left_where_they_are() {
        let (link, connection) = connected([Incoming::new(FrameHead::new(Kind::Pong, 77), &[])]);
        let id = call(&connection, &mut None).expect("it is sent");
        let passed = connection.await_news(id, Some(Instant::now()), &mut || true);
        assert_eq!(passed, Err(NoEvent::DeadlinePassed));
        link.frames.lock().push_back(reply(id.number()));
        assert_eq!(connection.await_news(id, None, &mut || true), Ok(()));
        assert_eq!(connection.await_news(id, None, &mut || true), Ok(()), "it is still there");
        assert!(matches!(connection.arrived(id), Ok(Some(_))));
        assert_eq!(connection.await_news(id, None, &mut || true), Ok(()), "the call has ended");
    }

    #[test]
    fn a_call_whose_reply_is_late_goes_on() {
        let (link, connection) = connected([Incoming::new(FrameHead::new(Kind::Pong, 77), &[])]);
        let mut slot = None;
        let id = call(&connection, &mut slot).expect("it is sent");
        assert!(slot.is_none(), "what came is not for the call");
        link.frames.lock().push_back(reply(id.number()));
        assert!(connection.try_event(id).is_some());
        assert_eq!(connection.in_flight(), 0);
    }

    #[test]
    fn a_server_that_breaks_the_protocol_ends_the_call() {
        let mut back = FrameHead::new(Kind::Reply, 0);
        back.flags = flags::BACK;
        let back = Incoming::new(back, &[]);
        let (_, connection) = connected([back]);
        let mut slot = None;
        assert!(call(&connection, &mut slot).is_some());
        assert_eq!(slot.expect("its end").head.kind, Kind::Error);
        assert!(connection.is_dead());
    }

    #[test]
    fn a_call_that_cannot_be_sent_at_once_leaves_nothing() {
        let (link, connection) = connected([]);
        let lead = connection.inner().expect("its own process").try_lead();
        assert!(call(&connection, &mut None).is_none(), "another thread receives");
        drop(lead);
        *link.broken.lock() = true;
        assert!(call(&connection, &mut None).is_none(), "it cannot be sent");
        assert!(!connection.is_dead(), "to be said by who sends it next");
        *link.broken.lock() = false;
        let (_, over_socket) = connected_by(Chosen::new([].into()));
        assert!(call(&over_socket, &mut None).is_none(), "a socket");
        assert_eq!(over_socket.in_flight(), 0);
        assert_eq!(connection.in_flight(), 0);
        connection.close(None);
        assert!(call(&connection, &mut None).is_none(), "it is closed");
        let soon = Instant::now() + Duration::from_secs(1);
        assert_eq!(connection.next_event(CallId::of(0), Some(soon), &mut None, &mut || true), Err(NoEvent::Ended));
    }
}
