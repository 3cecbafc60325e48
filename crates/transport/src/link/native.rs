//! nearcall's own encoding of frames, for sockets and shared memory: a head of `nearcall_wire`, then the payload. In a
//! byte stream, each frame follows its length, `u32`, little-endian.

use nearcall_wire::{FrameHead, HEAD_LEN, Metadata, PartsTable};

use crate::errors::LinkError;
use crate::frame::outgoing::{Body, CallKey, Outgoing};
use crate::link::Sent;
use crate::link::outbox::Frame;

/// Bytes of a frame's length.
pub(crate) const PREFIX: usize = 4;

/// How a reader knows where a frame ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delimited {
    /// By the length in front of the frame.
    ByPrefix,
    /// By the ring's record that holds the frame.
    ByRecord,
}

/// Encodes a frame, and hands it to `send`. A frame without options needs no allocation.
///
/// # Errors
/// [`LinkError::TooManyPairs`], or the error of `send`.
#[inline]
pub(crate) fn encoded(
    delimited: Delimited,
    call: CallKey,
    frame: &Outgoing<'_>,
    send: impl FnOnce(&Frame<'_>) -> Result<Sent, LinkError>,
) -> Result<Sent, LinkError> {
    let flags = frame.flags | call.side;
    // There is always room for the prefix in front. `ByRecord` leaves it out.
    let from = if delimited == Delimited::ByPrefix { 0 } else { PREFIX };
    if let (Body::Whole(bytes), None, None) = (frame.body, frame.deadline_us, &frame.metadata) {
        let payload = [bytes];
        return match frame.target {
            None => {
                let mut head = [0; PREFIX + HEAD_LEN];
                head[PREFIX..].copy_from_slice(&FrameHead::plain(frame.kind, flags, frame.method, call.number));
                put_prefix(&mut head, bytes.len());
                send(&Frame::new(&head[from..], &payload))
            }
            Some(target) => {
                let mut head = [0; PREFIX + HEAD_LEN + 8];
                head[PREFIX..].copy_from_slice(&FrameHead::plain_to(target, flags, frame.method, call.number));
                put_prefix(&mut head, bytes.len());
                send(&Frame::new(&head[from..], &payload))
            }
        };
    }
    let mut pieces = Vec::new();
    let mut head = head(call, frame, &mut pieces)?;
    put_prefix(&mut head, frame.len());
    send(&Frame::new(&head[from..], &pieces))
}

/// Sets the length in front of a head, for a frame with `payload` bytes of payload.
#[inline]
fn put_prefix(head: &mut [u8], payload: usize) {
    let len = (head.len() - PREFIX + payload) as u32;
    head[..PREFIX].copy_from_slice(&len.to_le_bytes());
}

/// The head of a frame with options, behind room for its prefix. Adds the pieces of the payload to `pieces`.
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
        Body::Pieces(all) => pieces.extend_from_slice(all),
        Body::Parts(body, buffers) => {
            let lengths: Vec<usize> = buffers.iter().map(|buffer| buffer.len()).collect();
            head.extras_mut().parts = Some(PartsTable::of(&lengths));
            pieces.reserve(buffers.len() + 1);
            pieces.push(body);
            pieces.extend_from_slice(buffers);
        }
    }
    let mut encoded = Vec::with_capacity(64);
    encoded.extend_from_slice(&[0; PREFIX]);
    head.encode(&mut encoded);
    Ok(encoded)
}
