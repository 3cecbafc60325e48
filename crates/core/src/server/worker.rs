//! The threads that run handlers take turns at receiving.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use nearcall_transport::lock::MutexGuard;

use super::baton::Baton;
use super::call::ServerCall;
use super::connection::ServerConnection;
use super::request::Request;
use super::{Server, bells};

/// How long a handler may run before another worker receives in its stead.
const PATIENCE: Duration = Duration::from_millis(1);
/// Looks without any change after which the watcher goes to sleep.
const QUIET: u32 = 20;
/// Workers beyond the receiving one that are kept for the next slow handler.
const KEPT_STANDBY: usize = 2;

/// A thread's share in a server. The thread calls [`Worker::try_next`] and [`Worker::wait`] in turn, and
/// [`Worker::finish`] after each handler.
#[derive(Debug)]
pub struct Worker {
    server: Arc<Server>,
}

/// What a worker is to do next.
#[derive(Debug)]
pub enum Next {
    /// Handle this.
    Request(Request),
    /// Ask [`Worker::try_next`].
    Look,
    /// End: the server has stopped, or has workers enough.
    End,
}

impl Worker {
    /// Counts the calling thread in.
    #[must_use]
    pub fn new(server: Arc<Server>) -> Self {
        server.workers.fetch_add(1, Ordering::AcqRel);
        Self { server }
    }

    /// The next request for this worker, if one is here. Never waits.
    pub fn try_next(&mut self) -> Option<Request> {
        let server = &*self.server;
        // Acquire: pairs with the release in `enqueue`.
        if server.queued.load(Ordering::Acquire) > 0
            && let Some(request) = server.dequeue()
        {
            return Some(request);
        }
        while server.baton.is_held() {
            let request = server.reception.lock().poll(server)?;
            if let Some(request) = server.accept(request) {
                return Some(request);
            }
        }
        None
    }

    /// To be called when the handler of the last request has returned. `lane` is the request's connection if the request
    /// was one-way: what is returned is then the connection's next one-way request, to be handled now.
    pub fn finish(&mut self, lane: Option<&ServerConnection>) -> Option<Request> {
        self.server.baton.back();
        let next = lane?.next_oneway()?;
        self.server.begin_handler();
        Some(next)
    }

