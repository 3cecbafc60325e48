//! The threads that run handlers take turns at receiving.

mod in_handler;
mod queue;

use queue::STUCK;

pub(super) use in_handler::Mine;
pub(super) use queue::Queue;

use crate::sync::{Ordering, fence};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use nearcall_platform::lock::around_sleep;

use crate::exports::HandlerKind;
use crate::server::Server;
use crate::server::request::{OnewayTurn, Request};
use crate::server::work::Work;

/// Workers beyond the receiving one that are kept for the next slow handler.
const KEPT_STANDBY: usize = 2;

/// Workers of a server that may wait in a handler for replies, at once. Each is a thread, and another one takes its place.
/// Of these, no more may wait for one peer than are left for the others: who never answers does not stop calls of others.
pub(super) const MOST_WAITING: usize = 512;

thread_local! {
    /// The server whose worker this thread is, by its address; 0 if it is none's.
    static WORKS_FOR: Cell<usize> = const { Cell::new(0) };
}

/// A thread's share in a server. The thread calls [`Worker::try_next`] and [`Worker::wait`] in turn, and
/// [`Worker::finish`] after each handler.
#[derive(Debug)]
pub struct Worker {
    server: Arc<Server>,
    /// Whose worker the thread was before, if it is one in the middle of a handler.
    before: usize,
    /// For whom it runs what had waited, and since when.
    waited: Option<(u64, Instant)>,
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
        server.shared.workers.fetch_add(1, Ordering::AcqRel);
        let before = WORKS_FOR.replace(Arc::as_ptr(&server).addr());
        Self { server, before, waited: None }
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
        if server.shared.queued.load(Ordering::Acquire) > 0
            && let Some(work) = server.dequeue()
        {
            self.waited = Some((work.client(), Instant::now()));
            return Some(work);
        }
        while server.shared.leadership.is_mine() {
            let work = server.reactor.lock().poll()?;
            if let Some(work) = server.accept(work) {
                return Some(work);
            }
        }
        None
    }

    /// To be called when the handler of the last request has returned. `turn` is the request's if it was one-way: what is
    /// returned is then the client's next one-way request, to be handled now.
    pub fn finish(&mut self, turn: Option<&OnewayTurn>) -> Option<Box<Request>> {
        self.server.shared.leadership.back();
        if let Some((client, since)) = self.waited.take() {
            self.server.queue.lock().charge(client, since.elapsed());
        }
        let next = turn?.next()?;
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
            if server.shared.leadership.is_mine() && server.leaves_to_caller() {
                // It has just received a reply, and nothing else.
                server.shared.leadership.offer();
            }
            if server.shared.leadership.is_mine() || server.shared.leadership.try_take() {
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
                let work = server.reactor.lock().wait_for(patience);
                server.tell_stuck();
                if work.is_none() && server.leaves_to_caller() {
                    server.shared.leadership.offer();
                }
                return work.and_then(|work| server.accept(work)).map_or(Next::Look, Next::Work);
            }
            if server.shared.standby.load(Ordering::Acquire) >= KEPT_STANDBY {
                return Next::End;
            }
            server.shared.standby.fetch_add(1, Ordering::AcqRel);
            if server.may_dequeue() {
                // It was queued because this very worker was busy a moment ago.
                server.shared.standby.fetch_sub(1, Ordering::AcqRel);
                return Next::Look;
            }
            server.shared.leadership.stand_by(|| server.is_stopped());
            server.shared.standby.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.server.release();
        self.server.shared.workers.fetch_sub(1, Ordering::AcqRel);
        WORKS_FOR.set(self.before);
    }
}

