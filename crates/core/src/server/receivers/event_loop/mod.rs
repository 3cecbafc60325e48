//! The event loop that runs coroutine handlers, as a receiver: it holds the lead while the requests are for coroutines.
//!
//! A worker that receives requests for the loop puts them into the loop's queue. After some of them in a row the worker
//! offers the lead to the loop. The loop then receives whenever it has run all that was ready, and spins while that
//! pays. It keeps the lead while it sleeps: it watches the poller's descriptor. If the loop receives a request for a
//! worker, it leaves the request and the lead to the workers.

use std::os::fd::{AsFd, BorrowedFd};

use nearcall_platform::fault::contained;

use crate::exports::HandlerKind;
use crate::server::Server;
use crate::server::handlers::work::Work;
use crate::server::inbound::request::Request;
use crate::server::reactor::Look;

/// What an event loop is to do next.
#[derive(Debug)]
pub enum ForLoop {
    /// Run this, and ask again.
    Request(Box<Request>),
    /// Ask again when [`Server::poll_fd`] is readable.
    Listen,
    /// A worker receives: ask again when [the queue](Server::use_event_loop) is readable.
    Elsewhere,
    /// Nothing is here, and spinning may pay: call [`Server::spin_for_loop`], with the interpreter's lock released.
    Spin,
}

impl Server {
    /// Hands a request to the event loop. Offers it the lead as well, if the last requests were all for the loop.
    pub(in crate::server) fn hand_to_loop(&self, request: Box<Request>) {
        let Some(queue) = self.directory.event_loop.get() else {
            return self
                .shared
                .notify(true, "a request for a coroutine handler, but no event loop, was dropped".into());
        };
        let first = queue.push(request);
        self.shared.loop_watch.note_call();
        if !first {
            // The loop was woken for an earlier request that it has not taken yet. It is not asked to do more.
            return;
        }
        if self.trend.note_for_loop() {
            // Before the loop is woken, or it might look for the offer too early.
            self.shared.leadership.offer();
        } else if let Some(mut reactor) = self.reactor.try_lock() {
            reactor.loop_active = true;
        }
        queue.wake();
    }

    /// The descriptor that the event loop watches while it holds the lead and sleeps.
    #[must_use]
    pub fn poll_fd(&self) -> BorrowedFd<'_> {
        self.shared.poller.as_fd()
    }

    /// What the event loop is to do next. Never waits. `may_spin`: nothing else is under way in the loop.
    pub fn next_for_loop(&self, may_spin: bool) -> ForLoop {
        self.for_loop(|| self.look_for_loop(may_spin))
    }

    /// Looks for the event loop, and tells the loop's watch of a request that the loop begins. If the look panics, leaves
    /// receiving to a worker: a loop that is not told how to go on would not come back.
    #[inline]
    fn for_loop(&self, look: impl FnOnce() -> ForLoop) -> ForLoop {
        let next = contained(look).unwrap_or_else(|fault| {
            self.tell(&fault);
            self.release();
            ForLoop::Elsewhere
        });
        if matches!(next, ForLoop::Request(_)) {
            self.shared.loop_watch.note_call();
        }
        next
    }

    fn look_for_loop(&self, may_spin: bool) -> ForLoop {
        let lead = &self.shared.leadership.lead;
        let receives = lead.back() || lead.take_offered();
        // After the lead was taken: the worker that offered it has queued its requests before.
        if let Some(request) = self.directory.event_loop.get().and_then(|queue| queue.pop()) {
            if receives {
                self.begin_handler();
            }
            return ForLoop::Request(request);
        }
        if !receives {
            return ForLoop::Elsewhere;
        }
        let mut reactor = self.reactor.lock();
        loop {
            let mut look = reactor.look();
            if matches!(look, Look::Nothing) && reactor.is_asleep() {
                reactor.wake_up();
                look = reactor.look();
            }
            match look {
                Look::Work(work) => {
                    drop(reactor);
                    return self.take_for_loop(work);
                }
                // This thread holds the interpreter. It takes in the rest while others may have it.
                Look::More => return ForLoop::Spin,
                Look::Nothing if may_spin => return ForLoop::Spin,
                Look::Nothing => {}
            }
            // Checked after each look at the poller, which may have taken the event of the stop, or of a handler that
            // has left its place to work that waits.
            if self.is_stopped() || self.shared.crew.may_begin() {
                // A worker runs that work.
                drop(reactor);
                self.release();
                return ForLoop::Elsewhere;
            }
            if reactor.fall_asleep() {
                break;
            }
        }
        drop(reactor);
        self.shared.leadership.listen();
        ForLoop::Listen
    }

    /// Spins for the event loop's next request, after [`ForLoop::Spin`].
    pub fn spin_for_loop(&self) -> ForLoop {
        self.for_loop(|| {
            let mut reactor = self.reactor.lock();
            let (again, request) = reactor.spin(None);
            drop(reactor);
            match request {
                Some(request) => self.take_for_loop(request),
                None => self.look_for_loop(again),
            }
        })
    }

    fn take_for_loop(&self, work: Work) -> ForLoop {
        let work = match work {
            Work::Call(request) if request.routing.handler == HandlerKind::EventLoop => {
                self.begin_handler();
                return ForLoop::Request(request);
            }
            other => other,
        };
        self.trend.note_request();
        self.reactor.lock().keep(work);
        self.release();
        ForLoop::Elsewhere
    }
}
