//! The ways to reach a server: each has one line in the table, and a place.

mod address;
mod hosts;
mod inherited;
mod local;
mod nats;
mod rendezvous;
mod resolve;
mod sockets;
mod tunnel;

pub use nats::durable;
pub use rendezvous::named_servers;

use crate::handshake::{GRPC, NATIVE, WEB};
use crate::places::place::Speaks::{Grpc, Http};
use crate::places::place::Transport;
use hosts::Hosts;
use local::{FoundBy, Local};

/// All transports, in the order in which messages list them.
pub const TABLE: &[Transport] = &[
    // Shared memory between processes of one user on one machine.
    Transport::new("shm://name", |scheme, name| Local::named(scheme, name, FoundBy::ByUser)),
    // A Unix socket.
    Transport::new("unix:///path", |scheme, path| Local::at(scheme, path, &NATIVE)),
    Transport::new("tcp://host:port", |scheme, rest| Hosts::plain(scheme, rest, &NATIVE)),
    Transport::new("tls://host:port", |scheme, rest| Hosts::encrypted(scheme, rest, &NATIVE)).encrypted(),
    inherited::FD,
    inherited::STDIO,
    // Inside one process, for tests.
    Transport::new("inproc://name", |scheme, name| Local::named(scheme, name, FoundBy::InProcess)),
    nats::NATS,
    nats::NATS_TLS,
    // gRPC over HTTP/2.
    Transport::new("grpc://host:port", |scheme, rest| Hosts::plain(scheme, rest, &GRPC)).speaking(Grpc),
    Transport::new("grpcs://host:port", |scheme, rest| Hosts::encrypted(scheme, rest, &GRPC))
        .speaking(Grpc)
        .encrypted(),
    Transport::new("grpc+unix:///path", |scheme, path| Local::at(scheme, path, &GRPC)).speaking(Grpc),
    // The protocols of browsers, `curl` and gRPC's clients, over HTTP/1.1 and HTTP/2. nearcall's own clients speak Connect here.
    Transport::new("http://host:port", |scheme, rest| Hosts::plain(scheme, rest, &WEB)).speaking(Http),
    Transport::new("https://host:port", |scheme, rest| Hosts::encrypted(scheme, rest, &WEB)).speaking(Http).encrypted(),
    Transport::new("http+unix:///path", |scheme, path| Local::at(scheme, path, &WEB)).speaking(Http),
];
