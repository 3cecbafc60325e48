//! Turns the bytes of a body into messages, in the same way for both versions of HTTP.

use std::borrow::Cow;

use base64::Engine;
use nearcall_wire::Failure;

use crate::grpc::{Assembler, Decompressor, Encoding, Piece, TooLong};
use crate::options::LimitName;

/// How the bytes of a body are handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    /// Message by message. As in gRPC, a flag and a length precede each.
    Messages,
    /// Like `Messages`, and the last message ends the stream: a response of Connect.
    Stream,
    /// Like `Messages`, in base64 (gRPC-Web's text).
    Text,
    /// The whole body is one message.
    Whole,
    /// As the bytes arrive.
    Raw,
    /// Not at all: the call has been refused.
    Discarded,
}

/// How the peer may compress its messages, as it has declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Declared {
    Nothing,
    Known(Encoding),
    Unknown,
}

impl Declared {
    pub(crate) fn read(value: Option<&[u8]>) -> Self {
        match value {
            None | Some(b"identity" | b"") => Self::Nothing,
            Some(name) => Encoding::named(name).map_or(Self::Unknown, Self::Known),
        }
    }
}

/// How to read a body that is not gRPC's. The owner sets it, [at a server](crate::Calls::read_as) and [at a
/// client](crate::Requests::read_as), before it asks for the next event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reads {
    pub(crate) body: Body,
    pub(crate) declared: Declared,
    /// The most bytes kept of a whole body. Later bytes are passed over.
    pub(crate) most: usize,
}

impl Reads {
    /// Keeps as much as the limits allow.
    pub(crate) fn new(body: Body, declared: Declared) -> Self {
        Self { body, declared, most: usize::MAX }
    }
}

/// The most bytes that a message may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// As it arrives.
    pub(crate) message: usize,
    /// When it is decompressed.
    pub(crate) decompressed: usize,
    pub(crate) name: LimitName,
}

/// The result of reading the next bytes of a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Given {
    /// All bytes were taken; no message is complete yet.
    Nothing,
    /// A message: the last so many of the bytes that were taken.
    Here(usize),
    /// A message that arrived in several parts or compressed. `len` is its length in the body.
    Message { message: Vec<u8>, len: usize, compressed: bool },
    /// The body is complete, and this message ended it: see [`Body::Stream`].
    End(Vec<u8>),
    /// The call cannot go on: gRPC's status, and the reason.
    Refused(u8, Cow<'static, str>),
}

/// Reads one body.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) body: Body,
    pub(crate) declared: Declared,
    assembler: Assembler,
    /// See [`Reads::most`].
    most: usize,
    /// The bytes so far of a body that is one message.
    whole: Vec<u8>,
    text: Text,
    /// The message that has ended a stream.
    end: Option<Vec<u8>>,
}

/// A body in base64 that is being decoded: four characters make up to three bytes.
#[derive(Debug, Default)]
struct Text {
    characters: [u8; 4],
    got: usize,
    bytes: [u8; 3],
    /// The bytes of `bytes` that belong to no message yet: `at..end`.
    at: usize,
    end: usize,
}

/// Memory that is reserved for a body before its bytes arrive. Little, because announcing a length costs the sender
/// nothing.
const AT_FIRST: usize = 64 << 10;

impl Reader {
    pub(crate) fn new(body: Body) -> Self {
        Self {
            body,
            declared: Declared::Nothing,
            assembler: Assembler::default(),
            most: usize::MAX,
            whole: Vec::new(),
            text: Text::default(),
            end: None,
        }
    }

    /// Reads the body in this way from here on.
    pub(crate) fn read_as(&mut self, reads: Reads) {
        (self.body, self.declared, self.most) = (reads.body, reads.declared, reads.most);
        self.assembler.takes_end = reads.body == Body::Stream;
    }

