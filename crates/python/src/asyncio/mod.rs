//! Waiting in event loops: the futures of replies, and the descriptors that loops watch.

pub(crate) mod handler_loop;
pub(crate) mod reply_future;
pub(crate) mod waiting;
