//! A message of the router, and how it travels: as the one-way call `deliver(head: bytes, payload: bytes)` of the service
//! [`SERVICE`], encoded in msgpack as any other call. docs/guide/routing.md describes the head.

use nearcall_core::{Failure, Payload};
use smallvec::SmallVec;

/// The service that every node serves.
pub const SERVICE: &str = "nearcall.Route";
/// Its method that takes messages.
pub const METHOD: &str = "deliver";

/// The type of the message that tells a sender that nobody will reply: the handler has failed, or there is none. RMR keeps
/// the types below 100 for itself, and does not use this one.
pub const FAILURE: i32 = 99;
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

/// The longest parts of a head, in their order there, but for the trace data.
const LONGEST: [usize; 4] = [LONGEST_TRANSACTION, LONGEST_ENTITY, LONGEST_SOURCE, LONGEST_ADDRESS];
/// The first byte of a head.
const VERSION: u8 = 1;
/// The first byte of one that ends with the number of a call of RMR. It never leaves the node, and a peer's is refused.
const WITH_CALL: u8 = 2;
/// Bytes of a head before its texts.
const FIXED: usize = 15;

/// A transaction number.
pub type Transaction = SmallVec<[u8; LONGEST_TRANSACTION]>;

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
    /// The number of the call of RMR that it is, or replies to; 0 if there is none. Only programs of RMR get to know it.
    pub call: u8,
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

/// What stands before the payloads of a node's messages. All of it that does not change from one to the next is made once.
#[derive(Debug)]
pub struct Heads {
    source: Box<str>,
    address: Box<str>,
    /// All of it for a message that has no transaction number, entity and trace data, as most have none; of type and
    /// subscription 0.
    plain: Box<[u8]>,
}

impl Heads {
    /// For a node of that name, which takes replies at this URL; empty if it takes none.
    ///
    /// # Errors
    /// One of the two is too long.
    pub fn new(source: &str, address: &str) -> Result<Self, TooLong> {
        check("name of the node", source.len(), LONGEST_SOURCE)?;
        check("address for replies", address.len(), LONGEST_ADDRESS)?;
        let mut new = Self { source: source.into(), address: address.into(), plain: Box::default() };
        let mut plain = Vec::new();
        new.write(
            &mut plain,
            &Envelope { kind: 0, subscription: 0, transaction: &[], entity: "", trace: &[], call: 0 },
        );
        new.plain = plain.into();
        Ok(new)
    }

    /// Writes everything before the payload of a message with `payload` bytes.
    ///
    /// # Errors
    /// A part is too long to be sent.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>, envelope: &Envelope<'_>, payload: usize) -> Result<(), TooLong> {
        let Envelope { kind, subscription, transaction, entity, trace, call } = *envelope;
        check("payload", payload, u32::MAX as usize)?;
        if transaction.is_empty() && entity.is_empty() && trace.is_empty() && call == 0 {
            out.extend_from_slice(&self.plain);
            let numbers = out.len() - self.plain.len() + head_at(self.plain.len()) + 1;
            out[numbers..numbers + 4].copy_from_slice(&kind.to_le_bytes());
            out[numbers + 4..numbers + 8].copy_from_slice(&subscription.to_le_bytes());
        } else {
            check("transaction number", transaction.len(), LONGEST_TRANSACTION)?;
            check("name of the managed entity", entity.len(), LONGEST_ENTITY)?;
            check("trace data", trace.len(), LONGEST_TRACE)?;
            self.write(out, envelope);
        }
        begin_bytes(out, payload);
        Ok(())
    }

    fn write(&self, out: &mut Vec<u8>, envelope: &Envelope<'_>) {
        let Envelope { kind, subscription, transaction, entity, trace, ref call } = *envelope;
        let texts = [transaction, entity.as_bytes(), self.source.as_bytes(), self.address.as_bytes()];
        let (version, call) = if *call == 0 { (VERSION, &[][..]) } else { (WITH_CALL, std::slice::from_ref(call)) };
        out.push(0x92); // msgpack: an array of two
        begin_bytes(out, FIXED + texts.iter().map(|text| text.len()).sum::<usize>() + trace.len() + call.len());
        out.push(version);
        out.extend_from_slice(&kind.to_le_bytes());
        out.extend_from_slice(&subscription.to_le_bytes());
        out.extend(texts.iter().map(|text| text.len() as u8));
        out.extend_from_slice(&(trace.len() as u16).to_le_bytes());
        for text in texts {
            out.extend_from_slice(text);
        }
        out.extend_from_slice(trace);
        out.extend_from_slice(call);
    }
}

