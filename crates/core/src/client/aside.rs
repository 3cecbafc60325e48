//! Sending for an event loop, which must not wait for room.
//!
//! What there is no room for is sent by a thread that lives as long as that takes; what comes after it queues up behind it.
//! That is bounded by what the loop's tasks have under way: each waits for its reply, and a stream's items for credit.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use nearcall_transport::lock::Mutex;
use nearcall_transport::{Link, LinkError};
use nearcall_wire::Failure;

use super::Connection;
use crate::outgoing::{Outgoing, finish_aside};

const SLICE: Duration = Duration::from_millis(100);

/// Frames that wait for room.
#[derive(Debug, Default)]
pub(super) struct Aside(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// A thread sends them.
    running: bool,
    frames: VecDeque<(Vec<u8>, Vec<u8>)>,
}

impl Connection {
    pub(super) fn send_without_waiting(&self, call: u32, frame: &Outgoing<'_>) -> Result<(), Failure> {
        let mut waiting = self.aside.0.lock();
        if !waiting.running {
            match frame.try_send(call, &*self.link) {
                Ok(()) => {
                    drop(waiting);
                    if self.link.has_rest() {
                        finish_aside(&self.link);
                    }
                    return Ok(());
                }
                Err(LinkError::Full) => {}
                Err(error) => {
                    drop(waiting);
                    return Err(self.cannot_send(&error, None));
                }
            }
        }
        waiting.frames.push_back(frame.to_bytes(call));
        if waiting.running {
            return Ok(());
        }
        let (link, aside) = (Arc::clone(&self.link), Arc::clone(&self.aside));
        let spawned = std::thread::Builder::new().name("nearcall-send".into()).spawn(move || send_all(&*link, &aside));
        match spawned {
            Ok(_) => {
                waiting.running = true;
                Ok(())
            }
            Err(error) => {
                waiting.frames.clear();
                drop(waiting);
                Err(self.cannot_send(&LinkError::Broken(format!("cannot start a thread that sends: {error}")), None))
            }
        }
    }
}

fn send_all(link: &dyn Link, aside: &Aside) {
    loop {
        let next = {
            let mut waiting = aside.0.lock();
            let next = waiting.frames.pop_front();
            waiting.running = next.is_some();
            next
        };
        let Some((head, payload)) = next else { return };
        match link.send(&head, &[&payload], &mut || link.wait_room(false, SLICE)) {
            // The message limit is looked at again with every frame; this one was no longer than the peer takes.
            Ok(()) | Err(LinkError::TooLong { .. } | LinkError::HeadTooLong { .. }) => {}
            // The loop learns of it as of any other loss.
            Err(_) => link.close(),
        }
    }
}
