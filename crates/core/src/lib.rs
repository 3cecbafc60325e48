//! Calls over any transport: the client's and the server's state machines.
//!
//! - [`client::Connection`] carries any number of calls at once, for threads and for event loops;
//! - [`server::Server`] receives from all its connections and hands out [`server::Request`]s to [`server::Worker`]s.
//!
//! Neither knows what a payload means, and neither owns a thread: they run in the threads of their callers.

#[cfg(test)]
mod chosen_link;
pub mod client;
mod exports;
mod flow;
mod given;
pub mod server;
mod sync;
mod vary;

pub use exports::{Export, Identity, Methods, Object};
pub use given::{given_in, left_over};
pub use nearcall_platform::clock::{is_past, seconds_left};
pub use nearcall_platform::fault;
pub use nearcall_platform::lifeline::{die_with_starter, end_with};
pub use nearcall_platform::lock;
pub use nearcall_platform::rest;
pub use nearcall_ring::SpinPolicy;
pub use nearcall_transport::{
    Admission, BadUrl, Body, Buffer, BufferPool, Charge, Codec, Compress, ConnectError, Credentials, DevCerts,
    Encoding, Incoming, Lease, LinkError, Listener, Login, Messages, MethodPath, Options, Origins, Outgoing,
    PassedSockets, Path, Paths, Payload, Peer, Pem, Proof, Proxy, Resolver, TRANSPORTS, Url, dev_certs, named_servers,
    resolved,
};
pub use nearcall_wire::{
    Effort, Failure, FrameHead, Hashed, KeyType, Keys, Kind, Malformed, Metadata, REFERENCE_VALUES, TableKind, TooMuch,
    Watch, Weights, holds_more_than, json, protobuf, shown, sizes, weigh,
};

/// Seconds on the system's monotonic clock.
#[must_use]
pub fn monotonic_seconds() -> f64 {
    nearcall_platform::clock::monotonic_ns() as f64 / 1e9
}

/// Version of the library, sent in the handshake.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
