//! What either end of a connection of HTTP/1.1 is given in these targets, and how much it may keep for that.
use nearcall_http::Options;

pub(crate) const OPTIONS: Options = Options {
    max_message: 3000,
    limit: nearcall_http::LimitName::PLAIN,
    max_concurrent_streams: 1,
    stream_window: 65_535,
    connection_window: 65_535,
    max_header_list: 2000,
    send_queue: 1000,
    encoding: None,
    useless_burst: 20,
    useless_per_second: 0,
};

/// A message and its compressed form, the input's buffer, the head of a request or a response.
pub(crate) const MOST_HELD: usize = 256 << 10;
