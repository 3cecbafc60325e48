//! A frame as it arrives, and as it is to be sent.

pub(crate) mod incoming;
pub(crate) mod outgoing;
pub(crate) mod paths;
