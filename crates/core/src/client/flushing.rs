//! Sending what has to wait for room: what a thread has left in the middle, and what an event loop sends.

use crate::sync::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_transport::Flushed;

use super::Connection;

/// How long the thread that flushes sleeps before it looks at the connection again.
const SLICE: Duration = Duration::from_millis(100);
/// How long a closing connection waits until all is sent.
const CLOSING: Duration = Duration::from_millis(500);

impl Connection {
    /// Something waits to be sent: whoever receives is to send it when there is room.
    #[cold]
    pub(super) fn note_queued(&self) {
        match self.received.get() {
            Some(receiver) => receiver.note_queued(),
            None => self.flush_aside(),
        }
    }

    /// Something waits to be sent, and nobody is about to see that there is room: a thread that lives as long as that takes
    /// sends it.
    #[cold]
    fn flush_aside(&self) {
        // AcqRel: the thread that ends looks at the queue once more after it has cleared the flag.
        if self.flushing.swap(true, Ordering::AcqRel) {
            return;
        }
        let (link, flushing) = (Arc::clone(&self.link), Arc::clone(&self.flushing));
        let flush = move || loop {
            match link.flush() {
                Ok(Flushed::All) => {
                    flushing.store(false, Ordering::Release);
                    // What a sender in the middle of a frame leaves, it tells of by itself.
                    if !matches!(link.flush(), Ok(Flushed::Part | Flushed::Full))
                        || flushing.swap(true, Ordering::AcqRel)
                    {
                        return;
                    }
                }
                Ok(Flushed::Part | Flushed::Full) => {
                    // A connection that is lost is found out by whoever receives.
                    if link.wait_room(false, SLICE).is_err() {
                        return;
                    }
                }
                // The rest of the connection learns of it as of any other loss.
                Err(_) => return link.close(),
            }
        };
        if std::thread::Builder::new().name("nearcall-flush".into()).spawn(flush).is_err() {
            // The next one that sends tries again.
            self.flushing.store(false, Ordering::Release);
        }
    }

    /// Whether all that waits was sent within a moment.
    pub(super) fn await_flush(&self) -> bool {
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
