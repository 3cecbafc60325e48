//! What an owner may choose about a session.

use crate::grpc::Encoding;

/// Limits of one connection. What a peer can make this side keep follows from them:
/// [`connection_window`](Options::connection_window) + [`max_header_list`](Options::max_header_list) + for each stream
/// [`stream_window`](Options::stream_window) or one message, whichever is longer.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The longest message this side takes, bytes, before and after decompression.
    pub max_message: usize,
    /// Streams that the peer may have open at a time; those it has reset count until [`forget`](crate::Session::forget).
    pub max_concurrent_streams: u32,
    /// Bytes that the peer may send on one stream before the application takes them, 65,535 to 2³¹ − 1.
    pub stream_window: u32,
    /// Bytes that the peer may send on all streams before they are received, 65,535 to 2³¹ − 1. They are given back on
    /// receipt, unless [`hold_credit`](crate::Session::hold_credit) says otherwise.
    pub connection_window: u32,
    /// Bytes of one header block, decompressed, and 32 for each field.
    pub max_header_list: usize,
    /// Bytes of one stream that wait for the peer's windows before its owner is told to send no more. A mark, no limit:
    /// messages are taken all the same.
    pub send_queue: usize,
    /// How messages are compressed that are to be. A server does it if the client reads that; without a choice it takes the
    /// best that the client reads.
    pub encoding: Option<Encoding>,
    /// Frames without use (pings, settings, cancelled requests ...) that a peer may send in a burst, and in each second.
    pub useless_burst: u32,
    /// In each second; those that come with as much use do not count.
    pub useless_per_second: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_message: 64 << 20,
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
