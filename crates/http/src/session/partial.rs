//! Frames of which only a part has been processed.

use crate::event::StreamId;

/// A DATA frame that is being handed out. Its bytes are next in the input.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arriving {
    pub(super) stream: StreamId,
    /// How many of its bytes are left.
    pub(super) left: usize,
    /// Bytes of padding after it.
    pub(super) padding: usize,
    pub(super) ended: bool,
}

/// A header block that is not complete.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) stream: StreamId,
    pub(super) bytes: Vec<u8>,
    pub(super) ended: bool,
    pub(super) depends_on_itself: bool,
}
