//! gRPC's additions to HTTP/2: names of headers, the form of values, messages in a body, compression.
//!
//! The project's own description is [PROTOCOL-HTTP2](https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md).

mod assembler;
mod compression;
mod content_type;
mod metadata;
mod status;
mod timeout;

pub(crate) use assembler::{Assembler, END_OF_STREAM, PREFIX, Piece};
pub use compression::{Compressing, Encoding, Encodings};
pub(crate) use compression::{Compressor, Decompressor, TooLong};
pub(crate) use content_type::{CONTENT_TYPE, codec, reply_type};
pub use metadata::BadMetadata;
pub(crate) use metadata::{decode_value, encode_value, read as read_metadata};
pub use status::code_of_http;
pub(crate) use status::{decode_message, encode_message};
pub use timeout::BadTimeout;
pub(crate) use timeout::{read as read_timeout, write as write_timeout};
