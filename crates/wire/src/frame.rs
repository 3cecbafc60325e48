//! The head of a frame.
//!
//! ```text
//! u8 kind | u8 flags | u16 method | u32 call
//! u64 deadline, microseconds left          if DEADLINE
//! u64 target, the object that is called    if TARGET
//! u32 length, metadata                     if METADATA
//! u32 count, count × u64 lengths           if PARTS
//! payload
//! ```
//! All numbers are little-endian. The transport decides how a frame is delimited.

use std::num::NonZeroU64;

use crate::malformed::Malformed;
use crate::metadata::Metadata;
use crate::payload::PartsTable;

/// Bytes of the fixed part of a frame's head.
pub const HEAD_LEN: usize = 8;

/// Bits of a frame's flags.
pub mod flags {
    /// The call has a deadline.
    pub const DEADLINE: u8 = 1;
    /// Metadata follows the head.
    pub const METADATA: u8 = 2;
    /// The payload is a body and buffers beside it.
    pub const PARTS: u8 = 4;
    /// The arguments are a map by name, because some were left out.
    pub const NAMED: u8 = 8;
    /// In an error frame: the server has not begun the call, which may be sent to another server. Same bit as
    /// [`NAMED`].
    pub const UNBEGUN: u8 = NAMED;
    /// In a GOAWAY frame: this is the server's last frame, and calls that it has not answered were not begun. Same bit
    /// as [`NAMED`].
    pub const LAST: u8 = NAMED;
    /// The caller does not wait for a reply.
    pub const ONEWAY: u8 = 16;
    /// In an error frame: the call was not read, and the references given with it are not held. Same bit as
    /// [`ONEWAY`].
    pub const UNREAD: u8 = ONEWAY;
    /// The frame belongs to a call that the accepting side began.
    pub const BACK: u8 = 32;
    /// The call is to an object that the receiver has given, not to a service.
    pub const TARGET: u8 = 64;
    /// Every bit above.
    pub const ALL: u8 = 127;
    /// The flags that stand alone. The other flags say that a field follows.
    pub const PLAIN: u8 = NAMED | ONEWAY | BACK;
}

/// The purpose of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Begins a call: method and arguments.
    Call = 1,
    /// One item of a stream, either way.
    Item = 2,
    /// The sender's stream is complete. From a server, this also ends the call successfully.
    End = 3,
    /// The result of a call that returns one value.
    Reply = 4,
    /// The call failed; payload is a [`Failure`](crate::Failure).
    Error = 5,
    /// The caller has cancelled the call.
    Cancel = 6,
    /// The receiver of a stream has room for this many more bytes (payload: u64).
    Credit = 7,
    /// Asks for a [`Kind::Pong`] with the same payload.
    Ping = 8,
    /// Answers a [`Kind::Ping`].
    Pong = 9,
    /// The server accepts no new calls on this connection, and finishes those that it has begun.
    GoAway = 10,
    /// The server's initial metadata for a call, before its first item or its end.
    Head = 11,
    /// The sender holds references less often now (payload: [`Released`](crate::Released)).
    Release = 12,
}

impl Kind {
    /// Whether the frame is a ping or the answer to one.
    #[inline]
    #[must_use]
    pub fn is_ping(self) -> bool {
        matches!(self, Self::Ping | Self::Pong)
    }

    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Call,
            2 => Self::Item,
            3 => Self::End,
            4 => Self::Reply,
            5 => Self::Error,
            6 => Self::Cancel,
            7 => Self::Credit,
            8 => Self::Ping,
            9 => Self::Pong,
            10 => Self::GoAway,
            11 => Self::Head,
            12 => Self::Release,
            _ => return None,
        })
    }
}

/// A frame's head, decoded, or to be encoded in front of a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameHead {
    /// The frame's purpose.
    pub kind: Kind,
    /// The flags in [`flags::PLAIN`]. The other flags follow from the fields below.
    pub flags: u8,
    /// Index of the method in the server's description (calls only).
    pub method: u16,
    /// The number of the frame's call, chosen by the caller.
    pub call: u32,
    /// The object that is called, unless the call is to a service (calls only). Not in `extras`, because calls of
    /// objects are frequent.
    pub target: Option<NonZeroU64>,
    /// The fields that most frames do not have.
    extras: Option<Box<Extras>>,
}

/// The optional fields of a frame's head, kept apart so that the usual head is small.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Extras {
    /// Time left for the call, microseconds.
    pub deadline_us: Option<u64>,
    /// Keys and values beside the payload.
    pub metadata: Option<Metadata>,
    /// How the payload divides into a body and buffers.
    pub parts: Option<PartsTable>,
}

