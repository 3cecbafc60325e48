//! A message that has arrived.

use nearcall_core::Payload;
use nearcall_core::server::Request;
use nearcall_transport::Delivery;

use crate::message::Head;

/// A message that has arrived.
#[derive(Debug)]
pub struct Arrived {
    /// What it says beside its payload.
    pub head: Head,
    /// The payload of the call that brought it.
    pub call: Payload,
    /// The call itself, which counts as under way while the message waits.
    pub(crate) request: Option<Box<Request>>,
    /// If the message was kept for this node: who waits for word of what has become of it.
    pub delivery: Option<Box<Delivery>>,
}

impl Arrived {
    /// The number that it and the reply to it share. May be empty.
    #[must_use]
    pub fn transaction(&self) -> &[u8] {
        self.head.transaction(&self.call)
    }

    /// Bytes of its payload.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        self.call.len() - self.head.begin()
    }
}
