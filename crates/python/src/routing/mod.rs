//! The router, as Python holds it.

pub(crate) mod codec;
pub(crate) mod node;
