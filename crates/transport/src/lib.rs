//! Ways for two processes to exchange frames, all behind one trait.
//!
//! - [`Url`] says where a server is and by which transport;
//! - [`connect()`] dials it and shakes hands, or a [`Dial`] does so bit by bit; [`Listener`] accepts;
//! - [`Link`] is an established connection: it sends and receives frames, waits, and notices the peer's death.
//!
//! Where a URL leads is one file of `transports/` for each scheme. What carries the frames then is `shm/`, `stream.rs` (any
//! socket) or `tls.rs` (the same, encrypted).

mod budget;
mod buffers;
mod connect;
mod credentials;
mod dev_certs;
mod dial;
mod handed;
mod http;

mod incoming;
mod lease;
mod link;
mod listen;
mod mismatch;
mod native;
mod outbox;
mod outgoing;
mod peer;
mod proxy;
mod rendezvous;
mod shm;
mod silence;
mod spares;
mod stream;
mod sync;
mod tls;
mod tls_trouble;
mod transports;
mod url;

pub use budget::{Account, Budget, Charge};
pub use buffers::{Buffer, BufferPool};
pub use connect::{Connected, connect};
pub use credentials::{Credentials, Pem};
pub use dev_certs::{DevCerts, dev_certs};
pub use dial::{Dial, servers};
pub use handed::{ConnectionPermit, is_end_of_clients};
pub use http::{Messages, MethodPath, Path, Paths};
pub use incoming::{INLINE, Incoming, Payload};
pub use lease::Lease;
pub use link::{ConnectError, Flushed, LONGEST_SLEEP, Link, LinkError, Options, Room, Sent};
pub use listen::{Handshake, Listener};
pub use nearcall_http::{Codec, Encoding, Origins};
pub use outgoing::{Body, CallKey, Compress, Outgoing};
pub use peer::{Admission, Peer};
pub use proxy::Proxy;
pub use rendezvous::named_servers;
pub use transports::Comeback;
pub use url::{BadUrl, Url};
