//! The options of a session that its owner may choose.

use crate::grpc::Encoding;

/// Limits of one connection. They bound the memory that a peer can make this side use:
/// [`connection_window`](Options::connection_window) + [`max_header_list`](Options::max_header_list) + for each stream
/// [`stream_window`](Options::stream_window) or one message, whichever is longer.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The longest message that this side accepts, in bytes, before and after decompression.
    pub max_message: usize,
    /// Whose limit that is, and what to do about it: for the refusal of a longer message.
    pub limit: LimitName,
    /// Streams that the peer may have open at a time. Streams that it has reset count until
    /// [`forget`](crate::Session::forget).
    pub max_concurrent_streams: u32,
    /// Bytes that the peer may send on one stream before the application takes them, 65,535 to 2³¹ − 1.
    pub stream_window: u32,
    /// Bytes that the peer may send on all streams before they are received, 65,535 to 2³¹ − 1. Credit for them is
    /// returned on receipt, unless [`hold_credit`](crate::Session::hold_credit) says otherwise.
    pub connection_window: u32,
    /// The most bytes of one header block, decompressed, counting 32 more for each field.
    pub max_header_list: usize,
    /// When this many bytes of one stream wait for the peer's windows, its owner is told to send no more. A mark, not a
    /// limit: messages are accepted all the same.
    pub send_queue: usize,
    /// How to compress messages that are to be compressed. A server uses it if the client reads it. Without a choice, a
    /// server uses the best encoding that the client reads.
    pub encoding: Option<Encoding>,
    /// Useless frames (pings, settings, cancelled requests ...) that a peer may send in a burst.
    pub useless_burst: u32,
    /// Useless frames that a peer may send in each second on average. Frames that come with as much useful traffic do
    /// not count.
    pub useless_per_second: u32,
}

/// The words of "the message has 3 bytes, the server's limit is 2; raise it there" that depend on the side.
#[derive(Debug, Clone, Copy)]
pub struct LimitName {
    /// `the server's`.
    pub whose: &'static str,
    /// `; raise it there`.
    pub advice: &'static str,
}

impl LimitName {
    /// For users who are told the rest by others.
    pub const PLAIN: Self = Self { whose: "the", advice: "" };
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_message: 64 << 20,
            limit: LimitName::PLAIN,
            max_concurrent_streams: 16_384,
            stream_window: 1 << 20,
            connection_window: 4 << 20,
            max_header_list: 64 << 10,
            send_queue: 1 << 20,
            encoding: None,
            useless_burst: 10_000,
            useless_per_second: 1000,
        }
    }
}
