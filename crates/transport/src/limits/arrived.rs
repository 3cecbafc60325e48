//! Bytes that were read from a socket and not taken yet.
//!
//! Sockets are read into large buffers, and most connections are idle: thousands of them, perhaps. So the buffers are the
//! threads', not the connections': who reads takes that of its thread, and gives it back when everything in it was taken.

use std::cell::RefCell;

/// The most that one read takes.
pub(crate) const LEN: usize = 64 << 10;
/// Buffers that a thread keeps: one for a link, one for the encryption below it.
const SPARES: usize = 2;

thread_local! {
    static BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

fn take_buffer() -> Vec<u8> {
    // A thread that is ending has no buffers any more, here and below. Pages of a new one that nothing is read into cost
    // nothing.
    BUFFERS.try_with(|buffers| buffers.borrow_mut().pop()).ok().flatten().unwrap_or_else(|| vec![0; LEN])
}

fn give_back(buffer: Vec<u8>) {
    let _ = BUFFERS.try_with(|buffers| {
        let mut buffers = buffers.borrow_mut();
        if buffer.len() == LEN && buffers.len() < SPARES {
            buffers.push(buffer);
        }
    });
}

/// See above. Without memory while it is empty and nobody reads.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    /// A buffer of a thread, `LEN` bytes, or memory of its own, shorter.
    buffer: Vec<u8>,
    /// `start..end` has arrived.
    start: usize,
    end: usize,
}

impl Arrived {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Where to read into: none if `LEN` bytes are here that nobody takes.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.buffer.len() < LEN {
            let mut buffer = take_buffer();
            buffer[..self.end - self.start].copy_from_slice(self.bytes());
            self.buffer = buffer;
            (self.start, self.end) = (0, self.end - self.start);
        } else if self.end == LEN {
            self.buffer.copy_within(self.start.., 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.buffer[self.end..]
    }

    /// `len` bytes were read into the space.
    pub(crate) fn add(&mut self, len: usize) {
        self.end += len;
    }

    /// The first `len` bytes were taken.
    pub(crate) fn consume(&mut self, len: usize) {
        self.start += len;
        if self.start == self.end {
            self.rest();
        }
    }

    /// Nothing more is there to read. Gives the buffer back; few bytes that are left in it get memory of their own, so that
    /// a peer has to send a good part of what it makes us keep. Returns how much that is.
    pub(crate) fn rest(&mut self) -> usize {
        let left = self.end - self.start;
        if left <= LEN / 4 && left < self.buffer.len() {
            let own = self.bytes().to_vec();
            give_back(std::mem::replace(&mut self.buffer, own));
            (self.start, self.end) = (0, left);
        }
        self.buffer.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `bytes` as a socket would.
    fn read(arrived: &mut Arrived, bytes: &[u8]) {
        arrived.space()[..bytes.len()].copy_from_slice(bytes);
        arrived.add(bytes.len());
    }

    #[test]
    fn whoever_has_nothing_keeps_nothing_and_the_next_one_reads_into_the_same_buffer() {
        let (mut one, mut other) = (Arrived::default(), Arrived::default());
        read(&mut one, b"frame");
        let place = one.bytes().as_ptr();
        one.consume(5);
        assert_eq!((one.rest(), one.buffer.capacity()), (0, 0));
        read(&mut other, b"another");
        assert_eq!((other.bytes(), other.bytes().as_ptr()), (&b"another"[..], place));
    }

    #[test]
    fn half_a_frame_keeps_its_own_length_and_is_read_on() {
        let mut arrived = Arrived::default();
        read(&mut arrived, b"a whole one, half");
        arrived.consume(13);
        assert_eq!((arrived.rest(), arrived.bytes()), (4, &b"half"[..]));
        assert_eq!((arrived.rest(), arrived.buffer.capacity()), (4, 4), "as often as one looks");
        read(&mut arrived, b" a frame");
        assert_eq!(arrived.bytes(), b"half a frame");
        arrived.consume(12);
        assert!(arrived.is_empty() && arrived.buffer.capacity() == 0);
    }

    #[test]
    fn what_fills_a_good_part_of_a_buffer_is_not_moved() {
        let mut arrived = Arrived::default();
        read(&mut arrived, &vec![7; LEN / 4 + 1]);
        let place = arrived.bytes().as_ptr();
        assert_eq!((arrived.rest(), arrived.bytes().as_ptr()), (LEN, place));
    }

    #[test]
    fn a_full_buffer_makes_room_by_moving_what_is_left() {
        let mut arrived = Arrived::default();
        read(&mut arrived, &vec![1; LEN]);
        assert!(arrived.space().is_empty(), "nothing was taken");
        arrived.consume(LEN - 3);
        assert_eq!(arrived.space().len(), LEN - 3);
        read(&mut arrived, &[2; 4]);
        assert_eq!(arrived.bytes(), [1, 1, 1, 2, 2, 2, 2]);
    }

    #[test]
    fn a_thread_keeps_as_many_buffers_as_one_read_needs() {
        let mut all: Vec<Arrived> = (0..5).map(|_| Arrived::default()).collect();
        for arrived in &mut all {
            read(arrived, b"x");
        }
        for arrived in &mut all {
            arrived.consume(1);
        }
        assert_eq!(BUFFERS.with(|buffers| buffers.borrow().len()), SPARES);
    }
}
