//! For event loops: they do not wait, but look when they have run all that is ready, and sleep in a poller of their own.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nearcall_platform::descriptors;
use nearcall_transport::{Incoming, LinkError, Sent, Signal};

use crate::client::connection::{Connection, Inner, NoEvent};
use crate::client::table::CallId;

impl Connection {
    /// For an event loop: receives all that is here, and returns the loop's calls for which something came.
    pub fn pump(&self) -> Vec<CallId> {
        let Some(inner) = self.inner() else { return Vec::new() };
        inner.look();
        if inner.link.queued() > 0 {
            // The peer has given credit for more than there was room for. A loop sleeps without a look at that.
            inner.note_queued(Sent::Queued);
        }
        inner.table.lock().take_ready()
    }

    /// For an event loop: the link said that the peer hung up.
    pub fn notice_loss(&self) {
        if let Some(inner) = self.inner() {
            // Take in what the peer sent before it hung up.
            inner.look();
            inner.mark_lost(&LinkError::Closed);
        }
    }

    /// For an event loop: spins for a moment, as a thread would before it sleeps. Returns whether it pays to look
    /// again.
    #[must_use]
    pub fn spin(&self) -> bool {
        self.inner().is_some_and(|inner| inner.try_lead().is_some_and(|_lead| inner.link.spin()))
    }

    /// The event of a call that [`Connection::pump`] has already received, if there is one.
    ///
    /// # Errors
    /// [`NoEvent::Ended`] if the call is not under way, [`NoEvent::Inherited`].
    pub fn arrived(&self, id: CallId) -> Result<Option<Incoming>, NoEvent> {
        let mut table = self.inner().ok_or(NoEvent::Inherited)?.table.lock();
        match table.take(id) {
            None if table.get(id).is_none() => Err(NoEvent::Ended),
            event => Ok(event),
        }
    }

    /// Whether what a task waits for is here, or will never come: an event of the call; for a `sender` room for an item of the
    /// call's stream.
    #[must_use]
    pub fn is_ready(&self, id: CallId, sender: bool) -> bool {
        self.inner().is_none_or(|inner| inner.table.lock().is_ready(id, sender))
    }

    /// The descriptor that an event loop polls for reading: the link's, or an event's if a server receives.
    ///
    /// # Errors
    /// What the system says.
    pub fn poll_fd(&self) -> io::Result<BorrowedFd<'_>> {
        let Some(inner) = self.inner().filter(|inner| inner.received.get().is_some()) else {
            return self.even_in_child().signal_fd();
        };
        if inner.loop_event.get().is_none() {
            // If two threads make an event, the first one stays.
            let _ = inner.loop_event.set(descriptors::new_event()?);
        }
        // Something may have come before the event was made: wake the loop once.
        inner.tell_loop();
        Ok(inner.loop_event.get().expect("just set").as_fd())
    }

    /// For an event loop, when that descriptor is readable. `false` if the peer hung up.
    pub fn on_readable(&self) -> bool {
        let Some(inner) = self.inner() else { return false };
        if let Some(event) = inner.loop_event.get() {
            descriptors::clear(event);
        }
        // A server that receives notices by itself that the peer hung up.
        inner.received.get().is_some() || {
            inner.stay_awake();
            inner.signalled().is_ok()
        }
    }

    /// For an event loop: this side is awake, and need not be woken.
    pub fn stay_awake(&self) {
        // If a server receives, it keeps track of the threads that sleep.
        if let Some(inner) = self.inner().filter(|inner| inner.received.get().is_none()) {
            inner.stay_awake();
        }
    }

    /// For an event loop: this side is about to sleep. `false` if something may have come already.
    pub fn may_sleep(&self) -> bool {
        self.inner().is_none_or(|inner| match inner.received.get() {
            Some(_) => inner.table.lock().ready.is_empty(),
            None => inner.link.arm(),
        })
    }
}

impl Inner {
    /// The descriptor that becomes readable when the link has news. It is to be asked for before the link is armed.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn signal_fd(&self) -> io::Result<BorrowedFd<'_>> {
        match self.link.signal() {
            Signal::Descriptor(fd) => Ok(fd),
            Signal::Waker(slot) => self.own_event.fd(slot),
        }
    }

    /// That descriptor is readable.
    ///
    /// # Errors
    /// The peer hung up.
    pub(super) fn signalled(&self) -> Result<(), LinkError> {
        self.own_event.clear();
        self.memory.as_ref().map_or(Ok(()), |memory| memory.signalled().map(drop))
    }

    /// This side is awake: it needs no signal.
    pub(super) fn stay_awake(&self) {
        if let Some(memory) = &self.memory {
            memory.disarm();
        }
    }

    /// Wakes the event loop that makes calls here: something has come for them, or the connection is gone.
    pub(in crate::client) fn tell_loop(&self) {
        match (self.loop_event.get(), self.received.get(), self.this.upgrade()) {
            (Some(event), ..) => descriptors::signal(event),
            (None, Some(receiver), Some(this)) => receiver.tell_loop(&this),
            _ => {}
        }
    }
}
