//! How the frames of a connection's calls are sent, and what becomes of a call whose frame cannot be sent.

pub(in crate::client) mod flushing;
pub(in crate::client) mod oneway;

use std::time::{Duration, Instant};

use nearcall_platform::clock::is_past;
use nearcall_platform::lock::around_sleep;
use nearcall_transport::{CallKey, Ledger, LinkError, Outgoing, Room, Sent};
use nearcall_wire::Failure;

use super::connection::Inner;
use crate::sync::Ordering;

/// How long a sender that finds the other side gone waits until the receiving thread finds it gone, too.
const HEARING_OUT: Duration = Duration::from_millis(20);
const GLANCE: Duration = Duration::from_micros(100);

impl Inner {
    /// A call of that number, made here.
    #[inline]
    pub(super) fn key(&self, number: u32) -> CallKey {
        CallKey { number, side: self.side }
    }

    /// Sends a frame. Waits for room until `until`, or else until the frame's own deadline. In an event loop it never
    /// waits: the frame is queued.
    pub(super) fn send_until(
        &self,
        call: u32,
        frame: &Outgoing<'_>,
        mut until: Option<Instant>,
    ) -> Result<(), Failure> {
        // Relaxed: the loop's own thread sends next.
        if self.in_loop.load(Ordering::Relaxed) {
            return self.send_later(call, frame);
        }
        let sent = self.link.send(
            self.key(call),
            frame,
            Room::Wait(&mut || {
                // The clock is read only when there is something to wait for.
                if until.is_none() {
                    until = frame.deadline_us.and_then(|us| Instant::now().checked_add(Duration::from_micros(us)));
                }
                if is_past(until) { Err(LinkError::DeadlinePassed) } else { self.blocked(until) }
            }),
        );
        self.note_sent(sent)
    }

    /// Sends without waiting: a frame that finds no room waits in the connection's queue.
    pub(super) fn send_later(&self, call: u32, frame: &Outgoing<'_>) -> Result<(), Failure> {
        self.note_sent(self.link.send(self.key(call), frame, Room::Later))
    }

    fn note_sent(&self, sent: Result<Sent, LinkError>) -> Result<(), Failure> {
        match sent {
            Ok(Sent::Out) => Ok(()),
            Ok(sent) => {
                self.note_queued(sent);
                Ok(())
            }
            Err(error) => Err(self.cannot_send(&error)),
        }
    }

    /// The failure of a call that could not be sent.
    pub(super) fn cannot_send(&self, error: &LinkError) -> Failure {
        if error.spares_connection() {
            // What others had queued before it may be out.
            self.note_room_made();
        }
        if *error == LinkError::DeadlinePassed {
            let (other, name) = (self.other(), &self.name);
            let why = self.link.ledger().and_then(Ledger::why_no_room).unwrap_or_else(|| "reads nothing".into());
            let text = format!("there was no room to send before the deadline: the {other} at {name} {why}");
            return Failure::new(Failure::DEADLINE_EXCEEDED, text);
        }
        if let LinkError::TooLong { len, limit } = error {
            return Failure::new(
                Failure::RESOURCE_EXHAUSTED,
                format!(
                    "the message has {len} bytes, the {}'s limit is {limit}; raise it there with max_message_size",
                    self.other()
                ),
            );
        }
        if let LinkError::Unfit(why) = error {
            return Failure::new(Failure::INVALID_ARGUMENT, why.as_str());
        }
        if error.spares_connection() {
            return Failure::new(Failure::RESOURCE_EXHAUSTED, error.to_string());
        }
        if *error == LinkError::Closed {
            self.hear_out();
        }
        self.mark_lost(error);
        self.table.lock().dead.clone().expect("just lost")
    }

    /// Takes in what the other side sent before it hung up: a GOAWAY among it says more than the loss of the
    /// connection.
    #[cold]
    fn hear_out(&self) {
        if let Some(mut leader) = self.try_lead() {
            leader.receive(None);
            return;
        }
        // The receiving thread finds the end by itself, if it can run.
        let end = Instant::now() + HEARING_OUT;
        while !self.is_dead() && Instant::now() < end {
            around_sleep(&mut || std::thread::sleep(GLANCE));
        }
    }

    /// Makes room while a send waits: the server may be waiting for us to take its replies.
    pub(super) fn blocked(&self, until: Option<Instant>) -> Result<(), LinkError> {
        const SLICE: Duration = Duration::from_millis(100);
        let slice = until.map_or(SLICE, |until| until.saturating_duration_since(Instant::now()).min(SLICE));
        let mut result = Ok(());
        around_sleep(&mut || result = self.make_room(slice));
        result
    }

    fn make_room(&self, slice: Duration) -> Result<(), LinkError> {
        match self.try_lead() {
            Some(mut leader) => {
                let mut arrived = None;
                let waited = match self.link.try_receive_part(&mut arrived) {
                    Ok(()) if arrived.is_some() => {
                        leader.deliver(&mut arrived, None);
                        leader.receive(None);
                        Ok(())
                    }
                    Ok(()) => self.link.wait_room(true, slice),
                    // There is more to read, and the caller looks at its deadline first.
                    Err(LinkError::Unfinished) => Ok(()),
                    Err(error) => Err(error),
                };
                // A signal is handled when the send is through.
                waited.or_else(|error| if error == LinkError::Interrupted { Ok(()) } else { Err(error) })
            }
            None => self.link.wait_room(false, slice),
        }
    }
}
