//! How a server's end of a connection says goodbye.

use std::time::{Duration, Instant};

use nearcall_http::Calls;

/// How far the goodbye has got. Calls that the client begins before it has read the goodbye are accepted.
#[derive(Debug, Default)]
pub(super) enum Closing {
    #[default]
    No,
    /// The goodbye was sent at this time, over HTTP/2 with a ping behind it.
    Asked(Instant),
    /// New calls are refused, in a way that lets the client try elsewhere.
    Done,
}

/// The ping behind the goodbye: a client that answers it has read the goodbye.
pub(super) const GOODBYE: [u8; 8] = *b"goodbye\0";
/// How long to wait for a client that does not answer that ping. After this, a call that it has just begun may be
/// refused.
const PATIENCE: Duration = Duration::from_millis(50);

impl Closing {
    /// Asks the client to begin no more calls on this connection, once.
    pub(super) fn say_goodbye(&mut self, session: &mut impl Calls) {
        if !matches!(self, Self::No) {
            return;
        }
        session.drain();
        // HTTP/1.1 can say goodbye only in the next response. The client may have sent a request already, which it
        // would not repeat: such a request is accepted until `PATIENCE` is over.
        if let Some(session) = session.http2() {
            session.ping(GOODBYE);
        }
        *self = Self::Asked(Instant::now());
    }

    /// Refuses calls that the client begins from now on, if the goodbye was sent.
    pub(super) fn part(&mut self, session: &mut impl Calls) {
        if matches!(self, Self::Asked(_)) {
            session.drain_now();
            *self = Self::Done;
        }
    }

    /// Whether no goodbye was sent, or the client has read it. `waits` gives it a moment to confirm that.
    pub(super) fn has_parted(&mut self, session: &mut impl Calls, waits: bool) -> bool {
        if matches!(self, Self::Asked(since) if waits && since.elapsed() < PATIENCE) {
            return false;
        }
        self.part(session);
        true
    }
}