impl FrameHead {
    /// A head without options.
    #[must_use]
    pub fn new(kind: Kind, call: u32) -> Self {
        Self { kind, flags: 0, method: 0, call, target: None, extras: None }
    }

    /// Takes the head out. What stays has no optional field.
    #[inline]
    #[must_use]
    pub fn take(&mut self) -> Self {
        let Self { kind, flags, method, call, target, .. } = *self;
        Self { kind, flags, method, call, target, extras: self.extras.take() }
    }

    /// The optional fields, if there are any.
    #[inline]
    #[must_use]
    pub fn extras(&self) -> Option<&Extras> {
        self.extras.as_deref()
    }

    /// The optional fields, created if there are none.
    pub fn extras_mut(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    /// Keys and values beside the payload.
    #[inline]
    #[must_use]
    pub fn metadata(&self) -> Option<&Metadata> {
        self.extras().and_then(|extras| extras.metadata.as_ref())
    }

    /// Time left for the call, microseconds.
    #[inline]
    #[must_use]
    pub fn deadline_us(&self) -> Option<u64> {
        self.extras().and_then(|extras| extras.deadline_us)
    }

    /// The encoded head of a frame without options: the fast path.
    #[inline]
    #[must_use]
    pub fn plain(kind: Kind, flags: u8, method: u16, call: u32) -> [u8; HEAD_LEN] {
        let method = method.to_le_bytes();
        let call = call.to_le_bytes();
        [kind as u8, flags, method[0], method[1], call[0], call[1], call[2], call[3]]
    }

    /// The encoded head of a call of an object without other options.
    #[inline]
    #[must_use]
    pub fn plain_to(target: NonZeroU64, flags: u8, method: u16, call: u32) -> [u8; HEAD_LEN + 8] {
        let mut head = [0; HEAD_LEN + 8];
        head[..HEAD_LEN].copy_from_slice(&Self::plain(Kind::Call, flags | flags::TARGET, method, call));
        head[HEAD_LEN..].copy_from_slice(&target.get().to_le_bytes());
        head
    }

    /// Appends the encoded head to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut bits = self.flags & flags::PLAIN;
        let none = Extras::default();
        let extras = self.extras().unwrap_or(&none);
        bits |= if extras.deadline_us.is_some() { flags::DEADLINE } else { 0 };
        bits |= if self.target.is_some() { flags::TARGET } else { 0 };
        bits |= if extras.metadata.is_some() { flags::METADATA } else { 0 };
        bits |= if extras.parts.is_some() { flags::PARTS } else { 0 };
        out.extend_from_slice(&Self::plain(self.kind, bits, self.method, self.call));
        if let Some(deadline) = extras.deadline_us {
            out.extend_from_slice(&deadline.to_le_bytes());
        }
        if let Some(target) = self.target {
            out.extend_from_slice(&target.get().to_le_bytes());
        }
        if let Some(metadata) = &extras.metadata {
            metadata.encode(out);
        }
        if let Some(parts) = &extras.parts {
            parts.encode(out);
        }
    }

    /// Reads the head of `frame`. The payload begins at the returned offset.
    ///
    /// # Errors
    /// [`Malformed`] for anything that this protocol does not allow. Never panics, whatever the bytes.
    #[inline]
    pub fn decode(frame: &[u8]) -> Result<(Self, usize), Malformed> {
        let Some((head, rest)) = frame.split_first_chunk::<HEAD_LEN>() else {
            return Err(Malformed("a frame is shorter than its head"));
        };
        let mut this = Self::new(Kind::Call, 0);
        if !this.set_usual(*head) {
            return Err(Malformed("a frame is of a kind that its receiver does not know"));
        }
        let bits = head[1];
        if bits & !flags::PLAIN == 0 {
            return Ok((this, HEAD_LEN));
        }
        if bits & !flags::ALL != 0 {
            return Err(Malformed("a frame has a flag that its receiver does not know"));
        }
        if bits & !flags::PLAIN == flags::TARGET {
            // The usual call of an object: no other field.
            this.target = Some(this.read_target(rest)?);
            return Ok((this, HEAD_LEN + 8));
        }
        let mut rest = rest;
        if bits & flags::DEADLINE != 0 {
            let (deadline, after) =
                rest.split_first_chunk::<8>().ok_or(Malformed("a frame ends inside its deadline"))?;
            this.extras_mut().deadline_us = Some(u64::from_le_bytes(*deadline));
            rest = after;
        }
        if bits & flags::TARGET != 0 {
            this.target = Some(this.read_target(rest)?);
            rest = &rest[8..];
        }
        if bits & flags::METADATA != 0 {
            let (metadata, after) = Metadata::decode(rest)?;
            this.extras_mut().metadata = Some(metadata);
            rest = after;
        }
        if bits & flags::PARTS != 0 {
            let (parts, after) = PartsTable::decode(rest)?;
            this.extras_mut().parts = Some(parts);
            rest = after;
        }
        Ok((this, frame.len() - rest.len()))
    }

