//! Calls from this process: waiting, started, awaited and one-way ones, and streams.

pub(crate) mod aio;
pub(crate) mod blocking;
pub(crate) mod bound;
pub(crate) mod callees;
pub(crate) mod calling;
pub(crate) mod crossing;
pub(crate) mod deadline;
pub(crate) mod driving;
pub(crate) mod oneway;
pub(crate) mod outcome;
pub(crate) mod resending;
pub(crate) mod retry_budget;
pub(crate) mod route;
pub(crate) mod started;
pub(crate) mod stream;
pub(crate) mod target;
pub(crate) mod unary;
pub(crate) mod when_full;
