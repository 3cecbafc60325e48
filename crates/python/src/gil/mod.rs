//! The interpreter: released, taken again, called; its coroutines, the errors that it raises, and metadata for it.

pub(crate) mod callback;
pub(crate) mod coroutine;
pub(crate) mod entered;
pub(crate) mod errors;
pub(crate) mod greenlets;
pub(crate) mod interpreter;
pub(crate) mod kept;
pub(crate) mod metadata;
pub(crate) mod noted;
pub(crate) mod rest;
