//! The one trait all transports stand behind.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::errors::LinkError;
use crate::incoming::Incoming;
use crate::memory::BufferPool;
use crate::outgoing::{CallKey, Outgoing};
use crate::peer::Peer;

/// Bytes of long frames that are moved at once, while other links wait: read from a socket, sent of what has waited for room in
/// one, or asked of the system where a region lies. To encrypt so many takes a fraction of a millisecond.
pub(crate) const PART: usize = 256 << 10;

/// Frames that are kept back to go out together go out when the first of them has waited so long, nanoseconds: a few handlers'
/// time.
pub(crate) const TOGETHER_NS: u64 = 100_000;
/// The same, when they have so many bytes: about what a socket takes at once.
pub(crate) const TOGETHER_BYTES: usize = 32 << 10;
/// How long a sender that does not receive sleeps before it looks for room by itself.
pub(crate) const ROOM_LOOK: Duration = Duration::from_millis(2);

/// An established connection that carries frames both ways.
///
/// Any thread may send. Only one thread at a time receives and waits; who that is, is the business of the floor above.
pub trait Link: Send + Sync + Debug {
    /// Encodes a frame of that call and sends it. What happens without room, `room` says.
    ///
    /// # Errors
    /// One that [spares the connection](LinkError::spares_connection) if nothing was sent; [`LinkError::Closed`] or
    /// [`LinkError::Broken`] when the connection is gone; whatever `room` returns before anything is sent.
    fn send(&self, call: CallKey, frame: &Outgoing<'_>, room: Room<'_>) -> Result<Sent, LinkError>;

    /// Sends what waits, or a part of it, as far as there is room now. What is left to flush. Never waits.
    ///
    /// # Errors
    /// The connection is gone.
    fn flush(&self) -> Result<Flushed, LinkError>;

    /// Sends replies that were kept back to go out together, because more requests were at hand: now there are none, or
    /// nobody is going to look at them soon. Never waits. To be called by whoever receives.
    ///
    /// # Errors
    /// The connection is gone.
    fn release(&self) -> Result<Sent, LinkError> {
        Ok(Sent::Out)
    }

    /// Nobody works for a call any more that the peer began. Cheap.
    fn finished(&self, _call: u32) {}

    /// Bytes that wait to be sent. Cheap.
    fn queued(&self) -> usize;

    /// Forgets what waits to be sent, and sends nothing more: the peer reads no more. Afterwards nothing is
    /// [queued](Link::queued).
    fn stop_sending(&self);

    /// The next frame, if one has arrived. Never waits, and reads no more than a part of a long one, so that who has many
    /// links can look at the others.
    ///
    /// # Errors
    /// The connection is gone or the peer broke the protocol; nothing more will come. [`LinkError::OverBudget`]: look again
    /// when less is kept. [`LinkError::Unfinished`]: look again soon.
    fn try_receive_part(&self) -> Result<Option<Incoming>, LinkError>;

    /// The next frame, if one has arrived. Never waits, but reads on as long as more of a frame is there.
    ///
    /// # Errors
    /// As [`Link::try_receive_part`], but never [`LinkError::Unfinished`].
    fn try_receive(&self) -> Result<Option<Incoming>, LinkError> {
        loop {
            let received = self.try_receive_part();
            if !matches!(received, Err(LinkError::Unfinished)) {
                return received;
            }
        }
    }

    /// The next frame; waits for one if none is here: spins as long as that pays, then sleeps. `None` when it woke for
    /// another reason: the deadline passed, room to send was made, or, at a client, [`LONGEST_SLEEP`] was over.
    ///
    /// # Errors
    /// As [`Link::try_receive`]; [`LinkError::Interrupted`] when a signal arrived.
    fn receive(&self, deadline: Option<Instant>) -> Result<Option<Incoming>, LinkError>;

    /// Spins like [`Link::receive`] but never sleeps. Whether something may have arrived.
    fn spin(&self) -> bool;

    /// Whether the peer may have said goodbye while nobody listened: asked before a new call is sent, which the system
    /// would take even for a peer that is gone. Cheap while the connection is busy.
    fn is_stale(&self) -> bool;

