//! Calls as browsers and `curl` make them: Connect, gRPC-Web and JSON that is posted, over either version of HTTP.
//!
//! By the projects' own descriptions: [Connect](https://connectrpc.com/docs/protocol),
//! [gRPC-Web](https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-WEB.md). [`Asked`] is how a call is asked for, [`Reply`]
//! how it is answered.

mod asked;
mod connect;
mod origins;
mod reply;

pub use asked::{Answer, Asked, Codec, Protocol};
pub use origins::Origins;
pub use reply::Reply;
