//! The ways to reach a server: one file each, and one line in the table.

mod address;
mod grpc;
mod http;
mod inherited;
mod inproc;
mod local;
mod rendezvous;
mod resolve;
mod shm;
mod sockets;
mod tcp;
mod tls;
mod tunnel;
mod unix;

pub use rendezvous::named_servers;

use crate::places::place::Transport;

/// All transports, in the order in which messages list them.
pub(crate) const TABLE: &[&dyn Transport] = &[
    &shm::Shm,
    &unix::Unix,
    &tcp::Tcp,
    &tls::Tls,
    &inherited::Fd,
    &inherited::Stdio,
    &inproc::Inproc,
    &grpc::Grpc,
    &grpc::Grpcs,
    &grpc::GrpcUnix,
    &http::Http,
    &http::Https,
    &http::HttpUnix,
];
