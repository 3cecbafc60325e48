//! A frame about to be sent.

use std::num::NonZeroU64;

use nearcall_http::Encoding;
use nearcall_wire::{Kind, Metadata, flags};

use crate::frame::paths::MethodPath;

/// A payload in pieces: the codec's bytes and buffers beside them, or one buffer that is the payload.
#[derive(Debug, Clone, Copy)]
pub enum Body<'a> {
    /// The payload in one piece.
    Whole(&'a [u8]),
    /// The payload in pieces, sent end to end.
    Pieces(&'a [&'a [u8]]),
    /// The codec's body, and buffers beside it.
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

    /// Whether there are no bytes.
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
    /// Compress the message, also if that makes it longer.
    Yes,
    /// Do not compress it. As far as is known, the call has no compressed message.
    No,
    /// Do not compress it, but others of its call are compressed: the call's headers say how.
    NotThis,
}

/// Identifies a call of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallKey {
    /// Chosen by the side that began the call.
    pub number: u32,
    /// That side: [`flags::BACK`] for the accepting one, 0 for the other.
    pub side: u8,
}

/// A frame to send, without its call. Each transport encodes it in its own way.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// The kind of the frame.
    pub kind: Kind,
    /// [`Outgoing::NAMED`], [`Outgoing::ONEWAY`], [`Outgoing::UNBEGUN`], [`Outgoing::UNREAD`] and [`Outgoing::LAST`].
    pub flags: u8,
    /// Index of the method, for calls.
    pub method: u16,
    /// The method's path for calls over HTTP, if it has one.
    pub path: Option<&'a MethodPath>,
    /// The object that is called, unless the call is to a service.
    pub target: Option<NonZeroU64>,
    /// Time left, microseconds.
    pub deadline_us: Option<u64>,
    /// Keys and values beside the payload.
    pub metadata: Option<Metadata>,
    /// Whether to compress the payload, if the transport can do that and the peer reads it.
    pub compress: Compress,
    /// For a call that a client begins: the compression to use in place of the connection's options.
    pub encoding: Option<Encoding>,
    /// The payload.
    pub body: Body<'a>,
}

impl<'a> Outgoing<'a> {
    /// The arguments are a map by name.
    pub const NAMED: u8 = flags::NAMED;
    /// In an error: the call was not begun.
    pub const UNBEGUN: u8 = flags::UNBEGUN;
    /// See [`flags::UNREAD`].
    pub const UNREAD: u8 = flags::UNREAD;
    /// See [`flags::LAST`].
    pub const LAST: u8 = flags::LAST;
    /// The caller does not wait for a reply.
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
