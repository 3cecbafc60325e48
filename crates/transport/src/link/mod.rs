//! The trait [`Link`] that every transport implements, and its parts: how to wait, what some links can besides.

pub(crate) mod end;
pub(crate) mod native;
pub(crate) mod outbox;
pub(crate) mod pace;
pub(crate) mod silence;
pub(crate) mod wire;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::errors::LinkError;
use crate::frame::incoming::Incoming;
use crate::frame::outgoing::{CallKey, Outgoing};
use crate::limits::budget::Account;
use crate::memory::BufferPool;
use crate::peer::Peer;
use crate::signal::Signal;

/// Bytes of long frames that are handled at once while other links wait: read from a socket, sent from a queue, or
/// mapped pages that are asked of the system. To encrypt so many takes a fraction of a millisecond.
pub(crate) const PART: usize = 256 << 10;

/// Frames that are kept back to go out together are sent when the first of them has waited this long, in nanoseconds:
/// about the time of a few handlers.
pub(crate) const TOGETHER_NS: u64 = 100_000;
/// They are also sent when they have this many bytes: about what a socket takes at once.
pub(crate) const TOGETHER_BYTES: usize = 32 << 10;
/// How long a sending thread that does not receive sleeps before it looks for room.
pub(crate) const ROOM_LOOK: Duration = Duration::from_millis(2);

/// An established connection that carries frames both ways.
///
/// Any thread may send. Only one thread at a time receives and waits. The floor above decides which.
pub trait Link: Wait {
    /// What never changes.
    fn properties(&self) -> &Properties;

    /// The same link, if it is over memory.
    fn memory(self: Arc<Self>) -> Option<Arc<dyn MemoryLink>> {
        None
    }

    /// The link's own account of its calls, if it keeps one.
    fn ledger(&self) -> Option<&dyn Ledger> {
        None
    }

    /// Encodes a frame of that call and sends it. `room` says what happens if there is no room.
    ///
    /// # Errors
    /// An error that [spares the connection](LinkError::spares_connection) if nothing was sent; [`LinkError::Closed`]
    /// or [`LinkError::Broken`] when the connection is gone; the error of `room` before anything is sent.
    fn send(&self, call: CallKey, frame: &Outgoing<'_>, room: Room<'_>) -> Result<Sent, LinkError>;

    /// Sends waiting bytes, or a part of them, as far as there is room now. Returns what is left to flush. Never waits.
    ///
    /// # Errors
    /// The connection is gone.
    fn flush(&self) -> Result<Flushed, LinkError>;

    /// Sends frames that were kept back because more requests were at hand, or [more were to follow](Room::Together). Call it
    /// when there are no more, or none will be looked at soon. Never waits.
    ///
    /// # Errors
    /// The connection is gone.
    fn release(&self) -> Result<Sent, LinkError>;

    /// Bytes that wait to be sent. Cheap.
    fn queued(&self) -> usize;

    /// The account of what is kept because of the peer, if there is one: of what it has sent, and of what waits for it to read.
    fn account(&self) -> Option<&Account> {
        None
    }

    /// Drops the bytes that wait to be sent, and sends nothing more: the peer reads no more. Afterwards nothing is
    /// [queued](Link::queued).
    fn stop_sending(&self);

    /// Lets go of half a message: nobody receives any more. Whoever does all the same finds the connection gone. A link that
    /// has no half messages, or lets go of them when it is [closed](Link::close), does nothing.
    fn stop_receiving(&self) {}

    /// Whether everything that was sent has reached the peer's system, which keeps it even when this end is closed.
    /// Only TCP may still have some of it here, and drops it if the socket is closed and the peer then sends anything.
    /// With [last calls](Properties::takes_last_calls): also whether no more of those can arrive.
    fn has_delivered(&self) -> bool;

    /// Puts the next frame into an empty slot, if one has arrived. Never waits, and reads at most a part of a long frame, so
    /// that a thread with many links can look at the others. A slot, because a frame that is returned would be moved
    /// several times, and each time be read back before its parts are written.
    ///
    /// # Errors
    /// The connection is gone or the peer broke the protocol: no more frames will come. [`LinkError::OverBudget`]: look
    /// again when less memory is in use. [`LinkError::Unfinished`]: look again soon.
    fn try_receive_part(&self, slot: &mut Option<Incoming>) -> Result<(), LinkError>;

