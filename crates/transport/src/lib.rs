//! Transports: ways for two processes to exchange frames, all behind one trait.
//!
//! - [`Url`] says where a server is and by which transport;
//! - [`connect`] dials it and shakes hands, or a [`Dial`] does so in slices; [`Listener`] accepts;
//! - [`Link`] is an established connection: it sends and receives frames, waits, and notices the peer's death.
//!
//! The files have an order. Each uses only those above it in this list:
//!
//! - basics of a connection: `signal`, `errors`, `budget` (limits on memory), `peer`, `paths`, `proxy`, `tls/`, `options`;
//! - frames: `memory/` (memory that both sides can see), `spares` (memory kept for the next long frames), `incoming`,
//!   `outgoing`, and [`Link`], the trait that carries frames;
//! - links: `wire` (a socket, plain or encrypted), `native` and `outbox` (nearcall's own frames, and the queue of
//!   waiting ones), on these `stream` and `shm/`; `http/` beside them;
//! - what a transport is: `places/`, with [`Place`], and the openings that become links: [`Dialled`] and [`Accepted`];
//! - `handshake/`: the protocols over sockets, which make links of them;
//! - `nats/`: connections by way of a NATS server, which end in sockets of this process;
//! - addresses of servers: `transports/`, one file for each scheme and a table of them, and [`Url`];
//! - `resolved`: URLs whose servers a [`Resolver`] names;
//! - connections: [`Dial`] and [`Listener`].

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
mod nats;
mod options;
mod peer;
mod places;
mod resolved;
mod shm;
mod signal;
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
pub use limits::budget::{Account, Budget, Charge, SharedCharge};
pub use link::pace::Pace;
pub use link::{Flushed, HeldUp, LONGEST_SLEEP, Ledger, Link, MemoryLink, Properties, Room, Sent, Wait};
pub use listen::Listener;
pub use memory::{Buffer, BufferPool, Lease};
pub use nats::Taking;
pub use nats::durable::{Delivery, Durable, Sender as DurableSender, Settled, Unsent, take as take_durable};
pub use nearcall_http::{Codec, Encoding, Origins};
pub use options::Options;
pub use options::login::{Login, Proof};
pub use options::passed::PassedSockets;
pub use options::proxy::Proxy;
pub use peer::{Admission, Peer};
pub use places::acceptor::{Acceptor, Arrived, HandsOver};
pub use places::clients::{ConnectionPermit, is_end_of_clients};
pub use places::opening::{Accepted, Awaits, Connected, Dialled, Greeted, Greeting};
pub use places::place::{Bound, Dialling, Each, Finding, Found, Place, Reconnect, Speaks, Transport};
pub use resolved::{Resolver, resolved};
pub use signal::{Signal, WakerSlot};
pub use tls::{Credentials, DevCerts, Pem, dev_certs};
pub use transports::{TABLE as TRANSPORTS, durable, named_servers};
pub use url::{BadUrl, Url};
