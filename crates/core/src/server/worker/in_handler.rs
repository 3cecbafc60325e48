//! A worker in the middle of a handler: it receives for its server while the handler waits for frames of its call.

use std::time::{Duration, Instant};

use nearcall_platform::lock::around_sleep;
use nearcall_transport::{LinkError, Outgoing};

use crate::server::Server;
use crate::server::call::{ItemOutcome, NextItem, ServerCall};

/// How long a handler that waits for its call sleeps before it looks at the deadline and the server's state again.
const SLICE: Duration = Duration::from_millis(50);

impl Server {
    /// The next item of the client's stream; the calling worker receives by itself meanwhile, if it may.
    pub fn next_item(&self, call: &ServerCall, until: Option<Instant>) -> NextItem {
        loop {
            match call.try_next_item() {
                NextItem::Pending if until.is_some_and(|until| Instant::now() >= until) => return NextItem::Late,
                NextItem::Pending if self.is_stopped() => return NextItem::Cancelled,
                NextItem::Pending => {}
                next => return next,
            }
            self.wait_in_handler(call, until, ServerCall::has_next);
        }
    }

    /// Sends an item, waiting for credit; the calling worker receives by itself meanwhile, if it may.
    ///
    /// # Errors
    /// As [`Request::reply`](crate::server::Request::reply).
    pub fn send_item(
        &self,
        call: &ServerCall,
        item: &Outgoing<'_>,
        until: Option<Instant>,
    ) -> Result<ItemOutcome, LinkError> {
        loop {
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(ItemOutcome::Late);
            }
            match call.try_send_item(item)? {
                ItemOutcome::NoCredit if self.is_stopped() => return Ok(ItemOutcome::Cancelled),
                ItemOutcome::NoCredit => {}
                outcome => return Ok(outcome),
            }
            self.wait_in_handler(call, until, ServerCall::may_send);
        }
    }

    /// A handler waits for frames of its call: it receives by itself, unless another worker does. Returns when `ready`, at
    /// the deadline, or when the server stops.
    fn wait_in_handler(
        &self,
        call: &ServerCall,
        until: Option<Instant>,
        ready: impl Fn(&ServerCall) -> bool + Copy + Sync,
    ) {
        let mut over = || ready(call) || self.is_stopped() || until.is_some_and(|until| Instant::now() >= until);
        if self.receive_in_handler(&mut over, None) {
            return;
        }
        let mut wait = || {
            while !over() {
                let slice = until.map_or(SLICE, |until| until.saturating_duration_since(Instant::now()).min(SLICE));
                if !self.receive_in_handler(&mut over, Some(slice)) {
                    call.wait_changed(ready, slice);
                }
            }
        };
        around_sleep(&mut wait);
    }

    /// Receives in the middle of a handler, if the lead is ours or free, until `over`, sleeping for `slice` at a time. A
    /// request that comes meanwhile is left to another worker, and the lead with it. Whether it is over.
    fn receive_in_handler(&self, over: &mut dyn FnMut() -> bool, slice: Option<Duration>) -> bool {
        if !self.shared.leadership.back() && !self.shared.leadership.try_take() {
            return over();
        }
        self.receive_as_mine(over, slice)
    }

    /// The same for who has the lead.
    pub(in crate::server) fn receive_as_mine(&self, over: &mut dyn FnMut() -> bool, slice: Option<Duration>) -> bool {
        let mut reactor = self.reactor.lock();
        loop {
            let more = reactor.poll_into_backlog() || self.has_work_queued();
            let over = over();
            if more {
                drop(reactor);
                self.release();
                return over;
            }
            let Some(slice) = slice.filter(|_| !over) else {
                drop(reactor);
                self.begin_handler();
                return over;
            };
            if let Some(work) = reactor.wait_for(Some(slice)) {
                reactor.keep(work);
            }
        }
    }
}
