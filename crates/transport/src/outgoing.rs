//! A frame about to be sent.

use std::num::NonZeroU64;

use nearcall_http::Encoding;
use nearcall_wire::{Kind, Metadata, flags};

use crate::paths::MethodPath;

/// A payload in pieces: the codec's bytes and buffers beside them, or one buffer that is the payload.
#[derive(Debug, Clone, Copy)]
pub enum Body<'a> {
    /// The payload as it is.
    Whole(&'a [u8]),
    /// The payload, end to end.
    Pieces(&'a [&'a [u8]]),
    /// A body, and buffers beside it.
    Parts(&'a [u8], &'a [&'a [u8]]),
}

impl Body<'_> {
    /// Bytes in all.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Whole(bytes) => bytes.len(),
            Self::Pieces(pieces) => pieces.iter().map(|piece| piece.len()).sum(),
            Self::Parts(body, buffers) => body.len() + buffers.iter().map(|buffer| buffer.len()).sum::<usize>(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Whether a message is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compress {
    /// As the connection's options say.
    #[default]
    AsUsual,
    /// If that makes it shorter.
    Yes,
    /// It is not, and neither is any other of its call, as far as is known.
    No,
    /// It is not, and others of its call are: the call's headers say how.
    NotThis,
}

/// Which call of a connection a frame belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallKey {
    /// Chosen by the side that began the call.
    pub number: u32,
    /// Which side that was: [`flags::BACK`] if the accepting one, or 0.
    pub side: u8,
}

/// A frame to send, but for the call that it belongs to: each wire encodes it in its own way.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// What it is for.
    pub kind: Kind,
    /// [`Outgoing::NAMED`], [`Outgoing::ONEWAY`], [`Outgoing::UNBEGUN`] and [`Outgoing::LAST`].
    pub flags: u8,
    /// Index of the method, for calls.
    pub method: u16,
    /// The same for gRPC's servers, if the method can be called there.
    pub path: Option<&'a MethodPath>,
    /// The object that is called, if it is no service.
    pub target: Option<NonZeroU64>,
    /// Time left, microseconds.
    pub deadline_us: Option<u64>,
    /// Keys and values beside the payload.
    pub metadata: Option<Metadata>,
    /// Whether the payload is compressed where the wire can do that and the peer reads it.
    pub compress: Compress,
    /// With what, of a call that a client begins, in the place of what the connection's options say.
    pub encoding: Option<Encoding>,
    /// The payload.
    pub body: Body<'a>,
}

impl<'a> Outgoing<'a> {
    /// The arguments are a map by name.
    pub const NAMED: u8 = flags::NAMED;
    /// Of an error: the call was not begun.
    pub const UNBEGUN: u8 = flags::UNBEGUN;
    /// See [`flags::LAST`].
    pub const LAST: u8 = flags::LAST;
    /// Nobody waits for a reply.
    pub const ONEWAY: u8 = flags::ONEWAY;

    /// A frame without options.
    #[must_use]
    pub fn new(kind: Kind, body: Body<'a>) -> Self {
        Self {
            kind,
            flags: 0,
            method: 0,
            path: None,
            target: None,
            deadline_us: None,
            metadata: None,
            compress: Compress::AsUsual,
            encoding: None,
            body,
        }
    }

    /// Bytes of payload.
    #[must_use]
    pub fn len(&self) -> usize {
        self.body.len()
    }

    /// Whether the payload is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
