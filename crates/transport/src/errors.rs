//! Why a connection cannot be made or go on, or a message cannot be sent.

use std::io;

use nearcall_platform::fault::Fault;

/// Why a link cannot go on, or cannot send or receive a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The peer hung up or died, or this side closed.
    #[error("the connection is closed")]
    Closed,
    /// The peer broke the protocol, or the system failed.
    #[error("{0}")]
    Broken(String),
    /// This side has failed, by a fault of its own.
    #[error("{0}")]
    Fault(String),
    /// The message is over the receiver's limit. The connection goes on.
    #[error("the message has {len} bytes, the peer's limit is {limit}; raise it there with max_message_size")]
    TooLong {
        /// The message's payload, bytes.
        len: usize,
        /// The receiver's limit, bytes.
        limit: u64,
    },
    /// Metadata and tables beside the payload are more than a frame can carry. The connection goes on.
    #[error(
        "the metadata and the lengths of buffers beside the message take {len} bytes, {limit} is the most; \
         send less metadata, or pass it as an argument"
    )]
    HeadTooLong {
        /// The frame's head, bytes.
        len: usize,
        /// The most that a head may have on this connection, bytes.
        limit: u64,
    },
    /// The metadata has more entries than a frame may carry. The connection goes on.
    #[error("the metadata has {pairs} entries, {limit} is the most; send fewer, or pass them as an argument")]
    TooManyPairs {
        /// Entries of the metadata.
        pairs: usize,
        /// The most entries that a frame may carry.
        limit: usize,
    },
    /// The transport cannot carry this frame; the text says why. The connection goes on.
    #[error("{0}")]
    Unfit(String),
    /// There is no room to send, and the sender does not wait.
    #[error("there is no room to send")]
    Full,
    /// The system has no descriptors or memory left for this message. A sender has sent nothing, and its connection
    /// goes on. A receiver has lost the message, and the connection with it.
    #[error("{0}")]
    Exhausted(String),
    /// The next frame can be read only when less memory is used for this peer, or for all peers. The connection goes
    /// on.
    #[error("as much is kept of what this peer has sent as may be")]
    OverBudget,
    /// A part of a long frame was read, and more may be there. Other links have their turn first.
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
    /// The error for a message of `len` bytes when the system gives no shared memory.
    pub(crate) fn no_memory(len: usize, error: io::Error) -> Self {
        if is_exhaustion(&error) {
            return Self::Exhausted(format!("no shared memory for a message of {len} bytes: {error}"));
        }
        error.into()
    }

    /// Whether a send with this error sent nothing, so that only its own call is lost.
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

/// Why a peer's descriptor did not arrive when the peer is not at fault.
pub(crate) const NO_DESCRIPTOR: &str =
    "this process has no descriptor left to receive shared memory with; raise its limit (ulimit -n)";

/// Whether the system has no descriptors or memory left. The limit on the size of files also applies to files in
/// memory.
fn is_exhaustion(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOSPC, libc::EFBIG].iter().any(|&one| number == Some(one))
}

impl From<Fault> for LinkError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault.to_string())
    }
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind::{
            BrokenPipe, ConnectionAborted, ConnectionReset, HostUnreachable, NetworkUnreachable, NotConnected, TimedOut,
        };
        match error.kind() {
            BrokenPipe | ConnectionReset | ConnectionAborted | NotConnected
            // Keep-alive ends connections with these.
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

/// Why a connection could not be made; written for the user.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConnectError {
    /// No server is there.
    #[error("{0}")]
    Unavailable(String),
    /// The server took the connection and left during the handshake, as one does that is about to end. Another may
    /// take the next connection.
    #[error("{0}")]
    Left(String),
    /// Client and server do not fit together.
    #[error("{0}")]
    Mismatch(String),
    /// The server rejects this client.
    #[error("{0}")]
    Refused(String),
    /// The handshake took too long.
    #[error("{0}")]
    TimedOut(String),
    /// One side's certificate does not satisfy the other.
    #[error("{0}")]
    Untrusted(String),
    /// This side's options do not allow the connection, or contradict each other.
    #[error("{0}")]
    Options(String),
}

impl ConnectError {
    /// The same kind of error with another text.
    pub(crate) fn saying(self, text: String) -> Self {
        match self {
            Self::Unavailable(_) => Self::Unavailable(text),
            Self::Left(_) => Self::Left(text),
            Self::Mismatch(_) => Self::Mismatch(text),
            Self::Refused(_) => Self::Refused(text),
            Self::TimedOut(_) => Self::TimedOut(text),
            Self::Untrusted(_) => Self::Untrusted(text),
            Self::Options(_) => Self::Options(text),
        }
    }
}
