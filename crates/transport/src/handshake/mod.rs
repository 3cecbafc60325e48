//! The handshake before the first call. It decides which [`Link`](crate::Link) a socket becomes.

mod client;
mod mismatch;
mod server;

pub use client::Connected;
pub(crate) use client::establish;
pub(crate) use server::Accepted;
pub use server::Handshake;
