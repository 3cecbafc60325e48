//! Protobuf, straight between the wire and Python objects, without generated classes.
//!
//! `nearcall.codec.protobuf` decides which message a type becomes; the rules are in `docs/adr/0033-protobuf.md`. This
//! module carries that out. [`plan`] reads the decisions, once. [`encode`] walks values along the plan, and [`output`]
//! writes them, as Protobuf's bytes or as its JSON (`docs/adr/0037-json.md`). [`decode`] reads the bytes, [`json`] the
//! JSON, and [`making`] makes Python values of the fields that they found. [`codec`] is the part that Python uses.

#![expect(clippy::float_cmp, reason = "whether two numbers are the very same is the question here")]

mod anything;
mod codec;
mod decode;
mod encode;
mod json;
mod making;
mod output;
mod plan;
mod strings;
mod times;
mod trouble;

pub(crate) use codec::{Excess, ProtobufCodec, ProtobufMessages};