    /// Takes the next message from `bytes`, and returns how many bytes it took. `last`: the body ends with these bytes.
    pub(crate) fn take(&mut self, bytes: &[u8], last: bool, limits: Limits) -> (usize, Given) {
        match self.body {
            Body::Stream if self.end.is_some() && !bytes.is_empty() => {
                (0, Given::Refused(Failure::INTERNAL, "the stream goes on after its end".into()))
            }
            Body::Messages | Body::Stream => {
                let (taken, piece) = self.assembler.take(bytes, limits.message);
                (taken, self.given(piece, &bytes[..taken], limits))
            }
            Body::Text => self.take_text(bytes, limits),
            Body::Whole => (bytes.len(), self.take_whole(bytes, last, limits)),
            Body::Raw | Body::Discarded => (bytes.len(), Given::Nothing),
        }
    }

    fn given(&mut self, piece: Piece, bytes: &[u8], limits: Limits) -> Given {
        let refused = |code, why: &'static str| Given::Refused(code, why.into());
        match piece {
            Piece::Unfinished => Given::Nothing,
            Piece::Here { is_compressed: false, len } => Given::Here(len),
            Piece::Whole { is_compressed: false, message } => {
                let len = message.len();
                Given::Message { message, len, compressed: false }
            }
            Piece::Here { is_compressed: true, len } => self.decompressed(&bytes[bytes.len() - len..], limits),
            Piece::Whole { is_compressed: true, message } => self.decompressed(&message, limits),
            Piece::End { is_compressed, message } => {
                let plain = |message| Given::Message { message, len: 0, compressed: false };
                let end = if is_compressed { self.decompressed(&message, limits) } else { plain(message) };
                match end {
                    Given::Message { message, .. } => {
                        self.end = Some(message);
                        Given::Nothing
                    }
                    refused => refused,
                }
            }
            Piece::TooLong(len) => too_long(Some(len), limits),
            Piece::Malformed => refused(Failure::INTERNAL, "the flag before a message is none that is known"),
        }
    }

    fn decompressed(&self, bytes: &[u8], limits: Limits) -> Given {
        match decompressed(self.declared, bytes, limits.message.min(limits.decompressed).min(self.most)) {
            Ok(message) => Given::Message { message, len: bytes.len(), compressed: true },
            Err((code, why)) => Given::Refused(code, why),
        }
    }

    fn take_whole(&mut self, all: &[u8], last: bool, limits: Limits) -> Given {
        let bytes = &all[..all.len().min(self.most.saturating_sub(self.whole.len()))];
        let len = self.whole.len() + bytes.len();
        if len > limits.message {
            return too_long(None, limits);
        }
        if last && self.whole.is_empty() && self.declared == Declared::Nothing && bytes.len() == all.len() {
            return Given::Here(bytes.len());
        }
        if self.whole.capacity() == 0 {
            self.whole.reserve_exact(bytes.len().max(len.min(AT_FIRST)));
        }
        self.whole.extend_from_slice(bytes);
        if last { self.end(limits) } else { Given::Nothing }
    }

    /// Reads messages in base64, four characters at a time: a message may end between two groups of four.
    fn take_text(&mut self, bytes: &[u8], limits: Limits) -> (usize, Given) {
        let mut taken = 0;
        loop {
            let text = &mut self.text;
            if text.at < text.end {
                let (used, piece) = self.assembler.take(&text.bytes[text.at..text.end], limits.message);
                text.at += used;
                if piece != Piece::Unfinished {
                    return (taken, self.given(piece, &[], limits));
                }
            } else if let Some(&character) = bytes.get(taken) {
                taken += 1;
                text.characters[text.got] = character;
                text.got += 1;
                if text.got == 4 {
                    match base64::engine::general_purpose::STANDARD.decode_slice(text.characters, &mut text.bytes) {
                        Ok(end) => (text.got, text.at, text.end) = (0, 0, end),
                        Err(_) => return (taken, Given::Refused(Failure::INTERNAL, "the body is not base64".into())),
                    }
                }
            } else {
                return (taken, Given::Nothing);
            }
        }
    }

    /// The body is complete. Returns its only message if the whole body is one, or a refusal if the body ends inside a
    /// message.
    pub(crate) fn end(&mut self, limits: Limits) -> Given {
        match self.body {
            Body::Whole => {
                let message = std::mem::take(&mut self.whole);
                if self.declared == Declared::Nothing || message.is_empty() {
                    let len = message.len();
                    return Given::Message { message, len, compressed: false };
                }
                self.decompressed(&message, limits)
            }
            Body::Messages | Body::Stream | Body::Text if self.is_inside() => {
                Given::Refused(Failure::INTERNAL, "the body ends inside of a message".into())
            }
            Body::Stream => self.end.take().map_or(Given::Nothing, Given::End),
            _ => Given::Nothing,
        }
    }

