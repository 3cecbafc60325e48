//! Values to bytes and back: what a method declares, and how the codecs read and write it.

pub(crate) mod encoded;
pub(crate) mod encoder;
pub(crate) mod hashed;
pub(crate) mod kinds;
pub(crate) mod native;
pub(crate) mod payload;
pub(crate) mod plan;
pub(crate) mod protobuf;
pub(crate) mod sizes;
pub(crate) mod unsent;
pub(crate) mod view;
