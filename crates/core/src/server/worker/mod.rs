//! The threads that run handlers take turns at receiving.

mod queue;

use queue::STUCK;

pub(super) use queue::Queue;

use crate::sync::{Ordering, fence};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_platform::lock::around_sleep;

use crate::exports::HandlerKind;
use crate::server::Server;
use crate::server::call::Request;
use crate::server::call::ServerCall;
use crate::server::connection::ServerConnection;
use crate::server::connection::session::Work;
use crate::server::receives;

/// Workers beyond the receiving one that are kept for the next slow handler.
const KEPT_STANDBY: usize = 2;

/// A thread's share in a server. The thread calls [`Worker::try_next`] and [`Worker::wait`] in turn, and
/// [`Worker::finish`] after each handler.
#[derive(Debug)]
pub struct Worker {
    server: Arc<Server>,
    /// Whose worker the thread was before, if it is one in the middle of a handler.
    before: usize,
}

/// What a worker is to do next.
#[derive(Debug)]
pub enum Next {
    /// Handle this.
    Work(Work),
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
        let before = receives::work_for(Arc::as_ptr(&server).addr());
        Self { server, before }
    }

    /// Makes sure that somebody goes on receiving while handlers wait for replies to calls of their own: `spawn` starts one
    /// more worker thread. To be called before each work.
    #[inline]
    pub fn keep_receiving(&self, spawn: &dyn Fn()) {
        // Relaxed: this worker has the turn, or another one has and comes here.
        if self.server.waiting.load(Ordering::Relaxed) > 0 && self.server.lacks_standby() {
            spawn();
        }
    }

    /// The next work for this worker, if some is here. Never waits.
    pub fn try_next(&mut self) -> Option<Work> {
        let server = &*self.server;
        // Acquire: pairs with the release in `enqueue`.
        if server.queued.load(Ordering::Acquire) > 0
            && let Some(work) = server.dequeue()
        {
            return Some(work);
        }
        while server.leadership.is_mine() {
            let work = server.reactor.lock().poll(server)?;
            if let Some(work) = server.accept(work) {
                return Some(work);
            }
        }
        None
    }

    /// To be called when the handler of the last request has returned. `oneway_of` is the request's connection if the request
    /// was one-way: what is returned is then the connection's next one-way request, to be handled now.
    pub fn finish(&mut self, oneway_of: Option<&ServerConnection>) -> Option<Box<Request>> {
        self.server.leadership.back();
        let next = oneway_of?.next_oneway()?;
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
            if server.leadership.is_mine() && server.leaves_to_caller() {
                // It has just received a reply, and nothing else.
                server.leadership.offer();
            }
            if server.leadership.is_mine() || server.leadership.try_take() {
                if server.lacks_standby() {
                    spawn();
                }
                if server.may_dequeue() {
                    return Next::Look;
                }
                // While calls wait for a worker, the operator is to learn of it even if nothing more comes.
                let patience = server.lacks_workers().then_some(STUCK);
                // Relaxed: see `leaves_to_caller`. Others may have received before.
                server.woke_caller.store(false, Ordering::Relaxed);
                let work = server.reactor.lock().wait_for(server, patience);
                server.tell_stuck();
                if work.is_none() && server.leaves_to_caller() {
                    server.leadership.offer();
                }
                return work.and_then(|work| server.accept(work)).map_or(Next::Look, Next::Work);
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
            server.leadership.stand_by(|| server.is_stopped());
            server.standby.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.server.release();
        self.server.workers.fetch_sub(1, Ordering::AcqRel);
        receives::work_for(self.before);
    }
}