/// Whether the calling thread runs a handler of the server at that address.
pub(super) fn is_worker_of(server: *const Server) -> bool {
    WORKS_FOR.get() == server.addr()
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
                request = Request::begin_oneway(request)?;
            }
            work = Work::Call(request);
        }
        // Relaxed: see `leaves_to_caller`.
        if !self.served.load(Ordering::Relaxed) {
            self.served.store(true, Ordering::Relaxed);
        }
        if self.others_busy() >= self.shared.limits.max_concurrency || !self.take_place(&mut work) {
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
        let idle = self.shared.standby.load(Ordering::Relaxed) + self.waiting.load(Ordering::Relaxed);
        self.shared.workers.load(Ordering::Relaxed).saturating_sub(idle + 1)
    }

    /// Whether nobody stands by to receive in the place of this worker, and there may be one more.
    fn lacks_standby(&self) -> bool {
        // Relaxed: as above. While handlers wait, there is always one more: those that have waited are busy again before the
        // others can know.
        let waiting = self.waiting.load(Ordering::Relaxed) > 0;
        let most = self.shared.limits.max_concurrency + if waiting { MOST_WAITING } else { 0 };
        self.shared.standby.load(Ordering::Acquire) == 0 && self.workers() <= most
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
        self.shared.queued.load(Ordering::Relaxed) > 0 && !self.may_dequeue()
    }

    fn may_stream(&self) -> bool {
        // Relaxed: taken with `take_place`.
        self.streams.load(Ordering::Relaxed) < self.shared.limits.most_streams()
    }

    /// Takes the place that a handler of a stream needs, if there is one. Other work needs none.
    fn take_place(&self, work: &mut Work) -> bool {
        let Work::Call(request) = work else { return true };
        if !request.routing.streams {
            return true;
        }
        let next = |streams| (streams < self.shared.limits.most_streams()).then_some(streams + 1);
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
        self.shared.queued.store(queue.len(), Ordering::Release);
    }

    /// Tells the operator if calls wait for a worker, and no handler has returned for a while.
    fn tell_stuck(&self) {
        // Relaxed: asked again whenever the one that receives wakes up.
        if self.shared.queued.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Some(waiting) = self.queue.lock().stuck() else { return };
        let most = self.shared.limits.max_concurrency;
        let busy = if self.others_busy() >= most {
            format!("{most} handlers run in threads, which is the limit,")
        } else {
            let streams = self.shared.limits.most_streams();
            format!(
                "{streams} handlers of streams run in threads, three quarters of max_concurrency, which is their limit,"
            )
        };
        let seconds = STUCK.as_secs();
        let text = format!(
            "{waiting} calls wait, because {busy} and none has returned for {seconds} s: raise max_concurrency, or write \
             handlers that wait, streams above all, with 'async def'"
        );
        self.shared.notify(true, text);
    }

    /// Answers a call for the worker that has received it.
    #[cold]
    fn handle_natively(&self, handler: u8, request: Box<Request>) {
        self.begin_handler();
        let mut request = Some(request);
        // A worker may hold the interpreter just now. A client that calls without a pause must not keep it from the others.
        around_sleep(&mut || {
            if let Some(request) = request.take() {
                self.directory.native(handler).handle(request);
            }
        });
        self.shared.leadership.back();
    }

    /// Whether the calling thread runs a handler of this server.
    pub(super) fn is_worker(&self) -> bool {
        is_worker_of(self)
    }

    /// Whether a request is queued that a worker should run now; for who receives in the middle of a handler. Cheap.
    fn has_work_queued(&self) -> bool {
        // Relaxed: looked at closely if there is any.
        self.shared.queued.load(Ordering::Relaxed) > 0 && self.may_dequeue()
    }

    /// Whether a request is queued that a worker should run now.
    fn may_dequeue(&self) -> bool {
        // SeqCst: a worker that queues a request looks at the counts after it, one that goes to sleep at the queue after
        // it was counted: one of them sees the other.
        fence(Ordering::SeqCst);
        let queued = self.shared.queued.load(Ordering::Relaxed);
        queued > 0
            && self.others_busy() < self.shared.limits.max_concurrency
            && (queued > self.queued_streams.load(Ordering::Relaxed) || self.may_stream())
    }

    /// A queued request, if this worker may run it.
    #[cold]
    fn dequeue(&self) -> Option<Work> {
        let receives = self.shared.leadership.is_mine();
        if receives && self.others_busy() >= self.shared.limits.max_concurrency {
            return None;
        }
        let mut queue = self.queue.lock();
        let mut work = None;
        while let Some(next) = queue.pop(self.may_stream()) {
            work = match next {
                // Nobody waits for it any more.
                Work::Call(request) if request.is_given_up() => {
                    request.forget();
                    None
                }
                // A one-way request goes on: it is its client's turn, and nothing is sent for it.
                Work::Call(request) if !request.connection().has_room() && !request.is_oneway() => {
                    Request::defer(request).map(Work::Call)
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
}
