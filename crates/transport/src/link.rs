//! The one trait all transports stand behind.

use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_http::{Codec, Encoding, Origins};
use nearcall_ring::SpinPolicy;

use crate::budget::{Account, Budget};
use crate::buffers::BufferPool;
use crate::credentials::Credentials;
use crate::http::Paths;
use crate::incoming::Incoming;
use crate::outgoing::{CallKey, Outgoing};
use crate::peer::{Admission, Peer};
use crate::proxy::Proxy;

/// Bytes of long frames that are moved at once, while other links wait: read from a socket, sent of what has waited for room in
/// one, or asked of the system where a region lies. To encrypt so many takes a fraction of a millisecond.
pub(crate) const PART: usize = 256 << 10;

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

/// Why a link cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The peer hung up or died, or this side closed.
    #[error("the connection is closed")]
    Closed,
    /// The peer broke the protocol, or the system failed.
    #[error("{0}")]
    Broken(String),
    /// The message is over the receiver's limit. The connection goes on.
    #[error("the message has {len} bytes, the peer's limit is {limit}; raise it there with max_message_size")]
    TooLong {
        /// The message's payload, bytes.
        len: usize,
        /// The receiver's limit, bytes.
        limit: u64,
    },
    /// What goes beside the payload is more than a frame can carry. The connection goes on.
    #[error(
        "the metadata and the lengths of buffers beside the message take {len} bytes, {limit} is the most; \
         send less metadata, or pass it as an argument"
    )]
    HeadTooLong {
        /// The frame's head, bytes.
        len: usize,
        /// What a head may have on this connection, bytes.
        limit: u64,
    },
    /// The metadata has more entries than a frame may carry. The connection goes on.
    #[error("the metadata has {pairs} entries, {limit} is the most; send fewer, or pass them as an argument")]
    TooManyPairs {
        /// Entries of the metadata.
        pairs: usize,
        /// The most there may be.
        limit: usize,
    },
    /// The wire cannot carry this, in words. The connection goes on.
    #[error("{0}")]
    Unfit(String),
    /// There is no room to send, and nobody waits for it.
    #[error("there is no room to send")]
    Full,
    /// The system has no descriptors or memory left for this message. To a sender nothing has happened, and the connection
    /// goes on; to a receiver the message is lost, and the connection with it.
    #[error("{0}")]
    Exhausted(String),
    /// The next frame cannot be taken in before something that is kept of this peer, or of all, has been let go of. The
    /// connection goes on.
    #[error("as much is kept of what this peer has sent as may be")]
    OverBudget,
    /// A part of a long frame was taken in, and more may be there: others have their turn first.
    #[error("a part of a long message has arrived")]
    Unfinished,
    /// There was no room to send until the deadline; nothing was sent, and the connection goes on.
    #[error("the deadline passed before there was room to send: the peer reads nothing")]
    DeadlinePassed,
    /// A signal arrived while waiting.
    #[error("interrupted by a signal")]
    Interrupted,
}

impl LinkError {
    /// Whether a send failed with it before anything was sent, so that only its own call is lost.
    #[must_use]
    pub fn spares_connection(&self) -> bool {
        matches!(
            self,
            Self::TooLong { .. }
                | Self::HeadTooLong { .. }
                | Self::TooManyPairs { .. }
                | Self::Unfit(_)
                | Self::Full
                | Self::Exhausted(_)
                | Self::DeadlinePassed
        )
    }
}

/// Why a descriptor that a peer sent did not arrive, if that was not the peer's fault.
pub(crate) const NO_DESCRIPTOR: &str =
    "this process has no descriptor left to receive shared memory with; raise its limit (ulimit -n)";