    /// Puts the next frame into an empty slot. Waits for one if none has arrived: spins as long as that pays, then sleeps.
    /// The slot stays empty if the thread woke for another reason: the deadline passed, there is room to send, a part of a frame arrived, or, at a client,
    /// [`LONGEST_SLEEP`] was over.
    ///
    /// # Errors
    /// As [`Link::try_receive_part`], but never [`LinkError::Unfinished`]; [`LinkError::Interrupted`] when a signal
    /// arrived.
    fn receive(&self, deadline: Option<Instant>, slot: &mut Option<Incoming>) -> Result<(), LinkError>;

    /// Whether the peer may have said goodbye, or may be gone, while no thread listened. Asked before a new call is sent,
    /// because the system, or memory, accepts data even for a peer that is gone. Cheap while the connection is busy.
    fn is_stale(&self) -> bool;

    /// Ends the connection. Threads that wait on it return, at both ends.
    fn close(&self);
}

/// How a thread waits for a link: in a poller of its own, by looking for a moment, or for room.
pub trait Wait: Send + Sync + Debug {
    /// What tells of arrivals while this link is [armed](Wait::arm).
    fn signal(&self) -> Signal<'_>;

    /// Says that this side is about to sleep until the [signal](Wait::signal). `false` if something may have arrived already.
    fn arm(&self) -> bool;

    /// Spins like [`Link::receive`] but never sleeps. Whether something may have arrived.
    fn spin(&self) -> bool;

    /// Whether a look for arrivals may find any. A hint, and no system call: of memory it is what is there now, and wrong only
    /// if the peer wants to be overlooked for a while; of others, whether what was read last has probably not been all there
    /// was. A link that cannot tell says yes.
    fn may_have_more(&self) -> bool;

    /// Waits until there may be room to send, or `timeout` has passed. If this is the `receiving` thread, it also wakes
    /// when something may have arrived.
    ///
    /// # Errors
    /// As [`Link::receive`].
    fn wait_room(&self, receiving: bool, timeout: Duration) -> Result<(), LinkError>;
}

/// A link for which to look for arrivals touches only memory: a thread may look in a loop, and a frame costs no system call.
/// Only a side that has [armed](Wait::arm) it gets a signal, and the reader of a full ring tells of room by it, too.
pub trait MemoryLink: Link {
    /// Says that this side is awake, on this thread's CPU: the peer need not signal.
    fn disarm(&self);

    /// To be called after the [signal](Wait::signal), before [`Link::try_receive_part`]. Returns what the wake-up cost in
    /// nanoseconds, if that is known.
    ///
    /// # Errors
    /// [`LinkError::Closed`] if the peer hung up.
    fn signalled(&self) -> Result<Option<u64>, LinkError>;

    /// Whether spinning for this peer can pay now: not while the peer sleeps, and not while it runs on this thread's
    /// CPU.
    fn spinning_pays(&self) -> bool;

    /// Like [`Link::receive`] but never sleeps, and reads at most a part of a long frame. A caller that then receives goes on
    /// with the same wait.
    ///
    /// # Errors
    /// As [`Link::try_receive_part`].
    fn receive_soon(&self, deadline: Option<Instant>, slot: &mut Option<Incoming>) -> Result<(), LinkError>;
}

/// The account that a protocol with windows of its own keeps of each call, as HTTP does.
pub trait Ledger {
    /// No handler works any more for this call of the peer's. Cheap.
    fn finished(&self, _call: u32) {}

    /// Whether the next item of this call of the peer's, of `len` bytes, must wait although others need not: more is kept than
    /// may be, and the peer is to read first what it was sent of this very call. A frame of credit for the call tells when
    /// it has. Cheap while less is kept than may be.
    fn is_held_up(&self, _call: u32, _len: usize) -> bool {
        false
    }

    /// For when memory is freed: what has become of the calls that are [held up](Ledger::is_held_up).
    fn held_up(&self) -> HeldUp {
        HeldUp::Nothing
    }

