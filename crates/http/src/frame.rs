//! Frames of HTTP/2 (RFC 9113, sections 4 and 6).

use crate::code::{Broken, Code};

/// Bytes of a frame's head.
pub(crate) const HEAD: usize = 9;
/// The longest payload that this side accepts: the default, which every peer may send.
pub(crate) const LONGEST: usize = 16384;
/// The highest stream number, and the largest window.
pub(crate) const HIGHEST: u32 = 0x7fff_ffff;
/// The first bytes that a client sends.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

pub(crate) mod flag {
    pub(crate) const ACK: u8 = 1;
    pub(crate) const END_STREAM: u8 = 1;
    pub(crate) const END_HEADERS: u8 = 4;
    pub(crate) const PADDED: u8 = 8;
    pub(crate) const PRIORITY: u8 = 32;
}

/// A frame's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHead {
    pub(crate) len: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl FrameHead {
    pub(crate) fn decode(bytes: &[u8; HEAD]) -> Self {
        let [a, b, c, kind, flags, stream @ ..] = *bytes;
        let len = u32::from_be_bytes([0, a, b, c]) as usize;
        Self { len, kind, flags, stream: u32::from_be_bytes(stream) & HIGHEST }
    }

    pub(crate) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Appends a frame's head.
#[inline]
pub(crate) fn put_head(out: &mut Vec<u8>, len: usize, kind: u8, flags: u8, stream: u32) {
    debug_assert!(len < 1 << 24, "a frame's length has three bytes");
    let ([_, a, b, c], id) = ((len as u32).to_be_bytes(), stream.to_be_bytes());
    out.extend_from_slice(&[a, b, c, kind, flags, id[0], id[1], id[2], id[3]]);
}

/// Appends a whole frame.
pub(crate) fn put(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    put_head(out, payload.len(), kind, flags, stream);
    out.extend_from_slice(payload);
}

/// The payload without its padding.
pub(crate) fn without_padding(head: FrameHead, payload: &[u8]) -> Result<&[u8], Broken> {
    if !head.has(flag::PADDED) {
        return Ok(payload);
    }
    let (&padding, rest) = payload.split_first().ok_or(wrong_size())?;
    let len = rest.len().checked_sub(usize::from(padding));
    let len = len.ok_or(Broken::new(Code::PROTOCOL_ERROR, "a frame has more padding than it is long"))?;
    Ok(&rest[..len])
}

/// Reads exactly four bytes as a number.
pub(crate) fn number(payload: &[u8]) -> Result<u32, Broken> {
    payload.try_into().map(u32::from_be_bytes).map_err(|_| wrong_size())
}

pub(crate) fn wrong_size() -> Broken {
    Broken::new(Code::FRAME_SIZE_ERROR, "a frame has a length that its kind cannot have")
}
