//! Bytes that are ready to be written.

use crate::code::{Broken, Code};
use crate::frame;

/// DATA is added only while the output is shorter than this. So the order of streams can still change, and replies to
/// pings do not wait behind megabytes.
pub(crate) const HIGH: usize = 256 << 10;
/// The most bytes of replies to a peer's frames that may wait to be read by the peer.
const MAX_REPLY_BYTES: usize = 256 << 10;
/// The most memory that is kept when everything is written.
const KEPT_BYTES: usize = 64 << 10;

#[derive(Debug, Default)]
pub(crate) struct Output {
    buffer: Vec<u8>,
    written: usize,
    /// Bytes of replies since the output was last empty.
    replies: usize,
}

impl Output {
    /// Where frames are appended.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    pub(crate) fn unsent(&self) -> &[u8] {
        &self.buffer[self.written..]
    }

    pub(crate) fn len(&self) -> usize {
        self.buffer.len() - self.written
    }

    /// Notes that `len` bytes are written. `more`: others follow at once, so the memory is kept for them.
    pub(crate) fn sent(&mut self, len: usize, more: bool) {
        assert!(len <= self.len(), "more was sent than there is");
        self.written += len;
        if self.written == self.buffer.len() {
            self.buffer.clear();
            (self.written, self.replies) = (0, 0);
            if self.buffer.capacity() > KEPT_BYTES && !more {
                self.buffer = Vec::new();
            }
        } else if self.written > KEPT_BYTES && self.written > self.buffer.len() / 2 {
            self.buffer.drain(..self.written);
            self.written = 0;
        }
    }

    /// Adds a reply to a frame of the peer.
    ///
    /// # Errors
    /// The peer causes more and more replies and reads none.
    pub(crate) fn reply(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<(), Broken> {
        self.replies += frame::HEAD + payload.len();
        if self.replies > MAX_REPLY_BYTES {
            return Err(Broken::new(Code::ENHANCE_YOUR_CALM, "the peer asks for replies and does not read them"));
        }
        frame::put(&mut self.buffer, kind, flags, stream, payload);
        Ok(())
    }
}