impl Server {
    /// The receiving worker is to handle a request at once, unless as many handlers run as may: then it is queued. One
    /// for the event loop is handed over here, and one for a native handler answered.
    pub(in crate::server) fn accept(&self, mut work: Work) -> Option<Work> {
        if let Work::Call(mut request) = work {
            match request.routing.handler {
                HandlerKind::Thread => {}
                HandlerKind::EventLoop => {
                    // While this worker still receives: the loop gets them in the order in which they came.
                    self.hand_to_loop(request);
                    return None;
                }
                HandlerKind::Native(handler) => {
                    self.handle_natively(handler, request);
                    return None;
                }
            }
            // Relaxed: a hint where the work is.
            self.loop_run.store(0, Ordering::Relaxed);
            if request.is_oneway() {
                request = ServerConnection::begin_oneway(request)?;
            }
            work = Work::Call(request);
        }
        // Relaxed: see `leaves_to_caller`.
        if !self.served.load(Ordering::Relaxed) {
            self.served.store(true, Ordering::Relaxed);
        }
        if self.others_busy() >= self.limits.max_concurrency || !self.take_place(&mut work) {
            let mut queue = self.queue.lock();
            if self.is_stopped() {
                // `close` empties the queue after that, and no worker comes any more.
                work.give_up();
                return None;
            }
            queue.push(work);
            self.note_queued_work(&queue);
            drop(queue);
            self.tell_stuck();
            return None;
        }
        self.begin_handler();
        Some(work)
    }

    /// Workers that run handlers, not counting the one that receives.
    fn others_busy(&self) -> usize {
        // Relaxed: a moment's excess or lack of one is corrected at the next request.
        let idle = self.standby.load(Ordering::Relaxed) + self.waiting.load(Ordering::Relaxed);
        self.workers.load(Ordering::Relaxed).saturating_sub(idle + 1)
    }

    /// Whether nobody stands by to receive in the place of this worker, and there may be one more.
    fn lacks_standby(&self) -> bool {
        // Relaxed: as above. While handlers wait, there is always one more: those that have waited are busy again before the
        // others can know.
        let waiting = self.waiting.load(Ordering::Relaxed) > 0;
        let most = self.limits.max_concurrency + if waiting { receives::MOST_WAITING } else { 0 };
        self.standby.load(Ordering::Acquire) == 0 && self.workers() <= most
    }

    /// Whether the thread that has just got the reply it waited for is to receive from now on: it will get the next one by
    /// itself, without being woken. Not where requests come as well, which it would have to leave to a worker.
    fn leaves_to_caller(&self) -> bool {
        // Relaxed, all: changed by whoever receives, one at a time.
        self.woke_caller.load(Ordering::Relaxed) && !self.served.swap(false, Ordering::Relaxed)
    }

    /// Whether calls wait for a worker, and there are as many as may be.
    fn lacks_workers(&self) -> bool {
        // Relaxed: asked again a moment later.
        self.queued.load(Ordering::Relaxed) > 0 && !self.may_dequeue()
    }

    /// How many handlers of streams may run in threads. They run for as long as their clients like: whoever opens many of
    /// them leaves threads for the calls of others.
    fn most_streams(&self) -> usize {
        self.limits.max_concurrency - self.limits.max_concurrency / 4
    }

    fn may_stream(&self) -> bool {
        // Relaxed: taken with `take_place`.
        self.streams.load(Ordering::Relaxed) < self.most_streams()
    }

    /// Takes the place that a handler of a stream needs, if there is one. Other work needs none.
    fn take_place(&self, work: &mut Work) -> bool {
        let Work::Call(request) = work else { return true };
        if !request.routing.streams {
            return true;
        }
        let next = |streams| (streams < self.most_streams()).then_some(streams + 1);
        // Relaxed: only the number counts.
        let taken = self.streams.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok();
        if taken {
            request.place = Some(Arc::clone(&self.streams));
        }
        taken
    }

    fn note_queued_work(&self, queue: &Queue) {
        // Relaxed: looked at after the other one.
        self.queued_streams.store(queue.streams(), Ordering::Relaxed);
        // Release: whoever sees the count finds the request.
        self.queued.store(queue.len(), Ordering::Release);
    }

