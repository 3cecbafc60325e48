//! Regions that are filled before their frames have the turn.

use super::regions::{AHEAD, Filled};
use super::sender::Sender;
use crate::link::outbox::{Frame, Outbox};

/// A frame under way for which a region was filled. Its region is taken back at the end if another was used.
pub(super) struct Ahead<'a>(&'a Outbox<Sender>);

impl<'a> Ahead<'a> {
    /// Fills a region for the payload, if that takes long: nobody waits for it then. Keep what is returned until the frame is
    /// sent.
    #[inline]
    pub(super) fn fill(outbox: &'a Outbox<Sender>, frame: &Frame<'_>) -> Option<Self> {
        if frame.payload_len < AHEAD { None } else { Self::fill_long(outbox, frame) }
    }

    #[cold]
    fn fill_long(outbox: &'a Outbox<Sender>, frame: &Frame<'_>) -> Option<Self> {
        let wanted = outbox.look(|sender| sender.begin_ahead(frame))?;
        let ahead = Self(outbox);
        // If there is no memory, the frame finds that out in its turn.
        let filled = Filled::new(wanted, frame.payload, frame.payload_len).ok();
        outbox.look(|sender| sender.filled_ahead(filled));
        Some(ahead)
    }
}

impl Drop for Ahead<'_> {
    fn drop(&mut self) {
        // Freed without the lock.
        drop(self.0.look(Sender::take_ahead));
    }
}
