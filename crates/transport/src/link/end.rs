//! The end of a link, by this side.

use nearcall_platform::fork::Owner;

use crate::errors::LinkError;
use crate::sync::{AtomicBool, Ordering};

/// Whether this side has ended a link, and which process may.
#[derive(Debug)]
pub(crate) struct LinkEnd {
    closed: AtomicBool,
    owner: Owner,
}

impl LinkEnd {
    pub(crate) fn open() -> Self {
        Self { closed: AtomicBool::new(false), owner: Owner::this_process() }
    }

    /// Whether [`come`](Self::come) was called.
    pub(crate) fn has_come(&self) -> bool {
        // Acquire: pairs with the release in `come`.
        self.closed.load(Ordering::Acquire)
    }

    /// The error of a link that has ended.
    pub(crate) fn check(&self) -> Result<(), LinkError> {
        if self.has_come() { Err(LinkError::Closed) } else { Ok(()) }
    }

    /// The link ends. Whether it did not before; `None` in a forked child: the connection belongs to the parent process, which
    /// goes on using it.
    pub(crate) fn come(&self) -> Option<bool> {
        // Release: pairs with the acquire in `has_come`.
        self.owner.is_this_process().then(|| !self.closed.swap(true, Ordering::Release))
    }
}
