//! Transports: ways for two processes to exchange frames, all behind one trait.
//!
//! - [`Url`] says where a server is and by which transport;
//! - [`connect`] dials it and shakes hands, or a [`Dial`] does so in slices; [`Listener`] accepts;
//! - [`Link`] is an established connection: it sends and receives frames, waits, and notices the peer's death.
//!
//! The files have an order. Each uses only those above it in this list:
//!
//! - basics of a connection: `errors`, `budget` (limits on memory), `peer`, `paths`, `proxy`, `tls/`, `options`;
//! - frames: `memory/` (memory that both sides can see), `spares` (memory kept for the next long frames), `incoming`,
//!   `outgoing`, and [`Link`], the trait that carries frames;
//! - links: `wire` (a socket, plain or encrypted), `native` and `outbox` (nearcall's own frames, and the queue of
//!   waiting ones), on these `stream` and `shm/`; `http/` beside them;
//! - addresses of servers: `transports/`, one file for each scheme and a table of them, and [`Url`];
//! - connections: `handshake/` makes a link from a socket; [`Dial`] and [`Listener`] get the socket.

mod dial;
mod errors;
#[cfg(test)]
mod forked;
mod frame;
mod handshake;
mod http;
mod limits;
mod link;
mod listen;
mod memory;
mod options;
mod peer;
mod shm;
mod stream;
mod sync;
mod tls;
mod transports;
mod url;

pub use dial::{Dial, connect, servers};
pub use errors::{ConnectError, LinkError};
pub use frame::incoming::{FREE, INLINE, Incoming, Payload};
pub use frame::outgoing::{Body, CallKey, Compress, Outgoing};
pub use frame::paths::{Messages, MethodPath, Path, Paths};
pub use handshake::{Connected, Handshake};
pub use limits::budget::{Account, Budget, Charge, SharedCharge};
pub use link::{Flushed, HeldUp, LONGEST_SLEEP, Link, Room, Sent};
pub use listen::Listener;
pub use memory::{Buffer, BufferPool, Lease};
pub use nearcall_http::{Codec, Encoding, Origins};
pub use options::Options;
pub use options::passed::PassedSockets;
pub use options::proxy::Proxy;
pub use peer::{Admission, Peer};
pub use tls::{Credentials, DevCerts, Pem, dev_certs};
pub use transports::{Comeback, ConnectionPermit, is_end_of_clients, named_servers};
pub use url::{BadUrl, Url};
