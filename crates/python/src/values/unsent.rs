//! Objects that a message gives to the other side, until the message is sent.

use std::num::NonZeroU64;
use std::sync::Arc;

use nearcall_core::client::Connection as Core;

/// Objects given with a message that is not sent yet. Dropping this takes them back.
pub(crate) struct Unsent {
    core: Arc<Core>,
    given: Vec<NonZeroU64>,
}

impl Drop for Unsent {
    fn drop(&mut self) {
        self.core.take_back(&self.given);
    }
}

impl Unsent {
    /// `None` if nothing was given.
    pub(crate) fn of(core: &Arc<Core>, given: Vec<NonZeroU64>) -> Option<Box<Self>> {
        (!given.is_empty()).then(|| Box::new(Self { core: Arc::clone(core), given }))
    }

    /// The numbers of the objects.
    pub(crate) fn given(&self) -> &[NonZeroU64] {
        &self.given
    }

    /// To be called when the message was sent: the other side has the objects.
    pub(crate) fn sent(mut self) {
        self.given.clear();
    }
}
