//! Bodies in chunks (RFC 9112, section 7.1): a length precedes each chunk, and a chunk of length 0 ends the body.

/// The most digits of a chunk's length: less than 4 GiB.
const MOST_DIGITS: u8 = 8;
/// The most bytes of extensions, which this crate ignores, in one body.
const MOST_EXTENSIONS: usize = 4 << 10;
/// The most bytes of fields after a body, which are read and ignored.
const MOST_TRAILERS: usize = 16 << 10;

/// The position in a body in chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// In a length, after this many digits.
    Length(u8),
    /// In an extension behind the length.
    Extension,
    /// Behind the CR after a length.
    LengthEnd,
    Data,
    /// Behind a chunk; then behind the CR there.
    DataEnd,
    DataEndLf,
    /// At the beginning of a line behind the last chunk; inside such a line; behind its CR, with whether the line is
    /// empty.
    Trailer,
    TrailerLine,
    TrailerEnd {
        is_empty: bool,
    },
    Over,
}

/// Separates the bytes of a body from the framing of its chunks.
#[derive(Debug)]
pub(super) struct Chunks {
    at: At,
    /// The length that is being read, then the bytes of the chunk that are still to come.
    left: u64,
    extensions: usize,
    trailers: usize,
}

/// A body whose chunks are malformed, and why.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadChunks(pub(super) &'static str);

impl Chunks {
    pub(super) fn new() -> Self {
        Self { at: At::Length(0), left: 0, extensions: 0, trailers: 0 }
    }

    /// Whether the whole body has been read.
    pub(super) fn is_over(&self) -> bool {
        self.at == At::Over
    }

    /// Returns how many of the next bytes are framing, to be skipped, and how many bytes of the body follow them.
    ///
    /// # Errors
    /// The framing is malformed, so the end of the body is unknown.
    pub(super) fn next(&mut self, bytes: &[u8]) -> Result<(usize, usize), BadChunks> {
        let mut skipped = 0;
        while self.at != At::Data && self.at != At::Over {
            let Some(&octet) = bytes.get(skipped) else { return Ok((skipped, 0)) };
            skipped += 1;
            self.around(octet)?;
        }
        let len = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len() - skipped);
        Ok((skipped, if self.at == At::Data { len } else { 0 }))
    }

    /// Notes that `len` bytes of the body were taken.
    pub(super) fn took(&mut self, len: usize) {
        self.left -= len as u64;
        if self.left == 0 && self.at == At::Data {
            self.at = At::DataEnd;
        }
    }

    /// Reads a byte of the framing.
    fn around(&mut self, octet: u8) -> Result<(), BadChunks> {
        let wanted =
            |wanted: u8| if octet == wanted { Ok(()) } else { Err(BadChunks("a chunk does not end with CR LF")) };
        self.at = match self.at {
            At::Length(digits) => match (octet, (octet as char).to_digit(16)) {
                (_, Some(digit)) if digits < MOST_DIGITS => {
                    self.left = self.left * 16 + u64::from(digit);
                    At::Length(digits + 1)
                }
                (b'\r', _) if digits > 0 => At::LengthEnd,
                (b';', _) if digits > 0 => At::Extension,
                _ => return Err(BadChunks("the length of a chunk is malformed")),
            },
            At::Extension => {
                self.extensions += 1;
                match octet {
                    b'\r' => At::LengthEnd,
                    b'\t' | 0x20..=0x7e | 0x80.. if self.extensions < MOST_EXTENSIONS => At::Extension,
                    _ => return Err(BadChunks("an extension of a chunk is malformed, or there are too many")),
                }
            }
            At::LengthEnd => {
                wanted(b'\n')?;
                if self.left == 0 { At::Trailer } else { At::Data }
            }
            At::DataEnd => {
                wanted(b'\r')?;
                At::DataEndLf
            }
            At::DataEndLf => {
                wanted(b'\n')?;
                At::Length(0)
            }
            At::Trailer if octet == b'\r' => At::TrailerEnd { is_empty: true },
            At::Trailer | At::TrailerLine => {
                self.trailers += 1;
                match octet {
                    b'\r' => At::TrailerEnd { is_empty: false },
                    // A line that begins with a space would continue the line before it.
                    b' ' | b'\t' if self.at == At::Trailer => {
                        return Err(BadChunks("a field after the body is malformed"));
                    }
                    b'\t' | 0x20..=0x7e | 0x80.. if self.trailers < MOST_TRAILERS => At::TrailerLine,
                    _ => return Err(BadChunks("a field after the body is malformed, or there are too many")),
                }
            }
            At::TrailerEnd { is_empty } => {
                wanted(b'\n')?;
                if is_empty { At::Over } else { At::Trailer }
            }
            At::Data | At::Over => self.at,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the body, and how many bytes of the text follow it.
    fn body(text: &[u8], size: usize) -> Result<(Vec<u8>, usize), BadChunks> {
        let (mut chunks, mut out, mut at) = (Chunks::new(), Vec::new(), 0);
        while !chunks.is_over() && at < text.len() {
            let part = &text[at..(at + size).min(text.len())];
            let (skipped, len) = chunks.next(part)?;
            out.extend_from_slice(&part[skipped..skipped + len]);
            chunks.took(len);
            at += skipped + len;
        }
        assert!(chunks.is_over(), "it is not over");
        Ok((out, text.len() - at))
    }

    #[test]
    fn a_body_is_the_same_over_any_division() {
        let text = b"5\r\nhello\r\n00A;name=value;x=\"y\"\r\n0123456789\r\n0\r\nX: y\r\nZ: \r\n\r\nNEXT";
        for size in 1..text.len() {
            assert_eq!(body(text, size).expect("good"), (b"hello0123456789".to_vec(), 4), "parts of {size}");
        }
    }

    /// Whether a body with this beginning is refused before it needs more bytes.
    fn is_refused(text: &[u8]) -> bool {
        let mut chunks = Chunks::new();
        let mut rest = text;
        loop {
            match chunks.next(rest) {
                Err(_) => return true,
                Ok((0, 0)) => return false,
                Ok((skipped, len)) => {
                    chunks.took(len);
                    rest = &rest[skipped + len..];
                }
            }
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for bad in [
            &b"\r\n"[..],
            b";x\r\n",
            b"g\r\n",
            b"0x5\r\n",
            b"+5\r\n",
            b"-1\r\n",
            b" 5\r\n",
            b"5 \r\n",
            b"5\n",
            b"5\rx",
            b"5;a\nb",
            b"5;a\0",
            b"123456789\r\n",
            b"1\r\nab",
            b"1\r\na\n",
            b"1\r\na\rb",
            b"0\r\n folded\r\n\r\n",
            b"0\r\nx\n\r\n",
            b"0\r\nx\rx",
        ] {
            assert!(is_refused(bad), "{:?}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn what_is_around_a_body_is_limited() {
        let long = [&b"1;"[..], &[b'x'; MOST_EXTENSIONS]].concat();
        assert!(Chunks::new().next(&long).is_err());
        let long = [&b"0\r\n"[..], &[b'x'; MOST_TRAILERS]].concat();
        assert!(Chunks::new().next(&long).is_err());
        // Many short extensions count as much as a long one.
        let many = b"1;12345678901234567890\r\nx\r\n".repeat(MOST_EXTENSIONS / 20);
        assert!(is_refused(&many));
    }
}
