//! Converts messages to the core's frames, and frames to messages.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use nearcall_http::{Compressing, SendError};
use nearcall_wire::{FrameHead, Kind, Metadata};
use smallvec::SmallVec;

use crate::errors::LinkError;
use crate::frame::incoming::{INLINE, Incoming, is_free};
use crate::frame::outgoing::{Body, Compress, Outgoing};
use crate::limits::budget::Account;

/// Frames for the core that wait to be received.
pub(super) type Frames = VecDeque<Incoming>;

/// A frame for the core with a message in it. Its memory is charged to the peer's account even when that is full: a
/// peer over its budget gets no more credit.
pub(super) fn with_message(head: FrameHead, message: SmallVec<[u8; INLINE]>, account: &Arc<Account>) -> Incoming {
    let cost = message.len() + head.metadata().map_or(0, Metadata::held);
    let charge = (!is_free(cost)).then(|| account.charge_anyway(cost));
    Incoming::charged(head, message, charge)
}

/// A message of a session, for a frame.
pub(super) fn owned(message: Cow<'_, [u8]>) -> SmallVec<[u8; INLINE]> {
    match message {
        Cow::Borrowed(bytes) => SmallVec::from_slice(bytes),
        Cow::Owned(bytes) => SmallVec::from_vec(bytes),
    }
}

/// A frame for the core without a payload.
pub(super) fn bare(kind: Kind, call: u32) -> Incoming {
    Incoming::new(FrameHead::new(kind, call), &[])
}

/// A frame that gives the core credit.
pub(super) fn credit(call: u32, bytes: i64) -> Incoming {
    Incoming::new(FrameHead::new(Kind::Credit, call), &bytes.to_le_bytes())
}

/// Messages shorter than this, in bytes, are not compressed: that would save less than it costs.
const WORTH_COMPRESSING: usize = 1024;

/// Whether to compress a frame's message, if it can be. `usually`: what happens if the frame does not say.
pub(super) fn compresses(frame: &Outgoing<'_>, usually: bool) -> Compressing {
    match frame.compress {
        Compress::AsUsual if usually && frame.len() >= WORTH_COMPRESSING => Compressing::IfShorter,
        Compress::Yes => Compressing::Always,
        Compress::AsUsual | Compress::No | Compress::NotThis => Compressing::No,
    }
}

/// The pieces of a frame's payload, which together are one message.
pub(super) fn message<'f, 'a>(frame: &'f Outgoing<'a>) -> Result<&'f [&'a [u8]], LinkError> {
    match &frame.body {
        Body::Whole(bytes) => Ok(std::slice::from_ref(bytes)),
        Body::Pieces(pieces) => Ok(pieces),
        Body::Parts(..) => Err(LinkError::Unfit("over HTTP there are no messages with buffers beside them".into())),
    }
}

/// The payload of a frame that the core made itself, which is short.
pub(super) fn short<'a>(frame: &Outgoing<'a>) -> &'a [u8] {
    if let Body::Whole(bytes) = frame.body { bytes } else { &[] }
}

/// What a failure to send means to the core. `Ok` if the peer is gone: there is nobody to send to.
pub(super) fn unsent(error: SendError) -> Result<(), LinkError> {
    match error {
        SendError::Gone => Ok(()),
        SendError::Unfit(why) => Err(LinkError::Unfit(why)),
        SendError::TooMuchMetadata { len, limit } => Err(LinkError::HeadTooLong { len, limit: limit as u64 }),
        SendError::Occupied => Err(LinkError::Exhausted(error.to_string())),
        SendError::TooLong { len } => Err(LinkError::TooLong { len, limit: u64::from(u32::MAX) }),
        other @ (SendError::TooManyStreams | SendError::NoMoreIds | SendError::GoingAway) => {
            Err(LinkError::Unfit(other.to_string()))
        }
    }
}
