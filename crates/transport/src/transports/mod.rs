//! The ways to reach a server: one file each, and one line in the table.

mod address;
mod grpc;
mod hosts;
mod http;
mod inherited;
mod inproc;
mod local;
mod nats;
mod rendezvous;
mod resolve;
mod shm;
mod sockets;
mod tcp;
mod tls;
mod tunnel;
mod unix;

pub use nats::durable;
pub use rendezvous::named_servers;

use crate::places::place::Transport;

/// All transports, in the order in which messages list them.
pub const TABLE: &[Transport] = &[
    shm::SHM,
    unix::UNIX,
    tcp::TCP,
    tls::TLS,
    inherited::FD,
    inherited::STDIO,
    inproc::INPROC,
    nats::NATS,
    nats::NATS_TLS,
    grpc::GRPC,
    grpc::GRPCS,
    grpc::GRPC_UNIX,
    http::HTTP,
    http::HTTPS,
    http::HTTP_UNIX,
];
