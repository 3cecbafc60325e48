//! Calls without a reply, and what becomes of them when there is no room to send.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nearcall_transport::LinkError;
use nearcall_wire::Failure;

use super::Connection;
use crate::outgoing::{Outgoing, finish_in_thread};

/// How long a closing connection waits for the rest of a long message.
const CLOSING: Duration = Duration::from_millis(500);
/// Call number of a message without a reply.
const NO_CALL: u32 = u32::MAX;

/// What became of a one-way call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passed {
    /// It is in the transport's hands.
    Sent,
    /// Its beginning is, and a thread sends the rest: a socket took a part of it.
    Begun,
    /// There was no room. Nothing was sent.
    NoRoom,
}

/// Counts one more in each of some counters for as long as it lives: hints for `send_at_once` and `await_rest`.
struct Counted([Arc<AtomicU32>; 2]);

impl Counted {
    fn in_all(counts: [&Arc<AtomicU32>; 2]) -> Self {
        Self(counts.map(|count| {
            // Relaxed, as all that look at it: a hint.
            count.fetch_add(1, Ordering::Relaxed);
            Arc::clone(count)
        }))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        for count in &self.0 {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Connection {
    /// Sends a call that nobody waits for. `go_on` is asked before each wait for room whether to wait, for a moment; without
    /// it this never waits.
    ///
    /// # Errors
    /// The failure, if it could not be sent for another reason than a lack of room.
    pub fn send_oneway(
        &self,
        request: &Outgoing<'_>,
        go_on: Option<&mut dyn FnMut() -> bool>,
    ) -> Result<Passed, Failure> {
        self.listen_first()?;
        if let Some(failure) = &self.table.lock().dead {
            return Err(failure.clone());
        }
        if self.has_pongs.load(Ordering::Acquire) && go_on.is_some() {
            self.answer_pings();
        }
        let sent = match go_on {
            Some(go_on) => self.send_patiently(request, go_on),
            None => self.send_at_once(request),
        };
        match sent {
            Ok(()) if self.link.has_rest() => {
                // Without a thread the next one that sends does it.
                finish_in_thread(&self.link, Counted::in_all([&self.short_of_room, &self.finishing]));
                Ok(Passed::Begun)
            }
            Ok(()) => Ok(Passed::Sent),
            Err(LinkError::Full) => Ok(Passed::NoRoom),
            Err(error) => Err(self.cannot_send(&error, None)),
        }
    }

    fn send_patiently(&self, request: &Outgoing<'_>, go_on: &mut dyn FnMut() -> bool) -> Result<(), LinkError> {
        const SLICE: Duration = Duration::from_millis(100);
        // As `await_turn`, but as long as the caller wants.
        while self.link.is_sending() {
            if !go_on() {
                return Err(LinkError::Full);
            }
            (self.around_wait)(&mut || self.link.wait_turn(SLICE));
        }
        request.send(NO_CALL, &*self.link, &mut || if go_on() { self.blocked(None) } else { Err(LinkError::Full) })
    }

    fn send_at_once(&self, request: &Outgoing<'_>) -> Result<(), LinkError> {
        const SLICE: Duration = Duration::from_millis(1);
        loop {
            match request.try_send(NO_CALL, &*self.link) {
                // Another thread copies its frame into the ring just now: that is not a lack of room.
                Err(LinkError::Full) if self.link.is_sending() && self.short_of_room.load(Ordering::Relaxed) == 0 => {
                    (self.around_wait)(&mut || self.link.wait_turn(SLICE));
                }
                other => return other,
            }
        }
    }

    /// Whether the rest of a message is on its way, within a moment.
    pub(super) fn await_rest(&self) -> bool {
        const SLICE: Duration = Duration::from_millis(5);
        let end = Instant::now() + CLOSING;
        while self.finishing.load(Ordering::Relaxed) > 0 || self.link.has_rest() {
            if self.is_dead() || Instant::now() >= end {
                return false;
            }
            self.link.wait_turn(SLICE);
        }
        true
    }
}
