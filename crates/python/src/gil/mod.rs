//! The interpreter: released, taken again, called; its coroutines, and the errors that it raises.

pub(crate) mod callback;
pub(crate) mod coroutine;
pub(crate) mod errors;
pub(crate) mod interpreter;
pub(crate) mod noted;
pub(crate) mod rest;