const UNKNOWN: BadMessage = BadMessage("its head is of an unknown version");

/// Where a head begins, behind the first bytes of a call whose arguments up to its end have this length.
const fn head_at(len: usize) -> usize {
    if len <= 0xff + 3 { 3 } else { 4 }
}

fn check(what: &'static str, len: usize, most: usize) -> Result<(), TooLong> {
    if len > most { Err(TooLong { what, len, most }) } else { Ok(()) }
}

impl From<BadMessage> for Failure {
    fn from(problem: BadMessage) -> Self {
        Self::new(Self::INVALID_ARGUMENT, format!("a message for the router was refused: {problem}"))
    }
}

/// The begin of `len` bytes in msgpack.
fn begin_bytes(out: &mut Vec<u8>, len: usize) {
    match len {
        0..=0xff => out.extend_from_slice(&[0xc4, len as u8]),
        0x100..=0xffff => {
            let [high, low] = (len as u16).to_be_bytes();
            out.extend_from_slice(&[0xc5, high, low]);
        }
        _ => {
            out.push(0xc6);
            out.extend_from_slice(&(len as u32).to_be_bytes());
        }
    }
}

/// What an arrived message says beside its payload, and where in the call's payload the message's own begins. It goes on
/// to the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The message's type.
    pub kind: i32,
    /// Its subscription, or [`NO_SUBSCRIPTION`].
    pub subscription: i32,
    // Small, as it moves with each message.
    /// Where in the head its trace data end.
    len: u32,
    /// Where the message's payload begins.
    begin: u32,
    /// Where in the head its texts end.
    ends: [u16; 4],
    /// Where its head begins.
    at: u8,
    /// The number of the call of RMR that it is, or replies to; 0 if there is none.
    call: u8,
    /// The head, if the payload that it lies in may change.
    copied: Option<Box<[u8]>>,
}

impl Head {
    /// Reads the head of a message that another node has sent.
    ///
    /// # Errors
    /// What is wrong with the message.
    #[inline]
    pub fn read(payload: &Payload) -> Result<Self, BadMessage> {
        let head = Self::read_own(payload)?;
        if head.call == 0 { Ok(head) } else { Err(UNKNOWN) }
    }

    /// The same of one that this node has written, which may have the number of a call.
    pub(crate) fn read_own(payload: &Payload) -> Result<Self, BadMessage> {
        match payload.inline() {
            Some(bytes) => Self::parse(bytes, bytes.len()),
            None => Self::read_copy(payload),
        }
    }

    /// The same of a payload that others may change: what was checked is kept.
    #[cold]
    fn read_copy(payload: &Payload) -> Result<Self, BadMessage> {
        let copy = |len: usize| {
            let mut copy = vec![0; len.min(payload.len())];
            payload.copy_to(0, &mut copy);
            copy
        };
        let (at, len) = begin_of_head(&copy(6))?;
        let copied = copy(at + len + 5);
        let mut head = Self::parse(&copied, payload.len())?;
        head.copied = Some(copied.into());
        Ok(head)
    }

    /// Reads a head at the beginning of a call of `total` bytes. All of the head is in `bytes`, and the length behind it.
    fn parse(bytes: &[u8], total: usize) -> Result<Self, BadMessage> {
        const EARLY: BadMessage = BadMessage("it ends early");
        let (at, len) = begin_of_head(bytes)?;
        let head = bytes.get(at..at + len).ok_or(EARLY)?;
        let (begin, payload) = bytes_at(&bytes[at + len..])?.ok_or(EARLY)?;
        let begin = at + len + begin;
        if total - begin != payload {
            return Err(BadMessage("the length of its payload is wrong"));
        }
        let (fixed, rest) = head.split_first_chunk::<FIXED>().ok_or(BadMessage("its head is too short"))?;
        let (call, rest) = match (fixed[0], rest) {
            (VERSION, _) => (0, rest),
            (WITH_CALL, [rest @ .., call]) if *call != 0 => (*call, rest),
            _ => return Err(UNKNOWN),
        };
        let mut ends = [0; 4];
        let mut end = FIXED as u16;
        for ((place, len), most) in ends.iter_mut().zip(&fixed[9..13]).zip(LONGEST) {
            if usize::from(*len) > most {
                return Err(BadMessage("a part of its head is too long"));
            }
            end += u16::from(*len);
            *place = end;
        }
        let trace = usize::from(u16::from_le_bytes([fixed[13], fixed[14]]));
        if rest.len() != usize::from(end) - FIXED + trace {
            return Err(BadMessage("the lengths in its head are wrong"));
        }
        // All texts at once: they are UTF-8 if all of it is, and no character goes beyond the end of one. Most are ASCII,
        // which is seen sooner.
        let [from, inner @ .., to] = ends.map(usize::from);
        let texts = &head[from..to];
        let are_whole = || {
            let whole = std::str::from_utf8(texts).ok();
            whole.is_some_and(|whole| inner.iter().all(|end| whole.is_char_boundary(end - from)))
        };
        if !texts.is_ascii() && !are_whole() {
            return Err(BadMessage("a text in its head is not UTF-8"));
        }
        let number = |at: usize| i32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        Ok(Self {
            kind: number(1),
            subscription: number(5),
            len: (FIXED + rest.len()) as u32,
            begin: begin as u32,
            ends,
            at: at as u8,
            call,
            copied: None,
        })
    }

