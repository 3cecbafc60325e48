//! A message as RMR has it on the wire: what it consists of, how it is written and read. No input or output happens here.
//!
//! ```text
//! 50 bytes for the transport | header | trace data | data 1 | data 2 | payload
//! ```
//!
//! The transport's part has the length of all of it twice: as the sender's processor has integers, and from the highest byte
//! down; then a `$`. What follows is not defined. All numbers of the header begin with their highest byte, but for its
//! flags, which are as the sender's processor has them. docs/rmr.md has the places of all fields.

use std::fmt;

/// Bytes before the header.
pub const TRANSPORT: usize = 50;
/// Bytes of the header in the version that is written here.
pub const HEADER: usize = 280;
/// Bytes of the header before it had the sender's address.
const OLD_HEADER: usize = 216;
/// Bytes of the first data beside the payload: the number of a call, and three that are not used.
pub const DATA_1: usize = 4;
/// Bytes of everything before the trace data.
pub const FIXED: usize = TRANSPORT + HEADER;
/// Bytes of the fields for a source and its address, the zero at the end included.
pub const SOURCE: usize = 64;
/// Bytes of the field for a transaction number.
pub const TRANSACTION: usize = 32;
/// Bytes of the field for a managed entity, the zero at the end included.
pub const ENTITY: usize = 32;
/// So many bytes say how long a message is.
pub(crate) const LENGTHS: usize = 9;
/// No message is longer, whatever the limit of a reader: RMR's lengths are signed.
pub const LONGEST: usize = i32::MAX as usize;

/// After two lengths: the second begins with its highest byte.
const MARK: u8 = b'$';
const VERSION: u32 = 3;
const OLD_VERSION: u32 = 2;
/// The flag of a message whose sender waits for a reply.
const CALL: u32 = 4;

/// Where the fields of the header begin, counted from its beginning.
pub mod places {
    #![allow(missing_docs, reason = "they are the names of fields")]
    pub const KIND: usize = 0;
    pub const PAYLOAD_LENGTH: usize = 4;
    pub const VERSION: usize = 8;
    pub const TRANSACTION: usize = 12;
    pub const SOURCE: usize = 76;
    pub const ENTITY: usize = 140;
    pub const FLAGS: usize = 192;
    pub const HEADER_LENGTH: usize = 196;
    pub const TRACE_LENGTH: usize = 200;
    pub const DATA_1_LENGTH: usize = 204;
    pub const DATA_2_LENGTH: usize = 208;
    pub const SUBSCRIPTION: usize = 212;
    pub const SOURCE_ADDRESS: usize = 216;
}

/// Why bytes cannot be a message. Where the next would begin is not known then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// It would be shorter than its own header, or have less than no bytes.
    #[error("a message says that it has {0} bytes, and no message is so short")]
    Short(i32),
    /// It is longer than is allowed.
    #[error("a message says that it has {len} bytes, and {most} is the most")]
    Long {
        /// What it says.
        len: usize,
        /// What is allowed.
        most: usize,
    },
    /// Its header is of a version that is not known.
    #[error("a message is of version {0} of the header, and those from 2 on are known")]
    Version(u32),
    /// The lengths of its parts do not fit into it.
    #[error("the parts of a message are longer than the message")]
    Parts,
}

/// How long the message is that begins with these bytes. `None` if that cannot be said yet.
///
/// # Errors
/// What is wrong with the length.
pub(crate) fn length(begin: &[u8], most: usize) -> Result<Option<usize>, Broken> {
    let Some(lengths) = begin.first_chunk::<LENGTHS>() else { return Ok(None) };
    let [first, second] = [0, 4].map(|at| [lengths[at], lengths[at + 1], lengths[at + 2], lengths[at + 3]]);
    // Equal bytes come from a processor that begins with the highest. Without the mark there is only the first length;
    // and if both are there and differ, an old program has changed the first, which is all that it knows.
    let len =
        if lengths[8] == MARK && first == second { i32::from_be_bytes(second) } else { i32::from_ne_bytes(first) };
    if len < (TRANSPORT + OLD_HEADER) as i32 {
        return Err(Broken::Short(len));
    }
    let (len, most) = (len as usize, most.min(LONGEST));
    if len > most { Err(Broken::Long { len, most }) } else { Ok(Some(len)) }
}