    /// Waits until there may be room to send again, or `timeout` passed; also until
    /// something may have arrived if this is the `receiving` thread.
    ///
    /// # Errors
    /// As [`Link::receive`].
    fn wait_room(&self, receiving: bool, timeout: Duration) -> Result<(), LinkError>;

    /// What is said of the peer when there was no room for a frame in time, if that is not that it does not read.
    fn why_no_room(&self) -> Option<String> {
        None
    }

    /// The descriptor to poll for reading while this link is [armed](Link::arm).
    fn fd(&self) -> BorrowedFd<'_>;

    /// Says that this side is about to sleep in a poller of its own. `false` if something may have arrived already.
    fn arm(&self) -> bool;

    /// Says that this side is awake: the peer need not ring the bell. A socket has none.
    fn disarm(&self) {}

    /// To be called when [`Link::fd`] became readable, before [`Link::try_receive`]. What the wake-up cost, nanoseconds, if
    /// that is known.
    ///
    /// # Errors
    /// [`LinkError::Closed`] if the peer hung up.
    fn readable(&self) -> Result<Option<u64>, LinkError> {
        Ok(None)
    }

    /// Whether looking for arrivals touches only memory, so that a poller may look at it in a loop.
    fn is_memory(&self) -> bool {
        false
    }

    /// Where memory comes from for what will be sent to this peer: nobody else has seen it, unless both are servers.
    fn pool(&self) -> Arc<BufferPool> {
        BufferPool::common()
    }

    /// Whether spinning for this peer can pay right now: not while it sleeps, not while it runs on this thread's CPU.
    fn spinning_pays(&self) -> bool {
        true
    }

    /// Who is at the other end.
    fn peer(&self) -> &Peer;

    /// Whether the peer may begin calls until it knows of this side's goodbye, and is refused later ones by the link itself, so
    /// that it may send them elsewhere: what comes here is to be served.
    fn takes_last_calls(&self) -> bool {
        false
    }

    /// Whether all that went out is at the peer's system, which keeps it for the peer even when this end is closed. Only TCP
    /// may still have some of it here, and drops it if it is closed and the peer then sends anything. With
    /// [last calls](Link::takes_last_calls): also whether none of those can come any more.
    fn has_delivered(&self) -> bool {
        true
    }

    /// Whether this wire says of a call that the peer has certainly not begun with it, so that it may be made once more.
    fn tells_unbegun(&self) -> bool {
        false
    }

    /// Calls of this side, by number, of which not one byte has left, and none will: for a link that has failed. They may be
    /// made once more.
    fn never_sent(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Ends the connection. Threads that wait on it return, here and at the peer.
    fn close(&self);
}

/// What becomes of a frame that there is no room for.
pub enum Room<'a> {
    /// It waits in the connection's queue, and whoever sends it need not: somebody has to [flush](Link::flush) it.
    Later,
    /// The same; and even with room it may be kept back for a moment, because more is about to follow and they may go out
    /// together: [`Sent::Kept`].
    Together,
    /// It is not sent: [`LinkError::Full`]. One that has begun is kept to its end.
    Now,
    /// This is called, again and again: it waits for room ([`Link::wait_room`]) or makes some. When it fails, nothing of the
    /// frame was sent, and its error is returned; the rest of a frame that has begun is kept.
    Wait(&'a mut dyn FnMut() -> Result<(), LinkError>),
}

/// What a flush has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flushed {
    /// Nothing that the one who flushed would have to see to.
    All,
    /// Something, and there may be room for it: others have their turn first.
    Part,
    /// What there was no room for.
    Full,
}

/// How a frame was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// It is out, or is kept back with others until more requests were looked at, and nothing waits for room.
    Out,
    /// It, or something behind it, waits for room: somebody has to [flush](Link::flush).
    Queued,
    /// It is kept back, to go out with what follows: somebody has to [release](Link::release) it in a moment.
    Kept,
}

/// How long a client sleeps in one go. A signal that arrives just before it falls asleep wakes nobody: it is looked for
/// afterwards.
pub const LONGEST_SLEEP: Duration = Duration::from_millis(500);

/// What a frame may have besides its payload, metadata and tables, on top of the longest message.
pub(crate) const HEAD_ROOM: u64 = 1 << 20;
