//! Bytes that were read and not yet processed.

use crate::frame::{HEAD, LONGEST};

/// The first size of the buffer, so that a quiet connection takes little memory.
const FIRST_BUFFER: usize = 4096;
/// The largest size, for a busy connection: four of the longest frames.
const MAX_BUFFER: usize = 4 * (HEAD + LONGEST);
/// After so many reads that fill less than a quarter of it, the buffer shrinks again.
const SMALL_READS: u32 = 256;

#[derive(Debug, Default)]
pub(crate) struct Input {
    buffer: Vec<u8>,
    /// Bytes of `buffer` that hold data: `start..end`.
    start: usize,
    end: usize,
    small_reads: u32,
}

impl Input {
    /// Bytes that are not yet processed.
    pub(crate) fn data(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    /// Marks the next `len` bytes as processed.
    pub(crate) fn skip(&mut self, len: usize) {
        self.start += len;
        debug_assert!(self.start <= self.end, "only what is there");
    }

    /// The last `len` of the skipped bytes.
    pub(crate) fn skipped(&self, len: usize) -> &[u8] {
        &self.buffer[self.start - len..self.start]
    }

    /// Room to read into, never empty.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.small_reads > SMALL_READS && self.buffer.len() > FIRST_BUFFER {
                self.buffer = vec![0; FIRST_BUFFER];
                self.small_reads = 0;
            }
        }
        if self.start > 0 && self.buffer.len() - self.end < self.buffer.len() / 4 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.buffer.len() {
            let len = (self.buffer.len() * 2).clamp(FIRST_BUFFER, MAX_BUFFER.max(self.end + FIRST_BUFFER));
            self.buffer.resize(len, 0);
        }
        &mut self.buffer[self.end..]
    }

    pub(crate) fn arrived(&mut self, len: usize) {
        assert!(len <= self.buffer.len() - self.end, "more has arrived than there was room for");
        self.end += len;
        let is_small = self.end < self.buffer.len() / 4;
        self.small_reads = if is_small { self.small_reads + 1 } else { 0 };
        // The buffer is full, so the next read may be larger.
        if self.end == self.buffer.len() && self.buffer.len() < MAX_BUFFER {
            self.buffer.resize((self.buffer.len() * 2).min(MAX_BUFFER), 0);
        }
    }

    /// Adds bytes that were read elsewhere.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let space = self.space();
            let len = space.len().min(bytes.len());
            space[..len].copy_from_slice(&bytes[..len]);
            self.arrived(len);
            bytes = &bytes[len..];
        }
    }

    pub(crate) fn held(&self) -> usize {
        self.buffer.len()
    }
}