    /// Whether a message has begun and is not complete.
    pub(crate) fn is_inside(&self) -> bool {
        self.assembler.is_inside() || self.text.got > 0 || self.text.at < self.text.end
    }

    /// Bytes of the current message that are still to arrive, if its length is known.
    pub(crate) fn missing(&self) -> usize {
        self.assembler.missing()
    }

    /// Bytes of memory that incomplete messages take.
    pub(crate) fn held(&self) -> usize {
        self.assembler.held() + self.whole.capacity() + self.end.as_ref().map_or(0, Vec::capacity)
    }

    /// Drops the current message, and everything that follows.
    pub(crate) fn discard(&mut self) {
        *self = Self::new(Body::Discarded);
    }
}

/// The refusal of a message, whose length may be unknown.
fn too_long(len: Option<usize>, limits: Limits) -> Given {
    let (limit, LimitName { whose, advice }) = (limits.message, limits.name);
    let why = match len {
        Some(len) => format!("the message has {len} bytes, {whose} limit is {limit}{advice}"),
        None => format!("the message is longer than {whose} limit of {limit} bytes{advice}"),
    };
    Given::Refused(Failure::RESOURCE_EXHAUSTED, why.into())
}

/// Decompresses a message. The error is the status of its call.
fn decompressed(declared: Declared, bytes: &[u8], limit: usize) -> Result<Vec<u8>, (u8, Cow<'static, str>)> {
    let encoding = match declared {
        Declared::Known(encoding) => encoding,
        Declared::Nothing => {
            return Err((Failure::INTERNAL, "a message is compressed, but no header says how".into()));
        }
        // A server has refused the request already.
        Declared::Unknown => {
            return Err((Failure::INTERNAL, "a message is compressed otherwise than this side has offered".into()));
        }
    };
    Decompressor::run(encoding, bytes, limit).map_err(|error| match error {
        TooLong::Yes => (
            Failure::RESOURCE_EXHAUSTED,
            format!("the message has more than {limit} bytes when it is decompressed, and no more are kept now").into(),
        ),
        TooLong::Broken => (Failure::INTERNAL, format!("a message is not what {} makes", encoding.name()).into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { message: 300, decompressed: 300, name: LimitName::PLAIN };

    /// Reads a body in parts of this size. The error is the code of the refusal.
    fn read(body: Body, bytes: &[u8], size: usize) -> Result<Vec<Vec<u8>>, u8> {
        let (mut reader, mut got) = (Reader::new(body), Vec::new());
        let mut parts = bytes.chunks(size).peekable();
        let mut is_whole = false;
        while let Some(mut part) = parts.next() {
            let last = parts.peek().is_none();
            loop {
                let (taken, given) = reader.take(part, last, LIMITS);
                match given {
                    Given::Nothing | Given::End(_) => assert_eq!(taken, part.len()),
                    Given::Here(len) => got.push(part[taken - len..taken].to_vec()),
                    Given::Message { message, .. } => got.push(message),
                    Given::Refused(code, _) => return Err(code),
                }
                part = &part[taken..];
                is_whole |= last && body == Body::Whole;
                if part.is_empty() {
                    break;
                }
            }
        }
        match reader.end(LIMITS) {
            Given::Message { message, .. } if !is_whole => got.push(message),
            Given::Refused(code, _) => return Err(code),
            _ => {}
        }
        Ok(got)
    }

    fn enveloped(messages: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        for message in messages {
            out.push(0);
            out.extend_from_slice(&(message.len() as u32).to_be_bytes());
            out.extend_from_slice(message);
        }
        out
    }

    #[test]
    fn text_is_the_same_messages_however_it_is_divided_and_padded() {
        use base64::engine::general_purpose::STANDARD;
        let messages: [&[u8]; 4] = [b"", b"one", &[9; 200], b"xy"];
        let one = STANDARD.encode(enveloped(&messages));
        // Each message in a piece of its own, with its own padding.
        let many: String = messages.iter().map(|message| STANDARD.encode(enveloped(&[message]))).collect();
        for text in [one, many] {
            for size in 1..text.len() {
                assert_eq!(read(Body::Text, text.as_bytes(), size).expect("good"), messages, "parts of {size}");
            }
            assert_eq!(
                read(Body::Text, &text.as_bytes()[..text.len() - 1], 7),
                Err(Failure::INTERNAL),
                "it ends inside"
            );
        }
        assert_eq!(read(Body::Text, b"AAA*", 4), Err(Failure::INTERNAL));
        assert_eq!(
            read(Body::Text, STANDARD.encode(enveloped(&[&[0; 301]])).as_bytes(), 50),
            Err(Failure::RESOURCE_EXHAUSTED)
        );
    }

    #[test]
    fn a_stream_ends_with_a_message_of_its_own_and_nothing_behind_it() {
        let compressed = |bytes: &[u8]| {
            let mut out = Vec::new();
            crate::grpc::Compressor::run(Encoding::Gzip, &[bytes], &mut out);
            out
        };
        let end = |flag: u8, end: &[u8]| [&[flag, 0, 0, 0, end.len() as u8], end].concat();
        let reader = || {
            let mut reader = Reader::new(Body::Raw);
            reader.read_as(Reads::new(Body::Stream, Declared::Known(Encoding::Gzip)));
            reader
        };
        for end in [end(2, b"{}"), end(3, &compressed(b"{}"))] {
            let mut reader = reader();
            let body = [enveloped(&[b"one"]), end].concat();
            let (taken, given) = reader.take(&body, true, LIMITS);
            assert_eq!((taken, given), (8, Given::Here(3)));
            assert_eq!(reader.take(&body[8..], true, LIMITS), (body.len() - 8, Given::Nothing));
            assert!(matches!(reader.take(b"x", true, LIMITS), (0, Given::Refused(Failure::INTERNAL, _))));
            assert_eq!(reader.end(LIMITS), Given::End(b"{}".to_vec()));
        }
        assert_eq!(reader().end(LIMITS), Given::Nothing, "nobody has said how it ended");
        let bomb = end(3, &compressed(&[b' '; 301]));
        assert!(matches!(reader().take(&bomb, true, LIMITS), (_, Given::Refused(Failure::RESOURCE_EXHAUSTED, _))));
    }

    #[test]
    fn a_body_that_is_one_message_is_limited_while_it_comes() {
        let body = [7; 300];
        for size in [1, 7, 299, 300] {
            assert_eq!(read(Body::Whole, &body, size).expect("good"), [body.to_vec()]);
        }
        assert_eq!(read(Body::Whole, b"", 1).expect("good"), [b""]);
        assert_eq!(read(Body::Whole, &[7; 301], 50), Err(Failure::RESOURCE_EXHAUSTED));
        let mut reader = Reader::new(Body::Whole);
        reader.declared = Declared::Unknown;
        assert_eq!(reader.take(b"x", false, LIMITS), (1, Given::Nothing));
        assert!(matches!(reader.end(LIMITS), Given::Refused(Failure::INTERNAL, _)));
    }

    #[test]
    fn what_is_too_much_of_an_error_is_passed_over() {
        for size in [1, 64, 300] {
            let mut reader = Reader::new(Body::Discarded);
            reader.read_as(Reads { most: 10, ..Reads::new(Body::Whole, Declared::Nothing) });
            let body: Vec<u8> = (0..=255).collect();
            for part in body.chunks(size) {
                assert_eq!(reader.take(part, false, LIMITS), (part.len(), Given::Nothing), "however much comes");
                assert!(reader.held() <= 64, "{} bytes are held", reader.held());
            }
            let Given::Message { message, .. } = reader.end(LIMITS) else { panic!("no message") };
            assert_eq!(message, body[..10]);
        }
        let mut reader = Reader::new(Body::Discarded);
        reader.read_as(Reads { most: 10, ..Reads::new(Body::Whole, Declared::Nothing) });
        let (taken, given) = reader.take(&[7; 20], true, LIMITS);
        assert_eq!((taken, given), (20, Given::Message { message: vec![7; 10], len: 10, compressed: false }));
    }
}
