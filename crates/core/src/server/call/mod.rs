//! One call on the server: the frames that come for it, and what its handler can learn of it.

mod context;
mod server_call;

pub use context::CallContext;
pub(in crate::server) use server_call::Told;
pub use server_call::{CallObserver, ItemOutcome, NextItem, ServerCall};
