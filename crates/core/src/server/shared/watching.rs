//! What the receiving thread is told of: by the system's poller, or by a waker.

use std::sync::Arc;
use std::task::{Wake, Waker};

use nearcall_transport::Signal;
use rustix::event::epoll::{self, EventData, EventFlags};

use crate::server::shared::Shared;
use crate::server::shared::mailbox::{Mailbox, News};
use crate::server::shared::session::Hook;

/// Tells the receiving thread to look at what has this token.
struct Teller {
    mailbox: Arc<Mailbox<Hook>>,
    token: u64,
}

impl Wake for Teller {
    fn wake(self: Arc<Self>) {
        self.mailbox.tell(self.token, News::Look);
    }
}

impl Shared {
    /// From now on the receiving thread is told of this signal, by the token. `flags` are for a descriptor.
    pub(in crate::server) fn watch(&self, signal: Signal<'_>, token: u64, flags: EventFlags) -> rustix::io::Result<()> {
        match signal {
            Signal::Descriptor(fd) => epoll::add(&*self.poller, fd, EventData::new_u64(token), flags),
            Signal::Waker(slot) => {
                slot.set(Some(Waker::from(Arc::new(Teller { mailbox: Arc::clone(&self.mailbox), token }))));
                // What came before has woken nobody.
                self.mailbox.tell(token, News::Look);
                Ok(())
            }
        }
    }

    /// Watches a descriptor for something else.
    pub(in crate::server) fn rewatch(
        &self,
        signal: Signal<'_>,
        token: u64,
        flags: EventFlags,
    ) -> rustix::io::Result<()> {
        signal.fd().map_or(Ok(()), |fd| epoll::modify(&*self.poller, fd, EventData::new_u64(token), flags))
    }

    /// The receiving thread is told no more.
    pub(in crate::server) fn unwatch(&self, signal: Signal<'_>) {
        match signal {
            // It may be gone from the poller already.
            Signal::Descriptor(fd) => _ = epoll::delete(&*self.poller, fd),
            Signal::Waker(slot) => slot.set(None),
        }
    }
}
