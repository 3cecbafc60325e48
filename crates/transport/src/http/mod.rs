//! gRPC, Connect and the protocols of browsers, as one more [`Link`](crate::Link): it translates between the calls,
//! items and ends of `nearcall_wire` and the messages, headers and statuses of `nearcall_http`.
//!
//! The number of a call at the server is the number of its stream. Credit becomes HTTP/2's windows. One-way calls,
//! named arguments, buffers beside a message and calls of objects have no form in HTTP: they are refused with a message
//! that says so.

mod bell;
mod client;
mod closing;
mod exchange;
mod frames;
mod held;
mod inflow;
mod link;
mod open;
mod pool;
mod receiving;
mod role;
mod server;
mod waiting;

pub(crate) use open::{PREFACE, call, client_session, http1_client_session, is_http1, serve};
pub(crate) use pool::Pool;
