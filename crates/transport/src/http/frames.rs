//! What frames of the core are made of messages, and messages of frames.

use std::collections::VecDeque;
use std::sync::Arc;

use nearcall_http::SendError;
use nearcall_wire::{FrameHead, Kind, Metadata};
use smallvec::SmallVec;

use crate::budget::Account;
use crate::errors::LinkError;
use crate::incoming::{INLINE, Incoming, is_free};
use crate::outgoing::{Body, Compress, Outgoing};

/// Frames for the core that wait to be received.
pub(super) type Frames = VecDeque<Incoming>;

/// A frame for the core with a message in it, charged to the peer's account whatever that says: a peer that is over its
/// budget gets no more credit.
pub(super) fn with_message(head: FrameHead, message: SmallVec<[u8; INLINE]>, account: &Arc<Account>) -> Incoming {
    let cost = message.len() + head.metadata().map_or(0, Metadata::held);
    let charge = (!is_free(cost)).then(|| account.charge_anyway(cost));
    Incoming::charged(head, message, charge)
}

/// A frame for the core without a payload.
pub(super) fn bare(kind: Kind, call: u32) -> Incoming {
    Incoming::new(FrameHead::new(kind, call), &[])
}

/// A frame that gives the core credit.
pub(super) fn credit(call: u32, bytes: i64) -> Incoming {
    Incoming::new(FrameHead::new(Kind::Credit, call), &bytes.to_le_bytes())
}

/// Messages that are shorter than this are not compressed, bytes: that would save less than it costs.
const WORTH_COMPRESSING: usize = 1024;

/// Whether a frame's message is compressed, if it can be. `usually`: messages are, if nothing is said of them.
pub(super) fn compresses(frame: &Outgoing<'_>, usually: bool) -> bool {
    match frame.compress {
        Compress::AsUsual => usually && frame.len() >= WORTH_COMPRESSING,
        Compress::Yes => true,
        Compress::No | Compress::NotThis => false,
    }
}

/// The one message that a frame's payload is, end to end.
pub(super) fn message<'f, 'a>(frame: &'f Outgoing<'a>) -> Result<&'f [&'a [u8]], LinkError> {
    match &frame.body {
        Body::Whole(bytes) => Ok(std::slice::from_ref(bytes)),
        Body::Pieces(pieces) => Ok(pieces),
        Body::Parts(..) => Err(LinkError::Unfit("over HTTP there are no messages with buffers beside them".into())),
    }
}

/// The payload of a frame of the core's own, which is short.
pub(super) fn short<'a>(frame: &Outgoing<'a>) -> &'a [u8] {
    if let Body::Whole(bytes) = frame.body { bytes } else { &[] }
}

/// What a failure to send means to the core; `Ok` if nobody is there any more to be sent to.
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
