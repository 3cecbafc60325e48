//! The threads of a server: how many there are, and which of them receives.

pub(in crate::server) mod crew;
pub(in crate::server) mod leadership;
pub(in crate::server) mod loop_watch;
mod places;

#[cfg(test)]
mod tests;
