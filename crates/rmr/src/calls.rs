//! Threads that wait for replies to their calls.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use nearcall_core::lock::{Condvar, Mutex};
use nearcall_route::rmr::frame::TRANSACTION;

use crate::buffer::Buffer;

/// All who wait, by the numbers of their calls.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    waiting: Mutex<HashMap<u8, Waiting>>,
    come: Condvar,
}

#[derive(Debug)]
struct Waiting {
    transaction: [u8; TRANSACTION],
    reply: Option<Box<Buffer>>,
}

impl Calls {
    /// Waits for the reply to a call from now on.
    pub(crate) fn begin(&self, number: u8, transaction: [u8; TRANSACTION]) {
        self.waiting.lock().insert(number, Waiting { transaction, reply: None });
    }

    /// Gives a reply to who waits for it. It is dropped if nobody does.
    pub(crate) fn give(&self, number: u8, reply: Box<Buffer>) {
        let transaction = reply.transaction();
        let mut waiting = self.waiting.lock();
        if let Some(found) = waiting.get_mut(&number).filter(|found| found.transaction == transaction) {
            found.reply = Some(reply);
            drop(waiting);
            self.come.notify_all();
        }
    }

    /// Waits for the reply, for at most so long.
    pub(crate) fn wait(&self, number: u8, patience: Option<Duration>) -> Option<Box<Buffer>> {
        let until = patience.and_then(|patience| Instant::now().checked_add(patience));
        let mut waiting = self.waiting.lock();
        loop {
            let found = waiting.get_mut(&number)?;
            if let Some(reply) = found.reply.take() {
                waiting.remove(&number);
                return Some(reply);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            match left {
                None => self.come.wait(&mut waiting),
                Some(Duration::ZERO) => {
                    waiting.remove(&number);
                    return None;
                }
                Some(left) => self.come.wait_for(&mut waiting, left),
            }
        }
    }

    /// Waits no more.
    pub(crate) fn end(&self, number: u8) {
        self.waiting.lock().remove(&number);
    }
}
