//! A message of the router, and how it travels: as the one-way call `deliver(head: bytes, payload: bytes)` of the service
//! [`SERVICE`], encoded in msgpack as any other call. docs/routing.md describes the head.

use nearcall_core::{Failure, Payload};
use smallvec::SmallVec;

/// The service that every node serves.
pub const SERVICE: &str = "nearcall.Route";
/// Its method that takes messages.
pub const METHOD: &str = "deliver";

/// The subscription of a message that has none.
pub const NO_SUBSCRIPTION: i32 = -1;
/// Bytes of the longest transaction number.
pub const LONGEST_TRANSACTION: usize = 32;
/// Bytes of the longest name of a managed entity.
pub const LONGEST_ENTITY: usize = 31;
/// Bytes of the longest name of a node.
pub const LONGEST_SOURCE: usize = 63;
/// Bytes of the longest URL to which replies go.
pub const LONGEST_ADDRESS: usize = 255;
/// Bytes of the longest trace data.
pub const LONGEST_TRACE: usize = u16::MAX as usize;

/// The first byte of a head.
const VERSION: u8 = 1;
/// Bytes of a head before its texts.
const FIXED: usize = 15;

/// What a sender says of a message beside its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// The message's type.
    pub kind: i32,
    /// Its subscription, or [`NO_SUBSCRIPTION`].
    pub subscription: i32,
    /// The number that a message and the reply to it share. May be empty.
    pub transaction: &'a [u8],
    /// The managed entity that it concerns. May be empty.
    pub entity: &'a str,
    /// Data that travels along for tracing.
    pub trace: &'a [u8],
    /// The number of the call of RMR to which it replies; 0 if it replies to none. Only RMR's form has it.
    pub call: u8,
}

/// Who sends a message, and the URL at which that node takes replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender<'a> {
    /// The name of the node.
    pub source: &'a str,
    /// Where it takes replies. Empty if it takes none.
    pub address: &'a str,
}

/// A part of a message is longer than it may be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {what} has {len} bytes, {most} is the most")]
pub struct TooLong {
    what: &'static str,
    len: usize,
    most: usize,
}

/// Why an arrived message cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadMessage(&'static str);

/// Makes sure that no part of a message with `payload` bytes is too long to be sent.
///
/// # Errors
/// The part that is.
pub(crate) fn check(envelope: &Envelope<'_>, sender: &Sender<'_>, payload: usize) -> Result<(), TooLong> {
    let limits = [
        ("transaction number", envelope.transaction.len(), LONGEST_TRANSACTION),
        ("name of the managed entity", envelope.entity.len(), LONGEST_ENTITY),
        ("name of the node", sender.source.len(), LONGEST_SOURCE),
        ("address for replies", sender.address.len(), LONGEST_ADDRESS),
        ("trace data", envelope.trace.len(), LONGEST_TRACE),
        ("payload", payload, u32::MAX as usize),
    ];
    match limits.into_iter().find(|(_, len, most)| len > most) {
        Some((what, len, most)) => Err(TooLong { what, len, most }),
        None => Ok(()),
    }
}

/// Writes everything before the payload of a message with `payload` bytes, whose lengths were [checked](check).
pub(crate) fn write(out: &mut Prefix, envelope: &Envelope<'_>, sender: &Sender<'_>, payload: usize) {
    let Envelope { kind, subscription, transaction, entity, trace, .. } = *envelope;
    let (entity, source, address) = (entity.as_bytes(), sender.source.as_bytes(), sender.address.as_bytes());
    out.push(0x92); // msgpack: an array of two
    begin_bytes(out, FIXED + transaction.len() + entity.len() + source.len() + address.len() + trace.len());
    begin_head(out, kind, subscription, [transaction, entity, source, address], trace);
    begin_bytes(out, payload);
}

/// Writes the head of a message.
fn begin_head(out: &mut Prefix, kind: i32, subscription: i32, texts: [&[u8]; 4], trace: &[u8]) {
    out.push(VERSION);
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&subscription.to_le_bytes());
    out.extend_from_slice(&texts.map(|text| text.len() as u8));
    out.extend_from_slice(&(trace.len() as u16).to_le_bytes());
    for part in [texts[0], texts[1], texts[2], texts[3], trace] {
        out.extend_from_slice(part);
    }
}