    /// Fills a [new](FrameHead::new) head from a frame, if that has no optional field. Whether it did; if not, only
    /// [`FrameHead::decode`] can say what the frame is.
    #[inline]
    #[must_use]
    pub fn fill(&mut self, frame: &[u8]) -> bool {
        match frame.first_chunk::<HEAD_LEN>() {
            Some(head) if head[1] & !flags::PLAIN == 0 => self.set_usual(*head),
            _ => false,
        }
    }

    /// Sets the fields that every head has, unless the kind is unknown. Whether it did.
    #[inline]
    fn set_usual(&mut self, head: [u8; HEAD_LEN]) -> bool {
        let Some(kind) = Kind::from_byte(head[0]) else { return false };
        self.kind = kind;
        self.flags = head[1] & flags::PLAIN;
        self.method = u16::from_le_bytes([head[2], head[3]]);
        self.call = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        true
    }

    fn read_target(&self, rest: &[u8]) -> Result<NonZeroU64, Malformed> {
        if self.kind != Kind::Call {
            return Err(Malformed("a frame that begins no call names an object"));
        }
        let id = rest.first_chunk::<8>().ok_or(Malformed("a frame ends inside the name of an object"))?;
        NonZeroU64::new(u64::from_le_bytes(*id)).ok_or(Malformed("0 names no object"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_with_every_option_comes_back() {
        let mut metadata = Metadata::default();
        metadata.push("trace", b"abc");
        let head = FrameHead {
            kind: Kind::Call,
            flags: flags::NAMED | flags::BACK,
            method: 513,
            call: u32::MAX,
            target: NonZeroU64::new(7 << 40),
            extras: Some(Box::new(Extras {
                deadline_us: Some(1_500_000),
                metadata: Some(metadata),
                parts: Some(PartsTable::of(&[3, 4])),
            })),
        };
        let mut frame = Vec::new();
        head.encode(&mut frame);
        let payload_at = frame.len();
        frame.extend_from_slice(b"bodyabcdefg");
        assert_eq!(FrameHead::decode(&frame), Ok((head, payload_at)));
    }

    #[test]
    fn a_frame_cut_anywhere_in_its_head_is_refused() {
        let mut metadata = Metadata::default();
        metadata.push("key", b"value");
        let mut head = FrameHead::new(Kind::Call, 7);
        head.target = NonZeroU64::new(9);
        head.extras_mut().deadline_us = Some(1);
        head.extras_mut().metadata = Some(metadata);
        head.extras_mut().parts = Some(PartsTable::of(&[1]));
        let mut frame = Vec::new();
        head.encode(&mut frame);
        for cut in 0..frame.len() {
            assert!(FrameHead::decode(&frame[..cut]).is_err(), "cut at {cut}");
        }
        assert!(FrameHead::decode(&frame).is_ok());
    }

    #[test]
    fn the_call_of_an_object_names_it() {
        let target = NonZeroU64::new(u64::MAX - 1).expect("not 0");
        let frame = FrameHead::plain_to(target, flags::BACK | flags::ONEWAY, 3, 8);
        let mut head = FrameHead::new(Kind::Call, 8);
        (head.method, head.flags, head.target) = (3, flags::BACK | flags::ONEWAY, Some(target));
        assert_eq!(FrameHead::decode(&frame), Ok((head.clone(), frame.len())));
        let mut encoded = Vec::new();
        head.encode(&mut encoded);
        assert_eq!(encoded, frame);
        assert!(FrameHead::decode(&frame[..15]).is_err(), "cut off");
        assert!(FrameHead::decode(&[1, flags::TARGET, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).is_err(), "0");
        assert!(FrameHead::decode(&[2, flags::TARGET, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]).is_err(), "an item");
    }

    #[test]
    fn unknown_kinds_and_flags_are_refused() {
        assert!(FrameHead::decode(&[0, 0, 0, 0, 0, 0, 0, 0]).is_err());
        assert!(FrameHead::decode(&[13, 0, 0, 0, 0, 0, 0, 0]).is_err());
        assert!(FrameHead::decode(&[1, 128, 0, 0, 0, 0, 0, 0]).is_err());
    }
}
