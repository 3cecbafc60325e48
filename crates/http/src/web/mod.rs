//! Calls as browsers and `curl` make them, over either version of HTTP: Connect, gRPC-Web and posted JSON. And calls as
//! clients of Connect make them.
//!
//! The projects' own descriptions: [Connect](https://connectrpc.com/docs/protocol),
//! [gRPC-Web](https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-WEB.md). At a server, [`Asked`] reads a call and
//! [`Reply`] answers it. At a client, [`Caller`] does both.

mod answer;
mod asked;
mod caller;
mod codec;
mod connect;
mod ends;
mod origins;
mod reply;

pub use answer::Answer;
pub use asked::{Asked, Protocol};
pub use caller::{Asks, Caller, Opened, Shape};
pub use codec::Codec;
pub use origins::Origins;
pub use reply::Reply;
