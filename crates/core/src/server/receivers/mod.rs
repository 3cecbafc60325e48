//! The threads that receive: workers, event loops, and callers that wait for a reply of their own.

pub(in crate::server) mod event_loop;
pub(in crate::server) mod receives;
pub(in crate::server) mod worker;
