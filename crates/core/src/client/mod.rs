//! The client's end of a connection.

mod at_once;
mod awaited;
mod balancer;
mod channel;
mod connection;
mod first;
mod flushing;
mod kept;
mod leadership;
mod oneway;
mod patience;
mod pauses;
mod received;
mod receiving;
mod retries;
mod sending;
mod shared_table;
mod slots;
mod subchannel;
mod table;
mod waker;

pub(crate) use awaited::{Awaited, Sleeper};
pub use channel::{Balancing, Channel};
pub(crate) use connection::Receiver;
pub use connection::{Connection, Expected, NoEvent, StreamAccount};
pub use first::wait_for_first;
pub use kept::Kept;
pub use oneway::Passed;
pub use patience::{COMEBACK, OnChange, Patience};
pub use received::{Adopter, WakesBy};
pub use retries::{Cause, Pushback, Retries, RetryPolicy, Tally};
pub use slots::CallId;
pub use subchannel::may_pass;
