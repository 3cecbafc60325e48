//! What is to be written.

use crate::code::{Broken, Code};
use crate::frame;

/// DATA is put here only while there is less than this: what waits per stream can still be ordered anew, and replies to
/// pings do not wait behind megabytes.
pub(crate) const HIGH: usize = 256 << 10;
/// Replies to what a peer asks for that may wait for it to read them, bytes.
const MOST_REPLIES: usize = 256 << 10;
/// Memory that is kept when all has been written.
const KEPT: usize = 64 << 10;

#[derive(Debug, Default)]
pub(crate) struct Output {
    buffer: Vec<u8>,
    written: usize,
    /// Bytes of replies, since all was written the last time.
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

    /// So many bytes are written. `more`: others follow at once, so the memory is kept for them.
    pub(crate) fn sent(&mut self, len: usize, more: bool) {
        assert!(len <= self.len(), "more was sent than there is");
        self.written += len;
        if self.written == self.buffer.len() {
            self.buffer.clear();
            (self.written, self.replies) = (0, 0);
            if self.buffer.capacity() > KEPT && !more {
                self.buffer = Vec::new();
            }
        } else if self.written > KEPT && self.written > self.buffer.len() / 2 {
            self.buffer.drain(..self.written);
            self.written = 0;
        }
    }

    /// A frame that the peer has asked for.
    ///
    /// # Errors
    /// It asks on and on and reads nothing.
    pub(crate) fn reply(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<(), Broken> {
        self.replies += frame::HEAD + payload.len();
        if self.replies > MOST_REPLIES {
            return Err(Broken::new(Code::ENHANCE_YOUR_CALM, "the peer asks for replies and does not read them"));
        }
        frame::put(&mut self.buffer, kind, flags, stream, payload);
        Ok(())
    }
}
