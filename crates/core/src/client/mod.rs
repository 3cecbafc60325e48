//! The client's end of a connection.

mod channel;
mod connection;
mod driver;
mod own_event;
mod receiving;
mod retries;
mod sending;
mod table;

pub use crate::flow::TakenItems;
pub use channel::Channel;
pub use channel::patience::{OnChange, Patience, REPLACEMENT_WAIT};
pub use channel::picker::{Picked, Picker, picker_named};
pub use channel::subchannel::may_pass;
pub(crate) use connection::{Awaited, Receiver};
pub use connection::{Connection, Expected, NoEvent};
pub use driver::{Again, CallDriver, NextStep, Rules};
pub use receiving::received::Adopter;
pub use receiving::several::wait_for_first;
pub use retries::replay::Replay;
pub use retries::{Budget, Pushback, Retries, RetryPolicy};
pub use sending::oneway::Passed;
pub use table::CallId;
