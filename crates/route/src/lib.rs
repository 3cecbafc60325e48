//! The message router: messages go where a table says, by their type and not by an address.
//!
//! - [`table`]: what a table says, in RMR's text and in TOML. A [`table::Table`] is checked as a whole, and does not change
//!   after that: who replaces one swaps it for another at once. `docs/routing-tables.md` describes every rule;
//! - [`message`]: a message, and how it travels;
//! - [`rmr`]: the wire of RMR, so that a node is a peer of its programs;
//! - [`Node`]: sends messages to endpoints, each with a queue of its own, and takes those that others send. It owns no
//!   thread, as nothing below it does.

mod arrived;
mod bell;
mod brief;
mod calls;
mod described;
mod durable;
mod endpoint;
mod in_force;
mod inbox;
mod left;
pub mod message;
mod node;
mod passing;
mod pending;
mod replies;
pub mod rmr;
mod rmr_side;
mod sync;
pub mod table;
mod way;
mod work;

pub use arrived::Arrived;
pub use bell::Bell;
pub use calls::{Outcome, Waiter};
pub use endpoint::{Counts, Endpoint, WhenFull};
pub use inbox::Inbox;
pub use left::Left;
pub use message::{Envelope, FAILURE, Head, Heads, NO_SUBSCRIPTION, Transaction};
pub use nearcall_transport::{Delivery, Settled, Taking};
pub use node::Node;
pub use passing::SendError;
pub use pending::Pending;
pub use rmr_side::{RmrOptions, RmrSide};
pub use work::{Dialler, Starter, Work};
