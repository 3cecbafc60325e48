//! Stands in for the descriptor of a link that has none.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};
use std::task::{Wake, Waker};

use nearcall_platform::descriptors::{self, EventDescriptor};
use nearcall_transport::WakerSlot;

/// An event that the link's waker signals. Made when it is first needed.
#[derive(Debug, Default)]
pub(super) struct OwnEvent(OnceLock<Arc<Event>>);

#[derive(Debug)]
struct Event(EventDescriptor);

impl Wake for Event {
    fn wake(self: Arc<Self>) {
        descriptors::signal(&self.0);
    }
}

impl OwnEvent {
    /// The event's descriptor. From now on it is readable when the link has news.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn fd(&self, slot: &WakerSlot) -> io::Result<BorrowedFd<'_>> {
        if let Some(event) = self.0.get() {
            return Ok(event.0.as_fd());
        }
        let made = Arc::new(Event(descriptors::new_event()?));
        // If two threads make an event, the first one stays.
        let event = self.0.get_or_init(|| made);
        slot.set(Some(Waker::from(Arc::clone(event))));
        Ok(event.0.as_fd())
    }

    /// The news is taken note of.
    pub(super) fn clear(&self) {
        if let Some(event) = self.0.get() {
            descriptors::clear(&event.0);
        }
    }
}
