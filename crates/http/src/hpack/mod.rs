//! Compression of header fields (RFC 7541).

mod decode;
mod encode;
mod fields;
mod huffman;
mod table;

pub use decode::Decoder;
pub use encode::{Encoder, Keep};
pub use fields::Fields;
pub(crate) use table::OVERHEAD;

/// A header block that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(
    /// Why it cannot be read.
    pub &'static str,
);
