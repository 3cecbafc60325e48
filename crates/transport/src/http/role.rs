//! What differs between the two ends of a connection.

use nearcall_http::{Connection, Out};

use super::frames::Frames;
use crate::errors::LinkError;
use crate::frame::outgoing::{CallKey, Outgoing};

/// One end of a connection: translates between the session's events and the core's frames.
pub(crate) trait Role: Send + std::fmt::Debug {
    /// The protocol's state machine at this end.
    type Session: Connection;

    /// Takes in the session's next event and adds the frames that it means for the core to `frames`. Whether there was
    /// an event.
    ///
    /// # Errors
    /// The peer broke the protocol.
    fn take_in(&mut self, session: &mut Self::Session, frames: &mut Frames) -> Result<bool, LinkError>;

    /// Why a frame finds no room, if the reason is not that the peer does not read.
    fn why_no_room(&self, _session: &mut Self::Session) -> Option<String> {
        None
    }

    /// Encodes a frame into the session.
    ///
    /// # Errors
    /// An error that spares the connection: nothing was sent.
    fn put(
        &mut self,
        session: &mut Self::Session,
        frames: &mut Frames,
        call: CallKey,
        frame: &Outgoing<'_>,
        out: Out<'_>,
    ) -> Result<(), LinkError>;

    /// Whether the next item of the peer's call `call`, of `len` bytes, has to wait. Then a frame of credit tells when it may be
    /// sent.
    fn is_held_up(&self, _session: &mut Self::Session, _call: u32, _len: usize) -> bool {
        false
    }

    /// Whether calls wait because of [`is_held_up`](Self::is_held_up).
    fn holds_up(&self, _session: &Self::Session) -> bool {
        false
    }

    /// Keeps a call for which [`put`](Self::put) found no room, until there is some.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    fn wait(&mut self, _call: CallKey, _frame: &Outgoing<'_>) -> Result<(), LinkError> {
        Err(LinkError::Full)
    }

    /// Numbers of this side's calls that wait until the peer accepts more calls at a time.
    fn unbegun(&self) -> impl Iterator<Item = u32> {
        std::iter::empty()
    }

    /// Whether this side has sent no goodbye, or the peer has read it: then every call that arrives from now on was
    /// begun after the goodbye. `waits` gives the peer a moment to confirm it; without `waits`, the peer counts as
    /// informed.
    fn has_parted(&mut self, _session: &mut Self::Session, _waits: bool) -> bool {
        true
    }

    /// Refuses the call that keeps the most memory for a message that has not arrived completely. Whether there was
    /// such a call.
    fn make_room(&mut self, session: &mut Self::Session, frames: &mut Frames) -> bool;

    /// No handler works for this call any more.
    fn finished(&mut self, session: &mut Self::Session, call: u32);

    /// Calls that the peer has cancelled and a handler still works for.
    fn given_up(&self) -> usize;
}
