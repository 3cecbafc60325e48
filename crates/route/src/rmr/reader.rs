//! Messages out of the bytes of a connection, however these are cut. No input or output happens here.

use super::frame::{Broken, Frame, length};

/// The bytes of one connection that are not handled yet.
#[derive(Debug)]
pub struct Reader {
    bytes: Vec<u8>,
    /// Where the next message begins.
    at: usize,
    /// Bytes of the longest message.
    most: usize,
}

impl Reader {
    /// `most` is the length of the longest message in bytes.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), at: 0, most }
    }

    /// Takes bytes that have come. Only what has come takes memory, whatever a message says of its length.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.at == self.bytes.len() {
            self.bytes.clear();
            // A connection that once had a long message keeps no memory for the next one.
            self.bytes.shrink_to(KEPT_BYTES);
        } else if self.at > 0 {
            self.bytes.drain(..self.at);
        }
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message, if all of it is there.
    ///
    /// # Errors
    /// The bytes are no messages of RMR. Nothing after that can be read.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, Broken> {
        let rest = &self.bytes[self.at..];
        let Some(len) = length(rest, self.most)? else { return Ok(None) };
        let Some(frame) = rest.get(..len) else { return Ok(None) };
        let frame = Frame::read(frame)?;
        self.at += len;
        Ok(Some(frame))
    }

    /// Gives the last message back: [`next_frame`](Self::next_frame) finds it again.
    pub fn put_back(&mut self, len: usize) {
        self.at -= len;
    }

    /// Bytes of the message that is not whole yet, or is not handled yet.
    #[must_use]
    pub fn unread(&self) -> usize {
        self.bytes.len() - self.at
    }
}

/// Bytes of memory that a connection keeps.
const KEPT_BYTES: usize = 128 * 1024;

#[cfg(test)]
mod tests {
    use super::super::frame::Fields;
    use super::*;

    fn message(payload: &[u8]) -> Vec<u8> {
        let fields = Fields {
            kind: 1,
            subscription: -1,
            transaction: b"",
            entity: b"",
            trace: b"",
            call: 0,
            source: b"a:1",
            source_address: b"",
        };
        let mut out = Vec::new();
        fields.write(payload.len(), &mut |bytes| out.extend_from_slice(bytes));
        out.extend(payload);
        out
    }

    #[test]
    fn messages_come_out_however_they_are_cut() {
        let sent = [message(b""), message(b"one"), message(&[7; 5000])].concat();
        for piece in [1, 2, 8, 49, 51, 330, 333, 1000, sent.len()] {
            let mut reader = Reader::new(6000);
            let mut seen = Vec::new();
            for piece in sent.chunks(piece) {
                reader.push(piece);
                while let Some(frame) = reader.next_frame().unwrap() {
                    seen.push(frame.payload().to_vec());
                }
            }
            assert_eq!(seen, [vec![], b"one".to_vec(), vec![7; 5000]]);
            assert_eq!(reader.unread(), 0);
        }
    }

    #[test]
    fn a_message_can_be_put_back() {
        let mut reader = Reader::new(6000);
        reader.push(&[message(b"one"), message(b"two")].concat());
        let len = reader.next_frame().unwrap().unwrap().bytes().len();
        reader.put_back(len);
        assert_eq!(reader.unread(), 2 * len);
        assert_eq!(reader.next_frame().unwrap().unwrap().payload(), b"one");
        reader.push(b"");
        assert_eq!(reader.next_frame().unwrap().unwrap().payload(), b"two");
    }

    #[test]
    fn a_wrong_length_is_seen_before_the_message_is_there() {
        let mut reader = Reader::new(1000);
        reader.push(&message(&[0; 2000])[..9]);
        assert_eq!(reader.next_frame().unwrap_err(), Broken::Long { len: 2334, most: 1000 });
        let mut reader = Reader::new(1000);
        reader.push(&[0; 9]);
        assert_eq!(reader.next_frame().unwrap_err(), Broken::Short(0));
    }
}
