//! What differs between the two ends of a connection.

use nearcall_http::{Connection, Out};

use super::frames::Frames;
use crate::errors::LinkError;
use crate::outgoing::{CallKey, Outgoing};

/// One end of a connection: what the peer's side of the protocol means to the core, and the other way round.
pub(crate) trait Role: Send + std::fmt::Debug {
    /// What it speaks.
    type Session: Connection;

    /// Takes in the next thing that the peer did; what the core is to know goes to `frames`. Whether there was one.
    ///
    /// # Errors
    /// The peer broke the protocol.
    fn take_in(&mut self, session: &mut Self::Session, frames: &mut Frames) -> Result<bool, LinkError>;

    /// Why a frame may find no room, if that is not that the peer does not read.
    fn why_no_room(&self, _session: &mut Self::Session) -> Option<String> {
        None
    }

    /// Encodes a frame into the session.
    ///
    /// # Errors
    /// One that spares the connection: nothing was sent.
    fn put(
        &mut self,
        session: &mut Self::Session,
        frames: &mut Frames,
        call: CallKey,
        frame: &Outgoing<'_>,
        out: Out<'_>,
    ) -> Result<(), LinkError>;

    /// Keeps a call for which [`put`](Self::put) has found no room, until there is some.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    fn wait(&mut self, _call: CallKey, _frame: &Outgoing<'_>) -> Result<(), LinkError> {
        Err(LinkError::Full)
    }

    /// Calls of this side, by number, that wait until the peer takes more of them at a time.
    fn unbegun(&self) -> impl Iterator<Item = u32> {
        std::iter::empty()
    }

    /// Whether the peer knows that this side has said goodbye, if it has: what comes from it now was begun after that. It has
    /// a moment to say so if this side `waits`.
    fn has_parted(&mut self, _session: &mut Self::Session, _waits: bool) -> bool {
        true
    }

    /// Refuses the call whose message keeps most and has not come completely. Whether there was one.
    fn make_room(&mut self, session: &mut Self::Session, frames: &mut Frames) -> bool;

    /// Nobody works for a call any more.
    fn finished(&mut self, session: &mut Self::Session, call: u32);

    /// Calls that the peer has given up and somebody still works for.
    fn given_up(&self) -> usize;
}
