//! Objects that are passed: what one side gives, the other side calls.

pub(crate) mod given;
pub(crate) mod objects;
