//! HTTP/2 and gRPC's framing, without sockets: a state machine over bytes for servers and clients.
//!
//! [`Session`] is one connection. Everything from the peer is checked; what it can make this side keep is limited by
//! [`Options`]. Written from RFC 9113 (HTTP/2), RFC 7541 (HPACK) and gRPC's description of itself; why it is not the `h2`
//! crate says `docs/adr/0032-http2.md`.

mod code;
mod event;
mod fields;
mod frame;
mod grpc;
pub mod hpack;
mod options;
mod patience;
mod session;
mod settings;

pub use code::{Broken, Code};
pub use event::{Call, Ending, Event, Head, Outcome, SendError, Sent, StreamId};
pub use fields::{Request, Response};
pub use grpc::{BadMetadata, BadTimeout, Encoding, Encodings, code_of_http};
pub use options::Options;
pub use session::{Filled, Session};