    /// Where in the call's payload the message's own begins.
    #[inline]
    #[must_use]
    pub fn begin(&self) -> usize {
        self.begin as usize
    }

    /// The number that a message and the reply to it share. May be empty.
    #[must_use]
    pub fn transaction<'a>(&'a self, payload: &'a Payload) -> &'a [u8] {
        self.part(self.bytes(payload), FIXED, self.ends[0].into())
    }

    /// The managed entity that it concerns. May be empty.
    #[must_use]
    pub fn entity<'a>(&'a self, payload: &'a Payload) -> &'a str {
        self.text(self.bytes(payload), 0)
    }

    /// The name of the node that has sent it.
    #[must_use]
    pub fn source<'a>(&'a self, payload: &'a Payload) -> &'a str {
        self.text(self.bytes(payload), 1)
    }

    /// The URL at which that node takes replies. May be empty.
    #[must_use]
    pub fn address<'a>(&'a self, payload: &'a Payload) -> &'a str {
        self.text(self.bytes(payload), 2)
    }

    /// Data that travels along for tracing.
    #[must_use]
    pub fn trace<'a>(&'a self, payload: &'a Payload) -> &'a [u8] {
        self.part(self.bytes(payload), self.ends[3].into(), self.len as usize)
    }

    /// What its sender has said of it.
    #[must_use]
    pub fn envelope<'a>(&'a self, payload: &'a Payload) -> Envelope<'a> {
        self.envelope_in(self.bytes(payload))
    }

    fn envelope_in<'a>(&self, bytes: &'a [u8]) -> Envelope<'a> {
        Envelope {
            kind: self.kind,
            subscription: self.subscription,
            transaction: self.part(bytes, FIXED, self.ends[0].into()),
            entity: self.text(bytes, 0),
            trace: self.part(bytes, self.ends[3].into(), self.len as usize),
            call: self.call,
        }
    }

    fn bytes<'a>(&'a self, payload: &'a Payload) -> &'a [u8] {
        self.copied.as_deref().or_else(|| payload.inline()).expect("a payload that may change was copied")
    }

    fn text<'a>(&self, bytes: &'a [u8], number: usize) -> &'a str {
        let part = self.part(bytes, self.ends[number].into(), self.ends[number + 1].into());
        std::str::from_utf8(part).expect("this was looked at when it arrived")
    }

    fn part<'a>(&self, bytes: &'a [u8], from: usize, to: usize) -> &'a [u8] {
        &bytes[usize::from(self.at) + from..usize::from(self.at) + to]
    }
}

/// Takes a message apart that this node has [encoded](Heads::encode): what it says, and its payload, which is all in one of
/// the two pieces.
pub(crate) fn take_apart<'a>(pieces: &[&'a [u8]; 2]) -> (Envelope<'a>, &'a [u8]) {
    let [first, second] = *pieces;
    let head = Head::parse(first, first.len() + second.len()).expect("this node has written it");
    (head.envelope_in(first), if second.is_empty() { &first[head.begin()..] } else { second })
}

/// Where the head of a message begins, and its length.
fn begin_of_head(bytes: &[u8]) -> Result<(usize, usize), BadMessage> {
    let (first, rest) = bytes.split_first().ok_or(BadMessage("it ends early"))?;
    if *first != 0x92 {
        return Err(BadMessage("it is no call of deliver(head: bytes, payload: bytes)"));
    }
    let (at, len) = bytes_at(rest)?.ok_or(BadMessage("it ends early"))?;
    if len > FIXED + LONGEST.iter().sum::<usize>() + LONGEST_TRACE + 1 {
        return Err(BadMessage("its head is too long"));
    }
    Ok((1 + at, len))
}

