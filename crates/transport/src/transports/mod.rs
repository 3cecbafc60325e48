//! The ways to reach a server: one file each, and one line in the table.

mod address;
mod clients;
mod grpc;
mod handed;
mod http;
mod inherited;
mod inproc;
mod local;
mod place;
mod rendezvous;
mod resolve;
mod shm;
mod sockets;
mod tcp;
mod tls;
mod tunnel;
mod unix;

pub(crate) use clients::Clients;
pub use clients::{ConnectionPermit, is_end_of_clients};
pub(crate) use handed::Handed;
pub use place::Comeback;
pub(crate) use place::{Bound, Dialled, Each, Found, Place, SharedMemory, Speaks, Transport};
pub use rendezvous::named_servers;

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
