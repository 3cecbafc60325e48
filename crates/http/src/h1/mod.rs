//! Connections of HTTP/1.1 (RFC 9112). [`Http1`] is the server's end: it reads requests and writes responses, one after
//! the other. [`Http1Client`] is the client's end.
//!
//! A request that arrives before the one in front of it is answered waits in the input, and little more is read
//! meanwhile. So responses are in order, and no client has more than one call under way on a connection.

mod chunks;
mod client;
mod endpoint;
mod head;
mod sending;
mod server;
mod writing;

pub use client::Http1Client;
pub use server::Http1;
pub use writing::refusal_of_http1;
