//! Frames of which only a part has been dealt with.

use crate::event::StreamId;

/// A DATA frame that is being handed out. Its bytes are the next of the input.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arriving {
    pub(super) stream: StreamId,
    /// Bytes that are left of it.
    pub(super) left: usize,
    /// Bytes of padding after it.
    pub(super) padding: usize,
    pub(super) ended: bool,
}

/// A header block whose end has not come.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) stream: StreamId,
    pub(super) bytes: Vec<u8>,
    pub(super) ended: bool,
    pub(super) depends_on_itself: bool,
}
