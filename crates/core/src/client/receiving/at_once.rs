//! Calls over shared memory whose reply comes before their thread would sleep.

use std::time::Instant;

use nearcall_transport::{Incoming, LinkError, Outgoing, Room, Sent};

use crate::client::connection::{Connection, Expected};
use crate::client::table::slots::CallId;
use crate::client::table::waker::Waker;

impl Connection {
    /// Sends a call, and puts its first event into an empty place if that comes before the thread would sleep. For a
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
        place: &mut Option<Incoming>,
    ) -> Option<CallId> {
        let inner = self.inner()?;
        let memory = inner.memory.as_ref().filter(|memory| !memory.is_stale())?;
        let _lead = inner.try_lead()?;
        let id = inner.table.lock().begin(Waker::None, expected.references, expected.given).ok()?;
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
        match memory.receive_soon(deadline, place) {
            // What came is not for this call.
            Ok(()) if !inner.deliver(place, Some(id)) => *place = None,
            Ok(()) | Err(LinkError::Unfinished) => {}
            Err(error) => inner.mark_lost(&error),
        }
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, OnceLock};
    use std::time::Duration;

    use nearcall_transport::Body;
    use nearcall_wire::{FrameHead, Kind, flags};

    use super::*;
    use crate::chosen_link::Chosen;
    use crate::client::NoEvent;
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

    fn call(connection: &Connection, place: &mut Option<Incoming>) -> Option<CallId> {
        connection.call_at_once(&Outgoing::new(Kind::Call, Body::Whole(&[])), Expected::default(), None, place)
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
        let mut place = None;
        assert!(call(&connection, &mut place).is_some());
        assert_eq!(place.expect("a reply").head.kind, Kind::Reply);
        assert_eq!(connection.in_flight(), 0);
    }

    #[test]
    fn a_call_whose_reply_is_late_goes_on() {
        let (link, connection) = connected([Incoming::new(FrameHead::new(Kind::Pong, 77), &[])]);
        let mut place = None;
        let id = call(&connection, &mut place).expect("it is sent");
        assert!(place.is_none(), "what came is not for the call");
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
        let mut place = None;
        assert!(call(&connection, &mut place).is_some());
        assert_eq!(place.expect("its end").head.kind, Kind::Error);
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
        assert_eq!(connection.next_event(CallId::of(0), Some(soon)).err(), Some(NoEvent::Ended));
    }
}
