//! The protocols over sockets: each makes links of sockets, at a client and at a server.

mod arrival;
mod greeting;
mod mismatch;
mod native;
mod native_client;
mod web;
mod web_client;

pub(crate) use native::NATIVE;
pub(crate) use web::{GRPC, WEB};