/// A whole message, whose lengths are checked.
#[derive(Clone, Copy)]
pub struct Frame<'a> {
    bytes: &'a [u8],
    /// Where the header ends, then the trace data, data 1, data 2 and the payload.
    ends: [usize; 5],
    version: u32,
}

impl fmt::Debug for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("kind", &self.kind()).field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl<'a> Frame<'a> {
    /// Reads a message, from its first byte for the transport to the last of its payload.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Broken> {
        if bytes.len() < TRANSPORT + OLD_HEADER {
            return Err(Broken::Short(bytes.len() as i32));
        }
        let field = |place| number(bytes, place);
        let version = field(places::VERSION);
        let least = match version {
            OLD_VERSION => OLD_HEADER,
            VERSION.. => HEADER,
            _ => return Err(Broken::Version(version)),
        };
        if (field(places::HEADER_LENGTH) as usize) < least {
            return Err(Broken::Parts);
        }
        let mut end = TRANSPORT;
        let mut ends = [0; 5];
        let lengths = [
            places::HEADER_LENGTH,
            places::TRACE_LENGTH,
            places::DATA_1_LENGTH,
            places::DATA_2_LENGTH,
            places::PAYLOAD_LENGTH,
        ];
        for (place, ends) in lengths.into_iter().zip(&mut ends) {
            // Five lengths of 32 bits have a sum that fits. What is above the signed ones is longer than any message.
            end += field(place) as usize;
            if end > bytes.len() {
                return Err(Broken::Parts);
            }
            *ends = end;
        }
        Ok(Self { bytes, ends, version })
    }

    /// The message as it came.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Its type.
    #[must_use]
    pub fn kind(&self) -> i32 {
        number(self.bytes, places::KIND) as i32
    }

    /// Its subscription; -1 if it has none.
    #[must_use]
    pub fn subscription(&self) -> i32 {
        number(self.bytes, places::SUBSCRIPTION) as i32
    }

    /// The number that it shares with the reply to it, without the zeros that fill the field.
    #[must_use]
    pub fn transaction(&self) -> &'a [u8] {
        without_zeros(self.field(places::TRANSACTION, TRANSACTION))
    }

    /// Who has sent it: mostly `name:port`, where it takes messages.
    #[must_use]
    pub fn source(&self) -> &'a [u8] {
        text(self.field(places::SOURCE, SOURCE))
    }

    /// The same with the number of its network's interface in the place of its name. Empty in old messages.
    #[must_use]
    pub fn source_address(&self) -> &'a [u8] {
        if self.version < VERSION { &[] } else { text(self.field(places::SOURCE_ADDRESS, SOURCE)) }
    }

    /// The managed entity that it concerns.
    #[must_use]
    pub fn entity(&self) -> &'a [u8] {
        text(self.field(places::ENTITY, ENTITY))
    }

    /// Data that travels along for tracing.
    #[must_use]
    pub fn trace(&self) -> &'a [u8] {
        &self.bytes[self.ends[0]..self.ends[1]]
    }

    /// All that it says beside its payload.
    #[must_use]
    pub fn fields(&self) -> Fields<'a> {
        Fields {
            kind: self.kind(),
            subscription: self.subscription(),
            transaction: self.transaction(),
            entity: self.entity(),
            trace: self.trace(),
            call: self.call(),
            source: self.source(),
            source_address: self.source_address(),
        }
    }

    /// Its payload.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.ends[3]..self.ends[4]]
    }

    /// Bytes of the header, of the trace data, and of the two data after it.
    #[must_use]
    pub fn parts(&self) -> [usize; 3] {
        [self.ends[0] - TRANSPORT, self.ends[1] - self.ends[0], self.ends[3] - self.ends[1]]
    }

    /// Where the payload begins in [`bytes`](Self::bytes).
    #[must_use]
    pub fn payload_begins(&self) -> usize {
        self.ends[3]
    }

    /// Whether its sender waits for a reply.
    #[must_use]
    pub fn is_call(&self) -> bool {
        let flags = self.field(places::FLAGS, 4);
        u32::from_ne_bytes([flags[0], flags[1], flags[2], flags[3]]) & CALL != 0
    }

    /// The number of the call that it is, or is a reply to. 0: none.
    #[must_use]
    pub fn call(&self) -> u8 {
        self.bytes[self.ends[1]..self.ends[2]].first().copied().unwrap_or(0)
    }

    fn field(&self, place: usize, len: usize) -> &'a [u8] {
        &self.bytes[TRANSPORT + place..][..len]
    }
}

