//! Byte rings in shared memory, and the strategy for waiting on them.
//!
//! This crate knows nothing of frames, calls or Python. It offers
//!
//! - [`Mapping`]: a sealed, anonymous shared memory file mapped into this process;
//! - [`Segment`]: two [lanes](Producer) and two [sides](Side) laid out in one mapping;
//! - [`Producer`] and [`Consumer`]: the two ends of one lane, a single-producer single-consumer ring of records;
//! - [`SpinBudget`]: when to spin for the peer, for how long, and when not to.
//!
//! All input from shared memory is treated as hostile: it is copied once and then checked.

mod lane;
mod parking;
mod sync;

#[cfg(not(loom))]
mod mapping;
#[cfg(not(loom))]
mod segment;
#[cfg(not(loom))]
mod side;
#[cfg(not(loom))]
mod spin;

pub use lane::{Consumer, Corrupt, Counters, LaneMemory, Producer, RECORD_PREFIX, Record};
#[cfg(not(loom))]
pub use mapping::Mapping;
pub use parking::Parking;
#[cfg(not(loom))]
pub use segment::{MappedLane, Role, Segment};
#[cfg(not(loom))]
pub use side::Side;
#[cfg(not(loom))]
pub use spin::{SpinBudget, SpinPolicy, spin};
