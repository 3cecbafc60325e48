//! Protobuf's JSON mapping: writes its values as JSON, and reads them from texts in JSON.
//!
//! The mapping is described at <https://protobuf.dev/programming-guides/json/>. [`Tokens`] has JSON's own grammar; the
//! rest are Protobuf's rules for values: integers and bytes in quotes, NaN and infinities, points in time.

mod texts;
mod times;
mod tokens;
mod writer;

pub use texts::{base64, finite, float, integer, is_number, whole};
pub use times::{duration, timestamp};
pub use tokens::{Token, Tokens};
pub use writer::Writer;
