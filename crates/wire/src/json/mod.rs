//! Protobuf's JSON mapping: how its values are written as JSON, and read from texts in it.
//!
//! The mapping is that of <https://protobuf.dev/programming-guides/json/>. JSON's own grammar is `serde_json`'s; here is
//! what Protobuf says of the values: integers and bytes in quotes, numbers that are none, points in time.

mod texts;
mod times;
mod writer;

pub use texts::{base64, float, number, whole};
pub use times::{duration, timestamp};
pub use writer::Writer;

/// A number of JSON.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Numeral {
    /// Written without a fraction and an exponent, and of 64 bits.
    Int(i128),
    /// Any other.
    Float(f64),
}
