//! One call on the server: the frames that come for it, and what its handler can learn of it.

mod context;
mod server_call;
mod under_way;
mod waiting_items;

pub use context::CallContext;
pub(in crate::server) use context::Known;
pub use server_call::{CallObserver, ItemOutcome, NextItem, ServerCall};
pub(in crate::server) use under_way::Held;
pub use under_way::UnderWay;
