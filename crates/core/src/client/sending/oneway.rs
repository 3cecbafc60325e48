//! Calls without a reply, and what becomes of them when there is no room to send.

use nearcall_transport::{LinkError, Outgoing, Room, Sent};
use nearcall_wire::Failure;

use crate::client::Connection;
use crate::client::table::NO_CALL;

/// What became of a one-way call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passed {
    /// It is in the transport's hands.
    Sent,
    /// A socket took a part of it, and a thread sends the rest.
    Begun,
    /// There was no room. Nothing was sent.
    NoRoom,
}

impl Connection {
    /// Sends a call without a reply. Before each short wait for room it asks `go_on` whether to wait; without `go_on`
    /// it never waits.
    ///
    /// # Errors
    /// The failure, if it could not be sent for another reason than a lack of room.
    pub fn send_oneway(
        &self,
        request: &Outgoing<'_>,
        go_on: Option<&mut dyn FnMut() -> bool>,
    ) -> Result<Passed, Failure> {
        let inner = self.inner_or_failure()?;
        inner.listen_first()?;
        if let Some(failure) = &inner.table.lock().dead {
            return Err(failure.clone());
        }
        let waits = go_on.is_some();
        let sent = match go_on {
            Some(go_on) => {
                let mut blocked = || if go_on() { inner.blocked(None) } else { Err(LinkError::Full) };
                inner.link.send(inner.key(NO_CALL), request, Room::Wait(&mut blocked))
            }
            None => inner.link.send(inner.key(NO_CALL), request, Room::Now),
        };
        match sent {
            Ok(Sent::Out) => Ok(Passed::Sent),
            Ok(sent) => {
                inner.note_queued(sent);
                Ok(Passed::Begun)
            }
            Err(LinkError::Full) => {
                if waits {
                    // What others had queued may be out. A sender that does not wait has asked the reader to tell of room.
                    inner.note_room_made();
                }
                Ok(Passed::NoRoom)
            }
            Err(error) => Err(inner.cannot_send(&error)),
        }
    }
}
