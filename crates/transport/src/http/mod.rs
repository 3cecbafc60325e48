//! gRPC, Connect, and what browsers speak, as one more [`Link`](crate::Link): calls, items and ends of `nearcall_wire` on one side, the
//! messages, headers and statuses of `nearcall_http` on the other.
//!
//! A call's number at the server is the stream's. Credit becomes HTTP/2's windows. What these cannot say is refused in words:
//! one-way calls, named arguments, buffers beside a message, calls of objects.

mod bell;
mod client;
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

pub(crate) use open::{PREFACE, call, client_session, http1_client_session, serve};
pub(crate) use pool::Pool;
