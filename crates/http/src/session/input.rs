//! What has been read and not yet looked at.

use crate::frame::{HEAD, LONGEST};

/// A connection that says little keeps little.
const AT_FIRST: usize = 4096;
/// One that says much is read in larger parts: four of the longest frames.
const MOST: usize = 4 * (HEAD + LONGEST);
/// So many reads that fill less than a quarter make the buffer smaller again.
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
    /// Bytes not yet looked at.
    pub(crate) fn data(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    /// Those bytes have been looked at.
    pub(crate) fn skip(&mut self, len: usize) {
        self.start += len;
        debug_assert!(self.start <= self.end, "only what is there");
    }

    /// So many bytes of those that were skipped last.
    pub(crate) fn skipped(&self, len: usize) -> &[u8] {
        &self.buffer[self.start - len..self.start]
    }

    /// Room to read into, never empty.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.small_reads > SMALL_READS && self.buffer.len() > AT_FIRST {
                self.buffer = vec![0; AT_FIRST];
                self.small_reads = 0;
            }
        }
        if self.start > 0 && self.buffer.len() - self.end < self.buffer.len() / 4 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.buffer.len() {
            let len = (self.buffer.len() * 2).clamp(AT_FIRST, MOST.max(self.end + AT_FIRST));
            self.buffer.resize(len, 0);
        }
        &mut self.buffer[self.end..]
    }

    pub(crate) fn arrived(&mut self, len: usize) {
        assert!(len <= self.buffer.len() - self.end, "more has arrived than there was room for");
        self.end += len;
        let is_small = self.end < self.buffer.len() / 4;
        self.small_reads = if is_small { self.small_reads + 1 } else { 0 };
        // Full: the next part may be larger.
        if self.end == self.buffer.len() && self.buffer.len() < MOST {
            self.buffer.resize((self.buffer.len() * 2).min(MOST), 0);
        }
    }

    /// Bytes that somebody else has read.
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