    /// Waits until there may be a request for this worker. `spawn` starts one more worker thread.
    pub fn wait(&mut self, spawn: &dyn Fn()) -> Next {
        let server = &*self.server;
        loop {
            if server.is_stopped() {
                server.release();
                return Next::End;
            }
            if server.baton.is_held() || server.baton.try_take() {
                if server.standby.load(Ordering::Acquire) == 0 && server.workers() <= server.limits.max_concurrency {
                    spawn();
                }
                if server.may_dequeue() {
                    return Next::Look;
                }
                let request = server.reception.lock().wait(server);
                return request.and_then(|request| server.accept(request)).map_or(Next::Look, Next::Request);
            }
            if server.standby.load(Ordering::Acquire) >= KEPT_STANDBY {
                return Next::End;
            }
            server.standby.fetch_add(1, Ordering::AcqRel);
            if server.may_dequeue() {
                // It was queued because this very worker was busy a moment ago.
                server.standby.fetch_sub(1, Ordering::AcqRel);
                return Next::Look;
            }
            server.stand_by();
            server.standby.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.server.release();
        self.server.workers.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What the standby workers share.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// One of them watches the receiving worker.
    watched: bool,
    /// It does so in the system's poller.
    polls: bool,
}

impl Server {
    /// The receiving worker is to handle a request at once, unless as many handlers run as may: then it is queued. One
    /// for the event loop is handed over here.
    fn accept(&self, request: Request) -> Option<Request> {
        let request = ServerConnection::park(request)?;
        if self.methods[usize::from(request.head.method)].in_loop {
            // While this worker still receives: the loop gets them in the order in which they came.
            self.hand_to_loop(request);
            return None;
        }
        // Relaxed: a hint where the work is.
        self.loop_run.store(0, Ordering::Relaxed);
        let mut request = request;
        if request.is_oneway() {
            request = ServerConnection::begin_oneway(request)?;
        }
        // Somebody who looks at a server that is stuck must see that.
        if self.others_busy() >= self.limits.max_concurrency && !self.is_introspective(request.head.method) {
            let mut queue = self.queue.lock();
            queue.push_back(request);
            // Release: whoever sees the count finds the request.
            self.queued.store(queue.len(), Ordering::Release);
            return None;
        }
        self.begin_handler();
        Some(request)
    }

    /// Workers that run handlers, not counting the one that receives.
    fn others_busy(&self) -> usize {
        // Relaxed: a moment's excess or lack of one is corrected at the next request.
        let standby = self.standby.load(Ordering::Relaxed);
        self.workers.load(Ordering::Relaxed).saturating_sub(standby + 1)
    }

    /// Whether a request is queued that a worker should run now.
    fn may_dequeue(&self) -> bool {
        // SeqCst: a worker that queues a request looks at the counts after it, one that goes to sleep at the queue after
        // it was counted: one of them sees the other.
        fence(Ordering::SeqCst);
        self.queued.load(Ordering::Relaxed) > 0 && self.others_busy() < self.limits.max_concurrency
    }

    /// A queued request, if this worker may run it.
    #[cold]
    fn dequeue(&self) -> Option<Request> {
        let receives = self.baton.is_held();
        if receives && self.others_busy() >= self.limits.max_concurrency {
            return None;
        }
        let mut queue = self.queue.lock();
        let mut request = queue.pop_front();
        // A one-way request goes on: it is its client's turn, and nothing is sent for it.
        while let Some(other) = request.take_if(|request| !request.connection.has_room() && !request.is_oneway()) {
            request = ServerConnection::park(other).or_else(|| queue.pop_front());
        }
        self.queued.store(queue.len(), Ordering::Release);
        drop(queue);
        if request.is_some() {
            self.begin_handler();
        }
        request
    }

    pub(super) fn begin_handler(&self) {
        self.baton.busy();
        self.let_watch();
    }

    /// To be called when the baton's word has become one that must be watched.
    pub(super) fn let_watch(&self) {
        // SeqCst: after the baton's word; see `Baton::busy`.
        if self.watcher_sleeps.load(Ordering::SeqCst) {
            self.wake_watcher();
        }
    }

    #[cold]
    fn wake_watcher(&self) {
        let watch = self.vacancy.0.lock();
        self.watcher_sleeps.store(false, Ordering::SeqCst);
        self.wake_standby(&watch);
    }

    /// Lets another worker receive: the caller is going to wait for something else.
    pub(super) fn release(&self) {
        if self.baton.give_up() {
            self.announce_vacancy();
        }
    }

    pub(super) fn announce_vacancy(&self) {
        let watch = self.vacancy.0.lock();
        self.wake_standby(&watch);
    }

    fn wake_standby(&self, watch: &Watch) {
        self.vacancy.1.notify_all();
        if watch.polls {
            bells::ring(&self.watcher_bell);
        }
    }

    /// Sleeps until the baton is free (or everything is over). One of the sleepers watches the holder meanwhile.
    fn stand_by(&self) {
        let mut watch = self.vacancy.0.lock();
        let mut watching = false;
        let (mut seen, mut quiet) = (self.baton.look(), 0);
        while !self.is_stopped() && !self.baton.is_vacant() {
            if !watching && !watch.watched {
                watch.watched = true;
                watching = true;
            }
            if watching && Baton::is_listening(self.baton.look()) {
                if self.watch_loop(&mut watch) {
                    break;
                }
                (seen, quiet) = (self.baton.look(), 0);
                continue;
            }
            if !watching || self.watcher_sleeps.load(Ordering::SeqCst) {
                self.vacancy.1.wait(&mut watch);
                quiet = 0;
                seen = self.baton.look();
                continue;
            }
            self.vacancy.1.wait_for(&mut watch, PATIENCE);
            let now = self.baton.look();
            if now != seen {
                (seen, quiet) = (now, 0);
            } else if self.baton.steal(now) {
                break;
            } else {
                quiet += 1;
                if quiet >= QUIET {
                    // SeqCst, and one more look: see `Baton::busy`.
                    self.watcher_sleeps.store(true, Ordering::SeqCst);
                    if self.baton.look() != seen {
                        self.watcher_sleeps.store(false, Ordering::SeqCst);
                    }
                }
            }
        }
        if watching {
            watch.watched = false;
            self.watcher_sleeps.store(false, Ordering::SeqCst);
            self.vacancy.1.notify_all();
        }
    }

    /// The event loop is to receive when something comes, and may sleep for long: sleeps beside it in the same poller. If
    /// something is there, and the loop has not come for it a moment later, takes the baton from it: whether it did.
    fn watch_loop(&self, watch: &mut MutexGuard<'_, Watch>) -> bool {
        // SeqCst, and one more look: see `Baton::busy`.
        self.watcher_sleeps.store(true, Ordering::SeqCst);
        let seen = self.baton.look();
        watch.polls = true;
        if Baton::is_listening(seen) {
            MutexGuard::unlocked(watch, || bells::wait_for_either(&self.poller, &self.watcher_bell));
        }
        watch.polls = false;
        self.watcher_sleeps.store(false, Ordering::SeqCst);
        if self.baton.look() != seen || self.is_stopped() {
            return false;
        }
        self.vacancy.1.wait_for(watch, PATIENCE);
        // A loop that has come and gone again meanwhile has changed the word.
        self.baton.look() == seen && bells::is_readable(&self.poller) && self.baton.steal(seen)
    }

    /// A handler waits for frames of its call: it receives by itself, unless another worker does. Returns when `ready`, at
    /// the deadline, or when the server stops.
    pub(super) fn wait_in_handler(
        &self,
        call: &Arc<ServerCall>,
        until: Option<Instant>,
        ready: impl Fn(&ServerCall) -> bool + Copy + Sync,
    ) {
        let over = || ready(call) || self.is_stopped() || until.is_some_and(|until| Instant::now() >= until);
        if self.receive_in_handler(over, None) {
            return;
        }
        let mut wait = || {
            while !over() {
                let slice = until.map_or(SLICE, |until| until.saturating_duration_since(Instant::now()).min(SLICE));
                if !self.receive_in_handler(over, Some(slice)) {
                    call.wait_changed(ready, slice);
                }
            }
        };
        (self.around_wait)(&mut wait);
    }

    /// Receives in the middle of a handler, if the baton is ours or free, until `over`, sleeping for `slice` at a time. A
    /// request that comes meanwhile is left to another worker, and the baton with it. Whether it is over.
    fn receive_in_handler(&self, over: impl Fn() -> bool, slice: Option<Duration>) -> bool {
        if !self.baton.back() && !self.baton.try_take() {
            return over();
        }
        let mut reception = self.reception.lock();
        loop {
            let more = reception.poll_into_backlog(self);
            let over = over();
            if more {
                drop(reception);
                self.release();
                return over;
            }
            let Some(slice) = slice.filter(|_| !over) else {
                drop(reception);
                self.begin_handler();
                return over;
            };
            if let Some(request) = reception.wait_for(self, Some(slice)) {
                reception.keep(request);
            }
        }
    }
}

/// How long a handler that waits for its call sleeps before it looks at the deadline and the server's state again.
const SLICE: Duration = Duration::from_millis(50);
