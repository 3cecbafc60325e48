//! Sends frames that wait for room: those that a thread has left half sent, and those of an event loop.

use crate::sync::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_transport::{Flushed, Sent};

use crate::client::connection::Inner;

/// How long the thread that flushes sleeps before it looks at the connection again.
const SLICE: Duration = Duration::from_millis(100);
/// How long a closing connection waits until all is sent.
const CLOSING: Duration = Duration::from_millis(500);

impl Inner {
    /// A frame waits to be sent. The server that receives sends it when there is room; without one, a thread is
    /// started.
    #[cold]
    pub(in crate::client) fn note_queued(&self, sent: Sent) {
        match self.received.get() {
            Some(receiver) => receiver.note_queued(sent),
            None => self.flush_aside(),
        }
    }

    /// What waited may be out: tells a server that receives, whose own frames and calls may wait for that.
    #[cold]
    pub(in crate::client) fn note_room_made(&self) {
        if let Some(receiver) = self.received.get() {
            receiver.note_queued(Sent::LookAgain);
        }
    }

    /// Starts a thread that sends the queued frames and ends after the last: no other thread is about to see that there
    /// is room.
    #[cold]
    fn flush_aside(&self) {
        // AcqRel: the thread that ends looks at the queue once more after it has cleared the flag.
        if self.flushing.swap(true, Ordering::AcqRel) {
            return;
        }
        let (link, flushing, this) = (Arc::clone(&self.link), Arc::clone(&self.flushing), self.this.clone());
        let flush = move || loop {
            match link.flush() {
                Ok(Flushed::All) => {
                    // Release: before the AcqRel of the thread that starts the next one.
                    flushing.store(false, Ordering::Release);
                    // A sender that leaves the rest of a frame calls `note_queued` by itself.
                    if !matches!(link.flush(), Ok(Flushed::Part | Flushed::Full))
                        || flushing.swap(true, Ordering::AcqRel)
                    {
                        // A server may have begun to receive meanwhile, and wait for the room that was made here.
                        let connection = this.upgrade();
                        if let Some(inner) = connection.as_ref().and_then(|one| one.inner()) {
                            inner.note_room_made();
                        }
                        return;
                    }
                }
                Ok(Flushed::Part | Flushed::Full) => {
                    // The receiving thread notices a lost connection.
                    if link.wait_room(false, SLICE).is_err() {
                        return;
                    }
                }
                // The connection's calls learn of this as of any other loss.
                Err(_) => return link.close(),
            }
        };
        if std::thread::Builder::new().name("nearcall-flush".into()).spawn(flush).is_err() {
            // The next sender tries again. Release: as above.
            self.flushing.store(false, Ordering::Release);
        }
    }

    /// Waits up to `CLOSING` until everything queued was sent. Returns whether it was.
    pub(in crate::client) fn await_flush(&self) -> bool {
        const SLICE: Duration = Duration::from_millis(5);
        let end = Instant::now() + CLOSING;
        while self.link.queued() > 0 {
            if self.is_dead() || Instant::now() >= end || self.link.flush().is_err() {
                return false;
            }
            if self.link.wait_room(false, SLICE).is_err() {
                return false;
            }
        }
        true
    }
}
