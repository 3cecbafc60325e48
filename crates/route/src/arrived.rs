//! A message that has arrived.

use nearcall_core::Payload;
use nearcall_core::server::Request;

use crate::message::Head;

/// A message that has arrived.
#[derive(Debug)]
pub struct Arrived {
    /// What it says beside its payload.
    pub head: Head,
    /// The payload of the call that brought it.
    pub call: Payload,
    /// Where in that its own payload begins.
    pub begin: usize,
    /// The call itself, which counts as under way while the message waits.
    pub(crate) request: Option<Box<Request>>,
}
