//! RMR's own wire, which docs/rmr.md describes: a node is a full peer of programs that use RMR.
//!
//! - [`frame`] and [`Reader`]: what a message consists of, and messages out of bytes, without sockets;
//! - [`Exchange`]: the sockets, for one thread; [`Outlet`], what is sent over one of them; [`Link`], the way to one program;
//! - [`pushed`]: tables that a route manager pushes.

mod exchange;
pub mod frame;
mod link;
mod outlet;
mod poller;
pub mod pushed;
mod reader;

pub use exchange::{Exchange, ExchangeCounts, Limits, Sink};
pub use link::Link;
pub use outlet::Outlet;
pub use reader::Reader;
