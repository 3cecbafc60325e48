//! Protocol Buffers on the wire: fields, numbers and lengths, without the meaning of any message.
//!
//! The format is described at <https://protobuf.dev/programming-guides/encoding/>. All input comes from peers: every
//! length is checked before it is used, groups are skipped without recursion, and nothing is allocated.

pub mod calendar;
mod reader;
mod scalar;
mod writer;

pub use reader::{Fields, Wire, varint};
pub use scalar::{Number, Scalar, packed};
pub use writer::Writer;

/// How deeply messages and groups may be nested: as deeply as most other implementations accept.
pub const MAX_DEPTH: usize = 100;
/// The greatest number of a field.
pub const MAX_FIELD: u32 = (1 << 29) - 1;

const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const BYTES: u8 = 2;
const GROUP: u8 = 3;
const GROUP_END: u8 = 4;
const FIXED32: u8 = 5;
