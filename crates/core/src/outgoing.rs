//! A frame about to be sent.

use std::num::NonZeroU64;

use nearcall_transport::{Link, LinkError, Room, Sent};
use nearcall_wire::{FrameHead, Kind, Metadata, PartsTable, flags};

/// A payload in pieces: the codec's bytes and buffers beside them, or one buffer that is the payload.
#[derive(Debug, Clone, Copy)]
pub enum Body<'a> {
    /// The payload as it is.
    Whole(&'a [u8]),
    /// A body, and buffers beside it.
    Parts(&'a [u8], &'a [&'a [u8]]),
}

impl Body<'_> {
    /// Bytes in all.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Whole(bytes) => bytes.len(),
            Self::Parts(body, buffers) => body.len() + buffers.iter().map(|buffer| buffer.len()).sum::<usize>(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A frame to send.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// What it is for.
    pub kind: Kind,
    /// [`Outgoing::NAMED`] and [`Outgoing::ONEWAY`].
    pub flags: u8,
    /// Index of the method, for calls.
    pub method: u16,
    /// The object that is called, if it is no service.
    pub target: Option<NonZeroU64>,
    /// What comes back may hold references (calls only; not sent).
    pub references: bool,
    /// Time left, microseconds.
    pub deadline_us: Option<u64>,
    /// Keys and values beside the payload.
    pub metadata: Option<Metadata>,
    /// The payload.
    pub body: Body<'a>,
}

impl<'a> Outgoing<'a> {
    /// The arguments are a map by name.
    pub const NAMED: u8 = flags::NAMED;
    /// Nobody waits for a reply.
    pub const ONEWAY: u8 = flags::ONEWAY;

    /// A frame without options.
    #[must_use]
    pub fn new(kind: Kind, body: Body<'a>) -> Self {
        Self { kind, flags: 0, method: 0, target: None, references: false, deadline_us: None, metadata: None, body }
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

    /// Sends it as a frame of that call. `side` says which side began it: [`flags::BACK`] if the accepting one did, or 0.
    #[inline]
    pub(crate) fn send(&self, call: u32, side: u8, link: &dyn Link, room: Room<'_>) -> Result<Sent, LinkError> {
        self.framed(call, self.flags | side, |head, payload| link.send(head, payload, room))
    }

    #[inline]
    fn framed(
        &self,
        call: u32,
        flags: u8,
        send: impl FnOnce(&[u8], &[&[u8]]) -> Result<Sent, LinkError>,
    ) -> Result<Sent, LinkError> {
        if let (Body::Whole(bytes), None, None) = (self.body, self.deadline_us, &self.metadata) {
            return match self.target {
                None => send(&FrameHead::plain(self.kind, flags, self.method, call), &[bytes]),
                Some(target) => send(&FrameHead::plain_to(target, flags, self.method, call), &[bytes]),
            };
        }
        if let Some(metadata) = &self.metadata
            && metadata.pairs().len() > Metadata::MOST_PAIRS
        {
            return Err(LinkError::TooManyPairs { pairs: metadata.pairs().len(), limit: Metadata::MOST_PAIRS });
        }
        let mut head = FrameHead::new(self.kind, call);
        head.flags = flags;
        head.target = self.target;
        head.method = self.method;
        if self.deadline_us.is_some() || self.metadata.is_some() {
            head.extras_mut().deadline_us = self.deadline_us;
            head.extras_mut().metadata.clone_from(&self.metadata);
        }
        let mut pieces = Vec::new();
        match self.body {
            Body::Whole(bytes) => pieces.push(bytes),
            Body::Parts(body, buffers) => {
                let lengths: Vec<usize> = buffers.iter().map(|buffer| buffer.len()).collect();
                head.extras_mut().parts = Some(PartsTable::of(&lengths));
                pieces.reserve(buffers.len() + 1);
                pieces.push(body);
                pieces.extend_from_slice(buffers);
            }
        }
        let mut encoded = Vec::with_capacity(64);
        head.encode(&mut encoded);
        send(&encoded, &pieces)
    }
}