/// Whether the system has no descriptors or memory left. Files in memory fall under the limit for the size of files, too.
pub(crate) fn is_exhaustion(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOSPC, libc::EFBIG].iter().any(|&one| number == Some(one))
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind::{
            BrokenPipe, ConnectionAborted, ConnectionReset, HostUnreachable, NetworkUnreachable, NotConnected, TimedOut,
        };
        match error.kind() {
            BrokenPipe | ConnectionReset | ConnectionAborted | NotConnected
            // What keep-alive ends a connection with.
            | TimedOut | HostUnreachable | NetworkUnreachable => Self::Closed,
            io::ErrorKind::Interrupted => Self::Interrupted,
            _ => Self::Broken(error.to_string()),
        }
    }
}

impl From<nearcall_wire::Malformed> for LinkError {
    fn from(error: nearcall_wire::Malformed) -> Self {
        Self::Broken(error.0.to_owned())
    }
}

impl From<rustix::io::Errno> for LinkError {
    fn from(error: rustix::io::Errno) -> Self {
        io::Error::from(error).into()
    }
}

impl From<nearcall_ring::Corrupt> for LinkError {
    fn from(error: nearcall_ring::Corrupt) -> Self {
        Self::Broken(error.to_string())
    }
}

/// Why no connection came about; written for the user.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nobody serves there.
    #[error("{0}")]
    Unavailable(String),
    /// Client and server do not fit together.
    #[error("{0}")]
    Mismatch(String),
    /// The server does not want this client.
    #[error("{0}")]
    Refused(String),
    /// The handshake took too long.
    #[error("{0}")]
    TimedOut(String),
    /// One side's certificate does not satisfy the other.
    #[error("{0}")]
    Untrusted(String),
    /// The options of this side do not allow it, or do not go together.
    #[error("{0}")]
    Options(String),
}

impl ConnectError {
    /// The same in other words.
    pub(crate) fn saying(self, text: String) -> Self {
        match self {
            Self::Unavailable(_) => Self::Unavailable(text),
            Self::Mismatch(_) => Self::Mismatch(text),
            Self::Refused(_) => Self::Refused(text),
            Self::TimedOut(_) => Self::TimedOut(text),
            Self::Untrusted(_) => Self::Untrusted(text),
            Self::Options(_) => Self::Options(text),
        }
    }
}

/// What the user may choose about a connection.
#[derive(Debug, Clone)]
pub struct Options {
    /// How to wait.
    pub spin: SpinPolicy,
    /// Size of each ring on shared memory, bytes, a power of two. The client's choice counts.
    pub ring_size: usize,
    /// Longest message this side is willing to receive, bytes.
    pub max_message: u64,
    /// How long connecting and shaking hands may take.
    pub handshake: Duration,
    /// Whether `tcp://` may be used beyond this machine, where others can read along and pretend to be the peer.
    pub allow_plaintext: bool,
    /// What `tls://` needs.
    pub tls: Option<Credentials>,
    /// What all connections together may keep, if that is limited.
    pub budget: Option<Arc<Budget>>,
    /// Whom a `unix://` server lets in besides its own user; whose servers a client uses.
    pub admission: Admission,
    /// The methods that clients may call by their paths, over HTTP.
    pub paths: Arc<Paths>,
    /// How clients ask for calls at `http://`, where they speak Connect.
    pub codec: Codec,
    /// Whether they ask by GET for what changes nothing.
    pub by_get: bool,
    /// How messages are compressed over HTTP, if they are.
    pub compression: Option<Encoding>,
    /// Where the web pages are from that may call.
    pub origins: Arc<Origins>,
    /// The proxy that a client connects through, if there is one.
    pub proxy: Option<Arc<Proxy>>,
}

impl Options {
    /// The account of a new connection.
    pub(crate) fn account(&self) -> Arc<Account> {
        let budget = self.budget.clone().unwrap_or_else(|| Budget::new(usize::MAX));
        Account::of(&budget, self.max_message)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            spin: SpinPolicy::Auto,
            ring_size: 1 << 18,
            max_message: 64 << 20,
            handshake: Duration::from_secs(5),
            allow_plaintext: false,
            tls: None,
            budget: None,
            admission: Admission::default(),
            paths: Arc::default(),
            codec: Codec::Proto,
            by_get: false,
            compression: None,
            origins: Arc::default(),
            proxy: None,
        }
    }
}