fn number(bytes: &[u8], place: usize) -> u32 {
    let at = TRANSPORT + place;
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// A text that ends with a zero, or with its field.
fn text(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    &field[..end]
}

/// A number in a field that is filled up with zeros.
#[must_use]
pub fn without_zeros(number: &[u8]) -> &[u8] {
    let end = number.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &number[..end]
}

/// What receivers are told of a sender: where it takes messages. Each part has fewer than [`SOURCE`] bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sender {
    /// `name:port`, or a name alone if it takes none.
    pub source: String,
    /// `address:port`.
    pub source_address: String,
}

/// What a message says beside its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fields<'a> {
    /// Its type.
    pub kind: i32,
    /// Its subscription, or -1.
    pub subscription: i32,
    /// The number that it shares with the reply to it; at most [`TRANSACTION`] bytes.
    pub transaction: &'a [u8],
    /// The managed entity that it concerns; fewer than [`ENTITY`] bytes.
    pub entity: &'a [u8],
    /// Data that travels along for tracing.
    pub trace: &'a [u8],
    /// The number of the call to which it replies. 0: none.
    pub call: u8,
    /// Where the sender takes messages, as `name:port`; fewer than [`SOURCE`] bytes.
    pub source: &'a [u8],
    /// The same with an address in the place of the name.
    pub source_address: &'a [u8],
}

impl Fields<'_> {
    /// Bytes of everything before the payload.
    #[must_use]
    pub fn len(&self) -> usize {
        FIXED + self.trace.len() + DATA_1
    }

    /// Whether there is nothing: never.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Writes everything before a payload of so many bytes. Lengths are the caller's to check.
    pub fn write(&self, payload: usize, out: &mut dyn FnMut(&[u8])) {
        let mut fixed = [0; FIXED];
        let (transport, header) = fixed.split_at_mut(TRANSPORT);
        write_length(transport, self.len() + payload);
        let mut put = |place: usize, bytes: &[u8]| header[place..][..bytes.len()].copy_from_slice(bytes);
        put(places::KIND, &self.kind.to_be_bytes());
        put(places::PAYLOAD_LENGTH, &(payload as u32).to_be_bytes());
        put(places::VERSION, &VERSION.to_be_bytes());
        put(places::TRANSACTION, self.transaction);
        put(places::SOURCE, self.source);
        put(places::ENTITY, self.entity);
        put(places::HEADER_LENGTH, &(HEADER as u32).to_be_bytes());
        put(places::TRACE_LENGTH, &(self.trace.len() as u32).to_be_bytes());
        put(places::DATA_1_LENGTH, &(DATA_1 as u32).to_be_bytes());
        put(places::SUBSCRIPTION, &self.subscription.to_be_bytes());
        put(places::SOURCE_ADDRESS, self.source_address);
        out(&fixed);
        out(self.trace);
        out(&[self.call, 0, 0, 0]);
    }
}