    /// Tells the operator if calls wait for a worker, and no handler has returned for a while.
    fn tell_stuck(&self) {
        // Relaxed: asked again whenever the one that receives wakes up.
        if self.queued.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Some(waiting) = self.queue.lock().stuck() else { return };
        let most = self.limits.max_concurrency;
        let busy = if self.others_busy() >= most {
            format!("{most} handlers run in threads, which is the limit,")
        } else {
            let streams = self.most_streams();
            format!(
                "{streams} handlers of streams run in threads, three quarters of max_concurrency, which is their limit,"
            )
        };
        let seconds = STUCK.as_secs();
        let text = format!(
            "{waiting} calls wait, because {busy} and none has returned for {seconds} s: raise max_concurrency, or write \
             handlers that wait, streams above all, with 'async def'"
        );
        self.notify(true, text);
    }

    /// The same, for who receives in the middle of a handler. Cheap.
    fn has_work_queued(&self) -> bool {
        // Relaxed: looked at closely if there is any.
        self.queued.load(Ordering::Relaxed) > 0 && self.may_dequeue()
    }

    /// Whether a request is queued that a worker should run now.
    fn may_dequeue(&self) -> bool {
        // SeqCst: a worker that queues a request looks at the counts after it, one that goes to sleep at the queue after
        // it was counted: one of them sees the other.
        fence(Ordering::SeqCst);
        let queued = self.queued.load(Ordering::Relaxed);
        queued > 0
            && self.others_busy() < self.limits.max_concurrency
            && (queued > self.queued_streams.load(Ordering::Relaxed) || self.may_stream())
    }

    /// A queued request, if this worker may run it.
    #[cold]
    fn dequeue(&self) -> Option<Work> {
        let receives = self.leadership.is_mine();
        if receives && self.others_busy() >= self.limits.max_concurrency {
            return None;
        }
        let mut queue = self.queue.lock();
        let mut work = None;
        while let Some(next) = queue.pop(self.may_stream()) {
            work = match next {
                // Nobody waits for it any more.
                Work::Call(request) if request.is_given_up() => {
                    request.forget(self);
                    None
                }
                // A one-way request goes on: it is its client's turn, and nothing is sent for it.
                Work::Call(request) if !request.connection.has_room() && !request.is_oneway() => {
                    let connection = Arc::clone(&request.connection);
                    connection.defer(request).map(Work::Call)
                }
                next => Some(next),
            };
            if work.is_some() {
                break;
            }
        }
        if let Some(mut waited) = work.take() {
            if self.take_place(&mut waited) {
                work = Some(waited);
            } else {
                // One that has just come was quicker.
                queue.push_first(waited);
            }
        }
        self.note_queued_work(&queue);
        drop(queue);
        if work.is_some() {
            self.begin_handler();
        }
        work
    }

    pub(in crate::server) fn begin_handler(&self) {
        self.leadership.busy();
    }

    /// Lets another worker receive: the caller is going to wait for something else.
    pub(in crate::server) fn release(&self) {
        self.leadership.release();
    }

    /// A handler waits for frames of its call: it receives by itself, unless another worker does. Returns when `ready`, at
    /// the deadline, or when the server stops.
    pub(in crate::server) fn wait_in_handler(
        &self,
        call: &Arc<ServerCall>,
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
        if !self.leadership.back() && !self.leadership.try_take() {
            return over();
        }
        self.receive_as_mine(over, slice)
    }

    /// The same for who has the lead.
    pub(in crate::server) fn receive_as_mine(&self, over: &mut dyn FnMut() -> bool, slice: Option<Duration>) -> bool {
        let mut reactor = self.reactor.lock();
        loop {
            let more = reactor.poll_into_backlog(self) || self.has_work_queued();
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
            if let Some(work) = reactor.wait_for(self, Some(slice)) {
                reactor.keep(work);
            }
        }
    }
}

/// How long a handler that waits for its call sleeps before it looks at the deadline and the server's state again.
const SLICE: Duration = Duration::from_millis(50);