/// What an arrived message says beside its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    bytes: SmallVec<[u8; 256]>,
    /// Where in `bytes` its parts end.
    ends: [u32; 4],
    /// The number of the call of RMR that it is; 0 if it is none.
    call: u8,
}

impl From<BadMessage> for Failure {
    fn from(problem: BadMessage) -> Self {
        Self::new(Self::INVALID_ARGUMENT, format!("a message for the router was refused: {problem}"))
    }
}

impl Head {
    /// The head of a message that came in another form, in which `source` has sent it from `address`.
    ///
    /// # Errors
    /// A part of it is too long.
    pub fn new(envelope: &Envelope<'_>, sender: &Sender<'_>) -> Result<Self, BadMessage> {
        check(envelope, sender, 0).map_err(|_| BadMessage("a part of it is too long"))?;
        let Envelope { kind, subscription, transaction, entity, trace, call } = *envelope;
        let texts = [transaction, entity.as_bytes(), sender.source.as_bytes(), sender.address.as_bytes()];
        let mut bytes = Prefix::new();
        begin_head(&mut bytes, kind, subscription, texts, trace);
        Ok(Self { call, ..Self::decode(bytes)? })
    }

    /// Reads a head.
    ///
    /// # Errors
    /// What is wrong with it.
    fn decode(bytes: SmallVec<[u8; 256]>) -> Result<Self, BadMessage> {
        let (fixed, rest) = bytes.split_first_chunk::<FIXED>().ok_or(BadMessage("its head is too short"))?;
        if fixed[0] != VERSION {
            return Err(BadMessage("its head is of an unknown version"));
        }
        if usize::from(fixed[9]) > LONGEST_TRANSACTION {
            return Err(BadMessage("its transaction number is too long"));
        }
        let mut ends = [0; 4];
        let mut end = FIXED as u32;
        for (place, len) in ends.iter_mut().zip(&fixed[9..13]) {
            end += u32::from(*len);
            *place = end;
        }
        let trace = usize::from(u16::from_le_bytes([fixed[13], fixed[14]]));
        if rest.len() != end as usize - FIXED + trace {
            return Err(BadMessage("the lengths in its head are wrong"));
        }
        let texts = ends.map(|end| end as usize);
        if texts.windows(2).any(|range| std::str::from_utf8(&bytes[range[0]..range[1]]).is_err()) {
            return Err(BadMessage("a text in its head is not UTF-8"));
        }
        Ok(Self { bytes, ends, call: 0 })
    }

    /// The message's type.
    #[must_use]
    pub fn kind(&self) -> i32 {
        self.number(1)
    }

    /// Its subscription, or [`NO_SUBSCRIPTION`].
    #[must_use]
    pub fn subscription(&self) -> i32 {
        self.number(5)
    }

    /// The number that a message and the reply to it share. May be empty.
    #[must_use]
    pub fn transaction(&self) -> &[u8] {
        &self.bytes[FIXED..self.ends[0] as usize]
    }

    /// The managed entity that it concerns. May be empty.
    #[must_use]
    pub fn entity(&self) -> &str {
        self.text(0)
    }

    /// The name of the node that has sent it.
    #[must_use]
    pub fn source(&self) -> &str {
        self.text(1)
    }

    /// The URL at which that node takes replies. May be empty.
    #[must_use]
    pub fn address(&self) -> &str {
        self.text(2)
    }

    /// The number of the call of RMR that it is, which the reply to it has, too; 0 if it is none.
    #[must_use]
    pub fn call(&self) -> u8 {
        self.call
    }

    /// Data that travels along for tracing.
    #[must_use]
    pub fn trace(&self) -> &[u8] {
        &self.bytes[self.ends[3] as usize..]
    }

    fn number(&self, at: usize) -> i32 {
        let bytes = &self.bytes;
        i32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    }

    fn text(&self, number: usize) -> &str {
        let part = &self.bytes[self.ends[number] as usize..self.ends[number + 1] as usize];
        std::str::from_utf8(part).expect("this was looked at when it arrived")
    }
}

/// What stands before the payload of a message.
pub type Prefix = SmallVec<[u8; 256]>;

