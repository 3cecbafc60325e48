//! Calls as browsers and `curl` make them: Connect, gRPC-Web and JSON that is posted, over either version of HTTP. And calls
//! as Connect's clients make them.
//!
//! By the projects' own descriptions: [Connect](https://connectrpc.com/docs/protocol),
//! [gRPC-Web](https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-WEB.md). At a server [`Asked`] is how a
//! call is asked for and [`Reply`] how it is answered; [`Caller`] is both at a client.

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
