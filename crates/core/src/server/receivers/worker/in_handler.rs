//! A worker in the middle of a handler: it receives for its server while the handler waits for frames of its call.

use std::time::{Duration, Instant};

use nearcall_platform::clock::is_past;
use nearcall_platform::lock::around_sleep;
use nearcall_transport::{LinkError, Outgoing};

use crate::client::Awaited;
use crate::server::Server;
use crate::server::call::{ItemOutcome, NextItem, ServerCall};

/// How long a handler that waits for frames of its call sleeps before it looks at the deadline and the server's state
/// again.
const SLICE: Duration = Duration::from_millis(50);

impl Server {
    /// Waits for the next item of the client's stream. The calling worker receives for the server meanwhile, if it can
    /// have the lead.
    pub fn next_item(&self, call: &ServerCall, until: Option<Instant>) -> NextItem {
        loop {
            match call.try_next_item() {
                NextItem::Pending if is_past(until) => return self.waited_last(NextItem::Late),
                NextItem::Pending if self.is_stopped() => return self.waited_last(NextItem::Cancelled),
                NextItem::Pending => {}
                next @ NextItem::Item(_) => return next,
                last => return self.waited_last(last),
            }
            self.wait_in_handler(call, until, ServerCall::has_next);
        }
    }

    /// No item comes after this. A thread that is no worker may not come back to the lead that it has taken to wait.
    fn waited_last(&self, last: NextItem) -> NextItem {
        if !self.is_worker() {
            self.release();
        }
        last
    }

    /// Sends an item, and waits for credit first. The calling worker receives for the server meanwhile, if it can have
    /// the lead.
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
            match call.try_send_item(item, until)? {
                ItemOutcome::NoCredit if self.is_stopped() => return Ok(ItemOutcome::Cancelled),
                ItemOutcome::NoCredit => {}
                outcome => return Ok(outcome),
            }
            self.wait_in_handler(call, until, ServerCall::may_send);
        }
    }

    /// A handler waits for frames of its call: its worker receives, unless another thread does. Returns when `ready`,
    /// at the deadline, or when the server has stopped.
    fn wait_in_handler(
        &self,
        call: &ServerCall,
        until: Option<Instant>,
        ready: impl Fn(&ServerCall) -> bool + Copy + Sync,
    ) {
        let mut over = || ready(call) || self.is_stopped() || is_past(until);
        let handler = call.handler_thread();
        if self.receive_in_handler(handler, &mut over, None) {
            return;
        }
        let mut wait = || {
            while !over() {
                let slice = until.map_or(SLICE, |until| until.saturating_duration_since(Instant::now()).min(SLICE));
                if !self.receive_in_handler(handler, &mut over, Some(slice)) {
                    call.wait_changed(ready, slice);
                }
            }
        };
        around_sleep(&mut wait);
    }

    /// Receives for a call, until `over`, if this thread holds the lead, or nobody does, or the thread `handler` that runs
    /// the call's handler; sleeps for `slice` at a time, or not at all without one. If a request comes meanwhile, leaves it
    /// and the lead to another worker. Whether the wait is over.
    fn receive_in_handler(&self, handler: u32, mut over: &mut dyn FnMut() -> bool, slice: Option<Duration>) -> bool {
        if !self.shared.leadership.lead_beside(handler) {
            return over();
        }
        self.receive_as_mine(&mut over, None, slice, || {})
    }

    /// Receives for a thread that holds the lead and waits for something of its own. `token` is that of the connection over
    /// which that is to come, if it is a reply. If there is work for others, calls `leave` and frees the lead: a caller that waits
    /// on must then sleep, as to take the lead again at once would keep it from the workers that wake up to take it. Whether the
    /// wait is over.
    pub(in crate::server) fn receive_as_mine(
        &self,
        mine: &mut dyn Awaited,
        token: Option<u64>,
        slice: Option<Duration>,
        leave: impl FnOnce(),
    ) -> bool {
        let crew = &self.shared.crew;
        let mut reactor = self.reactor.lock();
        loop {
            // `may_begin` has a fence, so whether work waits at all is asked first.
            let has_work = reactor.poll_into_backlog() || (crew.has_queued() && crew.may_begin());
            let mut over = self.is_stopped() || mine.is_over();
            if has_work {
                drop(reactor);
                leave();
                self.release();
                return over;
            }
            if let Some(slice) = slice.filter(|_| !over) {
                let (work, replied) = match token {
                    Some(token) => reactor.wait_for_reply(slice, token, mine),
                    None => (reactor.wait_for(Some(slice)), false),
                };
                over = replied;
                if let Some(work) = work {
                    reactor.keep(work);
                }
                if !over {
                    continue;
                }
            }
            drop(reactor);
            self.begin_handler();
            return over;
        }
    }
}
