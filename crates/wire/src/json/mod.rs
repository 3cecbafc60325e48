//! Protobuf's JSON mapping: writes its values as JSON, and reads them from texts in JSON.
//!
//! The mapping is described at <https://protobuf.dev/programming-guides/json/>. `serde_json` handles JSON's own
//! grammar. This module handles Protobuf's rules for values: integers and bytes in quotes, NaN and infinities, points
//! in time.

mod texts;
mod times;
mod writer;

pub use texts::{base64, float, number, whole};
pub use times::{duration, timestamp};
pub use writer::Writer;

/// A number in JSON.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Numeral {
    /// Written without fraction and exponent, and of 64 bits.
    Int(i128),
    /// Any other.
    Float(f64),
}
