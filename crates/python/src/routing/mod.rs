//! The router, as Python holds it.

pub(crate) mod node;
pub(crate) mod pushed;
