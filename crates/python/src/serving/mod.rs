//! Calls to this process: workers and event loops, and what runs a handler.

pub(crate) mod buffer;
pub(crate) mod context;
pub(crate) mod handler_turn;
pub(crate) mod health;
pub(crate) mod introspection;
pub(crate) mod loop_server;
pub(crate) mod notices;
mod paths;
pub(crate) mod request_stream;
pub(crate) mod route_codec;
pub(crate) mod route_handlers;
pub(crate) mod route_message;
pub(crate) mod route_owner;
pub(crate) mod served;
pub(crate) mod server;
pub(crate) mod session;
pub(crate) mod topic;
