//! Compression of single messages.

use std::io::Read;

use flate2::Compression;
use flate2::read::{GzEncoder, MultiGzDecoder};

/// A way to compress messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// RFC 1952. Every implementation of gRPC has it.
    Gzip,
    /// RFC 8878. Faster and smaller, where both sides have it.
    Zstd,
}

impl Encoding {
    /// All encodings; the one that every implementation knows comes first.
    pub const ALL: [Self; 2] = [Self::Gzip, Self::Zstd];

    /// The name that headers use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// The encoding with this name.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name().as_bytes() == name)
    }
}

/// The encodings that a side accepts: the header `grpc-accept-encoding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Encodings {
    gzip: bool,
    zstd: bool,
}

impl Encodings {
    /// The encodings that this implementation accepts, as a header's value.
    pub(crate) const ACCEPTED: &'static str = "identity,gzip,zstd";
    /// The same for headers in which `identity` goes without saying.
    pub(crate) const COMPRESSED: &'static str = "gzip,zstd";

    /// The encodings in a header's value that are known here. Weights in HTTP's own header are ignored, except that a
    /// weight of 0 excludes an encoding.
    #[must_use]
    pub fn read(value: &[u8]) -> Self {
        let mut this = Self::default();
        for one in value.split(|&octet| octet == b',') {
            let mut parts = one.split(|&octet| octet == b';');
            let name = parts.next().unwrap_or_default();
            let is_none = |part: &[u8]| {
                let weight = part.trim_ascii().strip_prefix(b"q=");
                weight.is_some_and(|weight| weight.iter().all(|octet| matches!(octet, b'0' | b'.')))
            };
            if parts.any(is_none) {
                continue;
            }
            match Encoding::named(name.trim_ascii()) {
                Some(Encoding::Gzip) => this.gzip = true,
                Some(Encoding::Zstd) => this.zstd = true,
                None => {}
            }
        }
        this
    }

    /// Whether the encoding is among them.
    #[must_use]
    pub fn has(self, encoding: Encoding) -> bool {
        match encoding {
            Encoding::Gzip => self.gzip,
            Encoding::Zstd => self.zstd,
        }
    }

    /// The best encoding to answer with, if there is any.
    #[must_use]
    pub fn best(self) -> Option<Encoding> {
        [Encoding::Zstd, Encoding::Gzip].into_iter().find(|&one| self.has(one))
    }
}

/// Whether a message is compressed, where an encoding was agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compressing {
    /// It goes as it is.
    #[default]
    No,
    /// If that makes it shorter.
    IfShorter,
    /// However long it becomes.
    Always,
}

/// Why a message was not decompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TooLong {
    /// The message is longer than the limit.
    Yes,
    /// The compressed bytes are broken.
    Broken,
}

/// The most memory that a zstd frame may ask for, as a power of two. RFC 8878 recommends accepting 8 MiB.
const ZSTD_WINDOW: u32 = 23;

/// Reads compressed messages.
pub(crate) struct Decompressor;

impl Decompressor {
    /// Decompresses a message of at most `limit` bytes. Of a longer one, only one byte more is ever produced.
    ///
    /// No bytes at all are an empty message, although neither format has such a form: some peers do not compress one,
    /// and say that they have.
    pub(crate) fn run(encoding: Encoding, bytes: &[u8], limit: usize) -> Result<Vec<u8>, TooLong> {
        if bytes.is_empty() {
            return Ok(Vec::new());
        }
        let mut out = Vec::with_capacity((bytes.len() * 4).min(limit).min(1 << 20));
        let most = limit as u64 + 1;
        let read = match encoding {
            Encoding::Gzip => MultiGzDecoder::new(bytes).take(most).read_to_end(&mut out),
            Encoding::Zstd => zstd::stream::read::Decoder::with_buffer(bytes).and_then(|mut decoder| {
                decoder.window_log_max(ZSTD_WINDOW)?;
                decoder.take(most).read_to_end(&mut out)
            }),
        };
        match read {
            Ok(_) if out.len() > limit => Err(TooLong::Yes),
            Ok(_) => Ok(out),
            Err(_) => Err(TooLong::Broken),
        }
    }
}

/// Writes compressed messages.
pub(crate) struct Compressor;

impl Compressor {
    /// Compresses the pieces as one message. `None` if they go as they are.
    pub(crate) fn compressed(
        encoding: Option<Encoding>,
        compressing: Compressing,
        pieces: &[&[u8]],
    ) -> Option<Vec<u8>> {
        let encoding = encoding.filter(|_| compressing != Compressing::No)?;
        let mut out = Vec::new();
        Self::run(encoding, pieces, &mut out);
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        (compressing == Compressing::Always || out.len() < len).then_some(out)
    }

    /// Compresses the pieces as one message, and appends the result to `out`.
    pub(crate) fn run(encoding: Encoding, pieces: &[&[u8]], out: &mut Vec<u8>) {
        let joined;
        let bytes = if let [one] = pieces {
            one
        } else {
            joined = pieces.concat();
            &joined[..]
        };
        let done = match encoding {
            Encoding::Gzip => GzEncoder::new(bytes, Compression::fast()).read_to_end(out),
            Encoding::Zstd => {
                zstd::stream::read::Encoder::with_buffer(bytes, 1).and_then(|mut encoder| encoder.read_to_end(out))
            }
        };
        done.expect("memory to memory does not fail");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_there_and_back() {
        for encoding in Encoding::ALL {
            for message in [&b""[..], b"x", &vec![7; 100_000]] {
                let mut out = Vec::new();
                let (first, second) = message.split_at(message.len() / 2);
                Compressor::run(encoding, &[first, second], &mut out);
                assert_eq!(Decompressor::run(encoding, &out, message.len()).as_deref(), Ok(message));
                if !message.is_empty() {
                    assert_eq!(Decompressor::run(encoding, &out, message.len() - 1), Err(TooLong::Yes));
                    assert_eq!(Decompressor::run(encoding, &out[..out.len() - 1], 1 << 20), Err(TooLong::Broken));
                }
            }
            assert!(Decompressor::run(encoding, b"nonsense", 100).is_err());
        }
    }

    #[test]
    fn no_bytes_at_all_are_an_empty_message() {
        for encoding in Encoding::ALL {
            assert_eq!(Decompressor::run(encoding, b"", 0), Ok(Vec::new()));
        }
    }

    #[test]
    fn a_message_becomes_longer_only_if_that_is_asked_for() {
        let run = |encoding, compressing| Compressor::compressed(encoding, compressing, &[b"x"]);
        for encoding in Encoding::ALL.map(Some) {
            assert_eq!((run(encoding, Compressing::No), run(encoding, Compressing::IfShorter)), (None, None));
            assert!(run(encoding, Compressing::Always).expect("it is asked for").len() > 1);
        }
        assert_eq!(run(None, Compressing::Always), None);
    }

    #[test]
    fn what_a_peer_accepts_is_read_from_its_header() {
        let some = Encodings::read(b"identity, deflate , gzip,br");
        assert!(some.has(Encoding::Gzip) && !some.has(Encoding::Zstd));
        assert_eq!(some.best(), Some(Encoding::Gzip));
        assert_eq!(Encodings::read(Encodings::ACCEPTED.as_bytes()).best(), Some(Encoding::Zstd));
        assert_eq!(Encodings::read(b"").best(), None);
        let weighed = Encodings::read(b"zstd;q=0.0, gzip; q=0.5, *;q=0");
        assert!(weighed.has(Encoding::Gzip) && !weighed.has(Encoding::Zstd));
    }
}