/// The begin of `len` bytes in msgpack.
fn begin_bytes(out: &mut Prefix, len: usize) {
    match len {
        0..=0xff => out.extend_from_slice(&[0xc4, len as u8]),
        0x100..=0xffff => {
            out.push(0xc5);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
        _ => {
            out.push(0xc6);
            out.extend_from_slice(&(len as u32).to_be_bytes());
        }
    }
}

/// A reader of the first bytes of a payload, wherever they lie.
struct Reader<'a> {
    payload: &'a Payload,
    at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], BadMessage> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, into: &mut [u8]) -> Result<(), BadMessage> {
        if self.payload.len() - self.at < into.len() {
            return Err(BadMessage("it ends early"));
        }
        self.payload.copy_to(self.at, into);
        self.at += into.len();
        Ok(())
    }

    /// The length of bytes in msgpack that begin here.
    fn bytes(&mut self) -> Result<usize, BadMessage> {
        match self.take::<1>()? {
            [0xc4] => self.take::<1>().map(|[len]| usize::from(len)),
            [0xc5] => self.take::<2>().map(|len| usize::from(u16::from_be_bytes(len))),
            [0xc6] => self.take::<4>().map(|len| u32::from_be_bytes(len) as usize),
            _ => Err(BadMessage("it is no call of deliver(head: bytes, payload: bytes)")),
        }
    }
}

/// The head of an arrived message, and where in the call's payload the message's own begins. It goes on to the end.
///
/// # Errors
/// What is wrong with the message.
pub fn read(payload: &Payload) -> Result<(Head, usize), BadMessage> {
    let mut reader = Reader { payload, at: 0 };
    if reader.take::<1>()? != [0x92] {
        return Err(BadMessage("it is no call of deliver(head: bytes, payload: bytes)"));
    }
    let len = reader.bytes()?;
    if len > FIXED + 4 * usize::from(u8::MAX) + LONGEST_TRACE {
        return Err(BadMessage("its head is too long"));
    }
    let mut head: SmallVec<[u8; 256]> = SmallVec::from_elem(0, len);
    reader.fill(&mut head)?;
    let head = Head::decode(head)?;
    let len = reader.bytes()?;
    if payload.len() - reader.at != len {
        return Err(BadMessage("the length of its payload is wrong"));
    }
    Ok((head, reader.at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENVELOPE: Envelope<'_> =
        Envelope { kind: -7, subscription: 10, transaction: b"t1", entity: "meid", trace: &[1, 2, 3], call: 0 };
    const SENDER: Sender<'_> = Sender { source: "filter", address: "shm://filter" };

    fn encode(envelope: &Envelope<'_>, sender: &Sender<'_>, payload: usize) -> Prefix {
        check(envelope, sender, payload).unwrap();
        let mut out = Prefix::new();
        write(&mut out, envelope, sender, payload);
        out
    }

    fn payload(bytes: &[u8]) -> Payload {
        Payload::from(bytes)
    }

    #[test]
    fn a_message_arrives_as_it_was_sent() {
        for len in [0, 20, 255, 256, 65_535, 65_536] {
            for trace in [0, 300, LONGEST_TRACE] {
                let trace = vec![7; trace];
                let mut sent = encode(&Envelope { trace: &trace, ..ENVELOPE }, &SENDER, len).to_vec();
                let begin = sent.len();
                sent.resize(begin + len, 9);
                let (head, at) = read(&payload(&sent)).unwrap();
                assert_eq!((head.kind(), head.subscription(), head.transaction(), at), (-7, 10, &b"t1"[..], begin));
                assert_eq!((head.entity(), head.source(), head.address()), ("meid", "filter", "shm://filter"));
                assert_eq!(head.trace(), trace);
            }
        }
    }

    #[test]
    fn every_cut_is_refused_and_every_wrong_byte_is_refused_or_read() {
        let mut sent = encode(&ENVELOPE, &SENDER, 3).to_vec();
        sent.extend(b"abc");
        for len in 0..sent.len() {
            assert!(read(&payload(&sent[..len])).is_err(), "{len}");
        }
        for at in 0..sent.len() {
            for byte in 0..=255 {
                let mut wrong = sent.clone();
                wrong[at] = byte;
                if let Ok((head, begin)) = read(&payload(&wrong)) {
                    assert_eq!(begin, sent.len() - 3);
                    let _ = (head.entity(), head.source(), head.address(), head.trace());
                }
            }
        }
    }

    #[test]
    fn what_is_too_long_is_named() {
        let long = check(&Envelope { entity: &"x".repeat(32), ..ENVELOPE }, &SENDER, 0).unwrap_err();
        assert_eq!(long.to_string(), "the name of the managed entity has 32 bytes, 31 is the most");
    }
}
