//! Frames as nearcall's own wires carry them, sockets and shared memory alike: a head of `nearcall_wire`, then the payload.
//! How a frame is delimited is each wire's own business.

use nearcall_wire::{FrameHead, Metadata, PartsTable};

use crate::link::{LinkError, Sent};
use crate::outbox::Frame;
use crate::outgoing::{Body, CallKey, Outgoing};

/// Encodes a frame, and hands it to `send`. A frame without options needs no allocation.
///
/// # Errors
/// [`LinkError::TooManyPairs`], or what `send` says.
#[inline]
pub(crate) fn encoded(
    call: CallKey,
    frame: &Outgoing<'_>,
    send: impl FnOnce(&Frame<'_>) -> Result<Sent, LinkError>,
) -> Result<Sent, LinkError> {
    let flags = frame.flags | call.side;
    if let (Body::Whole(bytes), None, None) = (frame.body, frame.deadline_us, &frame.metadata) {
        let payload = [bytes];
        return match frame.target {
            None => send(&Frame::new(&FrameHead::plain(frame.kind, flags, frame.method, call.number), &payload)),
            Some(target) => send(&Frame::new(&FrameHead::plain_to(target, flags, frame.method, call.number), &payload)),
        };
    }
    let mut pieces = Vec::new();
    let head = head(call, frame, &mut pieces)?;
    send(&Frame::new(&head, &pieces))
}

/// The head of a frame with options; the pieces of its payload are added to `pieces`.
#[inline(never)]
fn head<'a>(call: CallKey, frame: &Outgoing<'a>, pieces: &mut Vec<&'a [u8]>) -> Result<Vec<u8>, LinkError> {
    if let Some(metadata) = &frame.metadata
        && metadata.pairs().len() > Metadata::MOST_PAIRS
    {
        return Err(LinkError::TooManyPairs { pairs: metadata.pairs().len(), limit: Metadata::MOST_PAIRS });
    }
    let mut head = FrameHead::new(frame.kind, call.number);
    head.flags = frame.flags | call.side;
    head.target = frame.target;
    head.method = frame.method;
    if frame.deadline_us.is_some() || frame.metadata.is_some() {
        head.extras_mut().deadline_us = frame.deadline_us;
        head.extras_mut().metadata.clone_from(&frame.metadata);
    }
    match frame.body {
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
    Ok(encoded)
}
