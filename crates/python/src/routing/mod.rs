//! The router, as Python holds it.

pub(crate) mod codec;
pub(crate) mod message;
pub(crate) mod node;
