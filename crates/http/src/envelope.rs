//! The form of a message in a body.

use crate::event::SendError;

use crate::grpc::{Compressing, Compressor, Encoding};

/// Passes to `send` a message in the form of a body: with a flag and its length in front, and compressed if there is an
/// encoding.
///
/// # Errors
/// [`SendError::TooLong`], and those of `send`.
pub(crate) fn envelope<T>(
    flag: u8,
    (encoding, compressing): (Option<Encoding>, Compressing),
    pieces: &[&[u8]],
    send: impl FnOnce(&[&[u8]]) -> Result<T, SendError>,
) -> Result<T, SendError> {
    let compressed = Compressor::compressed(encoding, compressing, pieces);
    let whole = compressed.as_ref().map(|compressed| [&compressed[..]]);
    let message = whole.as_ref().map_or(pieces, |whole| &whole[..]);
    let len: usize = message.iter().map(|piece| piece.len()).sum();
    let [a, b, c, d] = u32::try_from(len).map_err(|_| SendError::TooLong { len })?.to_be_bytes();
    let prefix = [flag | u8::from(compressed.is_some()), a, b, c, d];
    let mut all = Vec::with_capacity(1 + message.len());
    all.push(&prefix[..]);
    all.extend_from_slice(message);
    send(&all)
}