/// The length of the beginning of bytes in msgpack, and their number. `None` if not all of that is there.
fn bytes_at(bytes: &[u8]) -> Result<Option<(usize, usize)>, BadMessage> {
    Ok(match bytes {
        [0xc4, len, ..] => Some((2, usize::from(*len))),
        [0xc5, high, low, ..] => Some((3, usize::from(u16::from_be_bytes([*high, *low])))),
        [0xc6, a, b, c, d, ..] => Some((5, u32::from_be_bytes([*a, *b, *c, *d]) as usize)),
        [] | [0xc4..=0xc6, ..] => None,
        _ => return Err(BadMessage("it is no call of deliver(head: bytes, payload: bytes)")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENVELOPE: Envelope<'_> =
        Envelope { kind: -7, subscription: 10, transaction: b"t1", entity: "meid", trace: &[1, 2, 3], call: 0 };
    fn encode(envelope: &Envelope<'_>, payload: usize) -> Result<Vec<u8>, TooLong> {
        let mut out = Vec::new();
        Heads::new("filter", "shm://filter").unwrap().encode(&mut out, envelope, payload)?;
        Ok(out)
    }

    fn payload(bytes: &[u8]) -> Payload {
        Payload::from(bytes)
    }

    #[test]
    fn a_message_arrives_as_it_was_sent() {
        for len in [0, 20, 255, 256, 65_535, 65_536] {
            for trace in [0, 300, LONGEST_TRACE] {
                let trace = vec![7; trace];
                let mut sent = encode(&Envelope { trace: &trace, ..ENVELOPE }, len).unwrap();
                let begin = sent.len();
                sent.resize(begin + len, 9);
                let arrived = payload(&sent);
                let head = Head::read(&arrived).unwrap();
                assert_eq!((head.kind, head.subscription, head.begin()), (-7, 10, begin));
                assert_eq!((head.transaction(&arrived), head.entity(&arrived)), (&b"t1"[..], "meid"));
                assert_eq!((head.source(&arrived), head.address(&arrived)), ("filter", "shm://filter"));
                assert_eq!(head.trace(&arrived), trace);
                // As if others could change it.
                let copied = Head::read_copy(&arrived).unwrap();
                assert_eq!((copied.source(&arrived), copied.begin()), ("filter", begin));
            }
        }
    }

    #[test]
    fn every_cut_is_refused_and_every_wrong_byte_is_refused_or_read() {
        let mut sent = encode(&ENVELOPE, 3).unwrap();
        sent.extend(b"abc");
        for len in 0..sent.len() {
            assert!(Head::read(&payload(&sent[..len])).is_err(), "{len}");
        }
        for at in 0..sent.len() {
            for byte in 0..=255 {
                let mut wrong = sent.clone();
                wrong[at] = byte;
                let arrived = payload(&wrong);
                if let Ok(head) = Head::read(&arrived) {
                    assert_eq!(head.begin(), sent.len() - 3);
                    let _ =
                        (head.entity(&arrived), head.source(&arrived), head.address(&arrived), head.trace(&arrived));
                }
            }
        }
    }

    #[test]
    fn what_has_no_more_than_a_type_is_the_same_as_written_out() {
        for source in ["", "filter", &"x".repeat(LONGEST_SOURCE)] {
            for address in ["", "shm://filter", &"x".repeat(LONGEST_ADDRESS)] {
                let plain = Envelope { kind: -7, subscription: 10, transaction: &[], entity: "", trace: &[], call: 0 };
                let heads = Heads::new(source, address).unwrap();
                let (mut fast, mut written) = (b"before".to_vec(), b"before".to_vec());
                heads.encode(&mut fast, &plain, 300).unwrap();
                heads.write(&mut written, &plain);
                begin_bytes(&mut written, 300);
                assert_eq!(fast, written);
            }
        }
    }

    #[test]
    fn the_number_of_a_call_stays_in_the_node() {
        let trace = vec![9; LONGEST_TRACE];
        let of_call = Envelope { call: 7, trace: &trace, ..ENVELOPE };
        let head = encode(&of_call, 3).unwrap();
        let sent = [&head[..], b"abc"].concat();
        for pieces in [[&sent[..], &[]], [&head, b"abc"]] {
            assert_eq!(take_apart(&pieces), (of_call, &b"abc"[..]));
        }
        let arrived = payload(&sent);
        assert_eq!(Head::read_own(&arrived).unwrap().envelope(&arrived).call, 7);
        assert_eq!(Head::read(&arrived).unwrap_err().to_string(), "its head is of an unknown version");
    }

    #[test]
    fn what_is_too_long_is_named() {
        let long = encode(&Envelope { entity: &"x".repeat(32), ..ENVELOPE }, 0).unwrap_err();
        assert_eq!(long.to_string(), "the name of the managed entity has 32 bytes, 31 is the most");
    }
}