/// Writes the length of a whole message to its beginning.
///
/// # Panics
/// There is no room for it.
pub fn write_length(transport: &mut [u8], len: usize) {
    transport[..4].copy_from_slice(&(len as u32).to_ne_bytes());
    transport[4..8].copy_from_slice(&(len as u32).to_be_bytes());
    transport[8] = MARK;
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: Fields<'_> = Fields {
        kind: 1000,
        subscription: 10,
        transaction: b"t1",
        entity: b"meid000",
        trace: &[],
        call: 0,
        source: b"app:4560",
        source_address: b"10.0.0.1:4560",
    };

    fn written(fields: &Fields<'_>, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        fields.write(payload.len(), &mut |bytes| out.extend_from_slice(bytes));
        out.extend(payload);
        out
    }

    /// Every byte, as the page says that it is.
    #[test]
    fn a_message_has_the_documented_bytes() {
        let bytes = written(&Fields { trace: b"tr", call: 7, ..FIELDS }, b"hello");
        assert_eq!(bytes.len(), 50 + 280 + 2 + 4 + 5);
        let mut expected = vec![0; 50 + 280];
        expected[..4].copy_from_slice(&341_u32.to_ne_bytes());
        expected[4..9].copy_from_slice(b"\x00\x00\x01\x55$");
        expected[50..62].copy_from_slice(b"\0\0\x03\xe8\0\0\0\x05\0\0\0\x03");
        expected[62..64].copy_from_slice(b"t1");
        expected[126..134].copy_from_slice(b"app:4560");
        expected[190..197].copy_from_slice(b"meid000");
        expected[246..266].copy_from_slice(b"\0\0\x01\x18\0\0\0\x02\0\0\0\x04\0\0\0\0\0\0\0\x0a");
        expected[266..279].copy_from_slice(b"10.0.0.1:4560");
        expected.extend(b"tr\x07\0\0\0hello");
        assert_eq!(bytes, expected);
    }

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let trace = [9; 300];
        for fields in [FIELDS, Fields { kind: -7, subscription: -1, trace: &trace, call: 255, ..FIELDS }] {
            let payload = vec![5; 70_000];
            let bytes = written(&fields, &payload);
            assert_eq!(length(&bytes, LONGEST), Ok(Some(bytes.len())));
            let frame = Frame::read(&bytes).unwrap();
            assert_eq!(frame.fields(), fields);
            assert_eq!((frame.payload(), frame.is_call()), (&payload[..], false));
            assert_eq!(frame.payload_begins(), fields.len());
        }
    }

    #[test]
    fn lengths_are_those_of_any_sender() {
        let wrap = |first: [u8; 4], second: [u8; 4], mark| [&first[..], &second, &[mark]].concat();
        let (native, network) = (1000_u32.to_ne_bytes(), 1000_u32.to_be_bytes());
        for begin in [wrap(native, network, b'$'), wrap(native, [9; 4], 0), wrap(network, network, b'$')] {
            assert_eq!(length(&begin, LONGEST), Ok(Some(1000)), "{begin:?}");
        }
        // An old program has sent a message back, and shortened it.
        assert_eq!(length(&wrap(600_u32.to_ne_bytes(), network, b'$'), LONGEST), Ok(Some(600)));
        assert_eq!(length(&wrap(native, network, b'$')[..8], LONGEST), Ok(None));
        for bad in [0, 1, 265, -1, i32::MIN] {
            assert_eq!(length(&wrap(bad.to_ne_bytes(), bad.to_be_bytes(), b'$'), LONGEST), Err(Broken::Short(bad)));
        }
        assert_eq!(length(&wrap(native, network, b'$'), 999), Err(Broken::Long { len: 1000, most: 999 }));
    }

    #[test]
    fn every_cut_is_refused_and_every_wrong_byte_is_refused_or_read() {
        let bytes = written(&Fields { trace: b"tr", ..FIELDS }, b"hello");
        for len in 0..bytes.len() {
            assert!(Frame::read(&bytes[..len]).is_err(), "{len}");
        }
        for at in 0..bytes.len() {
            for byte in 0..=255 {
                let mut wrong = bytes.clone();
                wrong[at] = byte;
                if let Ok(frame) = Frame::read(&wrong) {
                    assert!(frame.trace().len() + frame.payload().len() <= wrong.len());
                    assert!(frame.source().len() <= SOURCE && frame.entity().len() <= ENTITY);
                }
            }
        }
        for (place, value) in
            [(places::PAYLOAD_LENGTH, -1), (places::TRACE_LENGTH, i32::MAX), (places::DATA_2_LENGTH, i32::MIN)]
        {
            let mut wrong = bytes.clone();
            wrong[TRANSPORT + place..][..4].copy_from_slice(&i32::to_be_bytes(value));
            assert!(matches!(Frame::read(&wrong), Err(Broken::Parts)));
        }
    }

    #[test]
    fn old_headers_have_no_address() {
        let mut bytes = written(&FIELDS, b"hello");
        bytes[TRANSPORT + places::VERSION + 3] = 2;
        bytes[TRANSPORT + places::HEADER_LENGTH..][..4].copy_from_slice(&216_u32.to_be_bytes());
        let frame = Frame::read(&bytes).unwrap();
        assert_eq!((frame.source(), frame.source_address()), (&b"app:4560"[..], &b""[..]));
        bytes[TRANSPORT + places::VERSION + 3] = 1;
        assert_eq!(Frame::read(&bytes).unwrap_err(), Broken::Version(1));
    }
}