    /// What to say of the peer when there was no room for a frame in time, if the reason is not that the peer does not
    /// read.
    fn why_no_room(&self) -> Option<String>;

    /// For a link that has failed: the numbers of this side's calls of which no byte was sent, nor will be. They may be
    /// repeated.
    fn never_sent(&self) -> Vec<u32>;
}

/// What is known of a link from the beginning.
#[derive(Debug, Clone)]
pub struct Properties {
    /// Who is at the other end.
    pub peer: Peer,
    /// Memory for what is sent to this peer, which no other peer has seen, unless both are servers. `None`: none is better
    /// than any other.
    pub pool: Option<Arc<BufferPool>>,
    /// Whether a client that has hung up may have sent something before that is still to be done: one-way calls. If not,
    /// nothing more is read from it.
    pub leaves_work: bool,
    /// Whether the peer may begin calls until it has read this side's goodbye. All calls that arrive are to be served:
    /// the link itself refuses later ones, so that the peer may send them elsewhere.
    pub takes_last_calls: bool,
    /// Whether the protocol tells which calls the peer has certainly not begun, so that they may be repeated.
    pub tells_unbegun: bool,
}

impl Properties {
    /// Those of a link that carries nearcall's own frames.
    #[must_use]
    pub fn new(peer: Peer) -> Self {
        Self { peer, pool: None, leaves_work: true, takes_last_calls: false, tells_unbegun: false }
    }
}

impl dyn Link {
    /// Who is at the other end.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.properties().peer
    }

    /// Bytes kept because of the peer. Cheap.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.account().map_or(0, Account::used)
    }

    /// The pool of memory for what is sent to this peer.
    #[must_use]
    pub fn pool(&self) -> Arc<BufferPool> {
        self.properties().pool.as_ref().map_or_else(BufferPool::common, Arc::clone)
    }
}

/// What happens to a frame that finds no room.
pub enum Room<'a> {
    /// The frame waits in the connection's queue, and the sending thread goes on. Another has to [flush](Link::flush)
    /// it.
    Later,
    /// Like `Later`; and even with room the frame may be kept back for a moment ([`Sent::KeptBack`]), because more is about
    /// to follow and they may go out together.
    Together,
    /// The frame is not sent: [`LinkError::Full`]. The rest of a frame that has begun is kept.
    Now,
    /// The function is called again and again: it waits for room ([`Wait::wait_room`]) or makes some. If it fails,
    /// nothing of the frame was sent, and `send` returns its error; the rest of a frame that has begun is kept.
    Wait(&'a mut dyn FnMut() -> Result<(), LinkError>),
}

/// What [`Ledger::held_up`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldUp {
    /// No call waits.
    Nothing,
    /// Calls may wait, and there is no room for more than their windows have.
    Still,
    /// Calls wait, and there is room for all of them: whoever receives now gets a frame of credit for each.
    MayGoOn,
}

/// What a flush has left to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flushed {
    /// Nothing that the flushing thread has to care for.
    All,
    /// Something, and there may be room for it: other links have their turn first.
    Part,
    /// Something for which there was no room.
    Full,
}

/// How a frame was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The frame is out, or is kept back with others until more requests were looked at. Nothing waits for room.
    Out,
    /// The frame, or something behind it, waits for room. A thread has to [flush](Link::flush) it.
    Queued,
    /// Like `Queued`. Threads that flushed while this sender had the turn left what waited, or this sender has sent what
    /// others had queued: the flushing thread must be told again, even if it was told before. So it must after an error that
    /// spares the connection: the sender may have sent what others had queued. `Full` without [waiting](Room::Wait) needs no
    /// telling: the reader was asked to tell of room.
    LookAgain,
    /// The frame is kept back, to go out with what follows. A thread has to [release](Link::release) it in a moment.
    KeptBack,
}

/// The longest time that a client sleeps at once. A signal that arrives just before the sleep does not end it, so the
/// client looks for signals afterwards.
pub const LONGEST_SLEEP: Duration = Duration::from_millis(500);

/// Bytes that a frame may have besides its payload (metadata and tables), on top of the longest message.
pub(crate) const HEAD_ROOM: u64 = 1 << 20;
