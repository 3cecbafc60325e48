//! The protocol between two nearcall processes: frames, the handshake, status codes.
//!
//! Pure functions over bytes: no I/O, no clocks. `docs/protocol.md` describes the protocol for other implementations.

mod error;
pub mod flow;
mod frame;
mod handshake;
mod hashed;
mod hashes;
pub mod json;
mod malformed;
mod metadata;
mod msgpack;
mod payload;
mod probing;
pub mod protobuf;
mod reference;
pub mod rpc_status;
mod shown;
pub mod sizes;
mod values;

pub use error::{CODE_NAMES, Failure};
pub use frame::{Extras, FrameHead, HEAD_LEN, Kind, flags};
pub use handshake::{Hello, Limits, MAGIC, MAX_HANDSHAKE, PROTOCOL, Preamble, PreambleError, Welcome, versions_differ};
pub use hashed::{Hashed, Watch};
pub use hashes::KeyType;
pub use malformed::Malformed;
pub use metadata::Metadata;
pub use payload::PartsTable;
pub use probing::{Effort, Keys, TableKind, TooMuch};
pub use reference::{Giver, Released, references_in};
pub use shown::shown;
pub use values::{REFERENCE_VALUES, Weight, Weights, holds_more_than, weigh};
