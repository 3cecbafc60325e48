//! Workers: the threads that run handlers. They take turns at receiving: the worker that holds the lead receives, and
//! runs the request that it has received.

mod in_handler;

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_platform::cpu;
use nearcall_platform::lock::around_sleep;

use crate::exports::HandlerKind;
use crate::server::Server;
use crate::server::handlers::pace::{self, Pace};
use crate::server::handlers::queue::{Queue, STUCK};
use crate::server::handlers::work::Work;
use crate::server::inbound::request::{OnewayTurn, Request};
use crate::server::reactor::Look;

/// How often a worker looks at the connections before it lets the caller see to what else there is.
const MOST_ROUNDS: u32 = 256;

/// How many calls for which nobody waits any more a worker takes out of the queue at once.
const MOST_GIVEN_UP: u32 = 64;

/// How many workers of a server may wait in handlers for replies at a time. Another thread takes the place of each. At
/// most as many may wait for one peer as places are left for the others, so that a peer that never answers does not
/// stop the calls of others.
pub(in crate::server) const MOST_WAITING: usize = 512;

thread_local! {
    /// The address of the server whose worker this thread is; 0 if the thread is no worker.
    static WORKS_FOR: Cell<usize> = const { Cell::new(0) };
}

/// A thread's share in a server. The thread calls [`Worker::try_next`] and [`Worker::wait`] in turn, and
/// [`Worker::finish`] after each handler.
#[derive(Debug)]
pub struct Worker {
    server: Arc<Server>,
    /// The old value of `WORKS_FOR`: a thread may become a worker in the middle of another server's handler.
    before: usize,
    /// This worker runs work, and has a place among those that do.
    busy: bool,
    /// The client whose queued work this worker runs, and since when.
    waited: Option<(u64, Instant)>,
    /// This worker's last look did not find all that was here.
    more: bool,
    /// The handler that this worker runs.
    run: Option<Run>,
    /// How many it has run.
    runs: u32,
}

/// A handler that runs, of which the server learns how slow its method is.
#[derive(Debug)]
struct Run {
    /// The number of the method.
    method: u16,
    /// The lead when it began, if its worker held it.
    led: Option<u64>,
    is_timed: bool,
    /// When it began, and the processor time that its thread had used by then, if it is timed.
    since: Option<(Instant, Duration)>,
}

/// What a worker is to do next.
#[derive(Debug)]
pub enum Next {
    /// Run this.
    Work(Work),
    /// Call [`Worker::try_next`].
    Look,
    /// End the thread: the server has stopped, or has enough workers.
    End,
}

impl Worker {
    /// Makes the calling thread a worker of the server, until this is dropped.
    #[must_use]
    pub fn new(server: Arc<Server>) -> Self {
        server.shared.leadership.join();
        let before = WORKS_FOR.replace(Arc::as_ptr(&server).addr());
        Self { server, before, busy: false, waited: None, more: false, run: None, runs: 0 }
    }

    /// Call this before each work, with the interpreter. Makes sure that a thread goes on receiving while handlers run, or
    /// wait for replies to calls of their own: `spawn` starts one more worker thread.
    #[inline]
    pub fn begin(&mut self, spawn: &dyn Fn() -> bool) {
        if self.server.shared.leadership.ready() == 0 {
            self.server.start_worker(spawn);
        }
        if let Some(run) = &mut self.run
            && run.is_timed
        {
            // The wait for the interpreter does not make a method slow.
            run.since = Some((Instant::now(), cpu::thread_time()));
        }
    }

    /// The next work for this worker, if there is any. Never waits, and takes in little: the caller holds the interpreter.
    /// What there is beyond that, [`Worker::wait`] takes in.
    pub fn try_next(&mut self) -> Option<Work> {
        let server = &*self.server;
        let mut work = None;
        if server.shared.crew.has_queued() {
            work = server.dequeue();
            self.waited = work.as_ref().map(|work| (work.client(), Instant::now()));
        }
        if work.is_none() && server.shared.leadership.lead.is_held() {
            work = server.look(&mut self.more);
        }
        self.take_up(work)
    }

    /// The same after [`Worker::try_next`] has found none, for a thread that may keep the interpreter: spins some
    /// microseconds for what clients send next over shared memory, if that pays.
    #[inline]
    pub fn try_soon(&mut self) -> Option<Work> {
        let server = &*self.server;
        if self.more || !server.shared.leadership.lead.is_held() || server.is_stopped() {
            return None;
        }
        let look = server.reactor.lock().look_soon();
        let work = server.found(look, &mut self.more);
        self.take_up(work)
    }

    /// This work, if there is any, is what this worker runs now. If the worker holds the lead, and the handler will be
    /// slow, it leaves the lead to one that is parked: that would else take it only when the handler has shown how slow it
    /// is.
    #[inline]
    fn take_up(&mut self, work: Option<Work>) -> Option<Work> {
        self.busy = work.is_some();
        self.run = None;
        let work = work?;
        let Server { directory, shared, .. } = &*self.server;
        // What a stream takes says nothing of the next call: it takes as long as its peer likes. Its handler receives while
        // it waits, or a thread beside it does.
        let method = match &work {
            Work::Call(request) if request.routing.streams => {
                if let Some(call) = &request.call {
                    call.handle_here();
                }
                None
            }
            Work::Call(request) => Some(request.head.method),
            Work::Hook(_) => None,
        };
        let pace = method.map_or(Pace::Quick, |method| directory.paces.of(method));
        let leaves = pace == Pace::Slow && shared.leadership.leave();
        let led = if leaves { None } else { shared.leadership.busy() };
        if let Some(method) = method {
            self.runs = self.runs.wrapping_add(1);
            let is_timed = pace != Pace::Quick || self.runs.is_multiple_of(pace::RUNS_PER_TIMED);
            self.run = Some(Run { method, led, is_timed, since: None });
        }
        Some(work)
    }

    /// Call this when the handler of the last work has returned. `turn` is the turn of a one-way request: then this
    /// returns the client's next one-way request, if one waits, to be handled now.
    pub fn finish(&mut self, turn: Option<&OnewayTurn>) -> Option<Box<Request>> {
        let Server { directory, shared, .. } = &*self.server;
        let now = shared.leadership.lead.held();
        let leads = shared.leadership.lead.back();
        if let Some(run) = self.run.take() {
            match run.since {
                // The watcher has taken the lead, or the handler has left it to others.
                _ if run.led.is_some() && !leads => directory.paces.note(run.method, true),
                Some((since, used)) if run.led == now => {
                    let is_slow = pace::is_slow(since.elapsed(), cpu::thread_time().saturating_sub(used));
                    directory.paces.note(run.method, is_slow);
                }
                // Not timed; or it has received while it waited, so that nobody has waited for it.
                _ => {}
            }
        }
        if let Some((client, since)) = self.waited.take() {
            self.server.queue.lock().charge(client, since.elapsed());
        }
        if let Some(next) = turn.and_then(|turn| turn.0.oneway.next()) {
            self.server.begin_handler();
            return Some(next);
        }
        self.leave_place();
        None
    }

    /// The work is through.
    fn leave_place(&mut self) {
        if std::mem::take(&mut self.busy) {
            self.server.shared.crew.end();
        }
    }

    /// Waits until there may be work for this worker. `spawn` starts one more worker thread, and says whether it could.
    pub fn wait(&mut self, spawn: &dyn Fn() -> bool) -> Next {
        let leadership = &self.server.shared.leadership;
        if leadership.ready() == 0 && leadership.workers().0 == 1 {
            self.server.start_worker(spawn);
        }
        for _ in 0..MOST_ROUNDS {
            let server = &*self.server;
            if server.is_stopped() {
                server.release();
                return Next::End;
            }
            if server.shared.leadership.lead.is_held() && server.trend.take_replies() {
                // This worker has just received a reply, and nothing else.
                server.shared.leadership.offer();
            }
            if server.shared.leadership.lead.is_held() || server.shared.leadership.lead.try_take() {
                if server.shared.crew.may_begin() {
                    return Next::Look;
                }
                let more = &mut self.more;
                let work = if *more { server.look(more) } else { server.wait_for(more) };
                let has_more = *more;
                return match self.take_up(work) {
                    Some(work) => Next::Work(work),
                    None if has_more => continue,
                    None => Next::Look,
                };
            }
            if server.shared.crew.may_begin() {
                // The work was queued because this very worker was busy a moment ago.
                return Next::Look;
            }
            if server.shared.leadership.lacks_second() {
                // While nothing is in a hurry: to start a thread takes the interpreter, and milliseconds on a busy machine.
                server.start_worker(spawn);
            }
            if !server.shared.leadership.park() {
                return Next::End;
            }
        }
        Next::Look
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.server.release();
        // After a panic it may still have its place.
        self.leave_place();
        self.server.shared.leadership.resign();
        WORKS_FOR.set(self.before);
    }
}

/// Whether the calling thread is a worker of the server at that address.
pub(in crate::server) fn is_worker_of(server: *const Server) -> bool {
    WORKS_FOR.get() == server.addr()
}

impl Server {
    /// One look at the connections, for a worker that holds the lead. Notes whether there may be more.
    fn look(&self, more: &mut bool) -> Option<Work> {
        let look = self.reactor.lock().look();
        self.found(look, more)
    }

    /// Takes in what a look has brought.
    #[inline]
    fn found(&self, look: Look, more: &mut bool) -> Option<Work> {
        *more = !matches!(look, Look::Nothing);
        let Look::Work(work) = look else { return None };
        self.accept(work)
    }

    /// Sleeps until something comes, for a worker that holds the lead. Notes whether there may be more.
    fn wait_for(&self, more: &mut bool) -> Option<Work> {
        // While calls wait for a worker, wake in time to tell the operator, even if no frame comes.
        let crew = &self.shared.crew;
        let patience = (crew.queued() > 0 && !crew.may_begin()).then_some(STUCK);
        // They may be those of a thread that received before.
        self.trend.take_replies();
        let work = self.reactor.lock().wait_for(patience);
        self.tell_stuck();
        if work.is_none() && self.trend.take_replies() {
            self.shared.leadership.offer();
        }
        let work = work?;
        *more = true;
        self.accept(work)
    }

    /// Takes in work that the calling worker has received. Returns work that the worker is to run at once; if as many
    /// handlers run as may, queues it instead. Hands requests for coroutines to the event loop, and lets native
    /// handlers answer theirs.
    pub(in crate::server) fn accept(&self, mut work: Work) -> Option<Work> {
        if let Work::Call(mut request) = work {
            match request.routing.handler {
                HandlerKind::Thread => {}
                HandlerKind::EventLoop => {
                    // While this worker still holds the lead: so the loop gets its requests in the order in which they
                    // came.
                    self.hand_to_loop(request);
                    return None;
                }
                HandlerKind::Native(handler) => {
                    self.handle_natively(handler, request);
                    return None;
                }
            }
            if request.is_oneway() {
                request = Arc::clone(&request.inbound).oneway.begin(request)?;
            }
            work = Work::Call(request);
        }
        self.trend.note_request();
        let begins = self.shared.crew.begin();
        if !begins || !self.take_place(&mut work) {
            if begins {
                self.shared.crew.end();
            }
            if work.is_stream() {
                self.shared.crew.let_stream_wait(work.client());
            }
            let mut queue = self.queue.lock();
            if self.is_stopped() {
                // `close` may have emptied the queue already, and no worker takes from it any more.
                drop(queue);
                work.give_up();
                return None;
            }
            queue.push(work);
            self.note_queued_work(&queue);
            drop(queue);
            self.tell_stuck();
            return None;
        }
        Some(work)
    }

    /// Starts one more worker, if there may be one more.
    #[cold]
    fn start_worker(&self, spawn: &dyn Fn() -> bool) {
        // While handlers wait for replies, one worker more may be there: a worker whose wait has ended is busy again
        // before the others can know.
        let waiting = if self.shared.crew.waiting() > 0 { MOST_WAITING } else { 0 };
        if self.shared.leadership.begin_starting(self.shared.limits.max_concurrency + waiting) && !spawn() {
            self.shared.leadership.cancel_starting();
        }
    }

    /// Takes a place for work that is a stream, if its client may have one more. Other work needs no place. Whether the
    /// work may run.
    fn take_place(&self, work: &mut Work) -> bool {
        let Some(request) = work.stream_mut() else { return true };
        request.has_place = self.shared.crew.begin_stream(request.connection().token());
        request.has_place
    }

    fn note_queued_work(&self, queue: &Queue) {
        let (others, streams) = queue.others_and_streams();
        self.shared.crew.set_queued(others, streams);
    }

    /// Tells the operator if calls wait for a worker, and no handler has returned for a while.
    fn tell_stuck(&self) {
        // Asked again whenever the receiving worker wakes up.
        if self.shared.crew.queued() == 0 {
            return;
        }
        let Some(waiting) = self.queue.lock().stuck() else { return };
        let most = self.shared.limits.max_concurrency;
        let busy = if self.shared.crew.is_full() {
            format!("{most} handlers run in threads, which is the limit,")
        } else {
            let streams = self.shared.limits.most_streams();
            if self.shared.crew.streams_are_full() {
                format!(
                    "{streams} handlers of streams run in threads, three quarters of max_concurrency, which is their \
                     limit,"
                )
            } else {
                format!(
                    "of the {streams} places for streams, three quarters of max_concurrency, their clients have as many \
                     as they leave to others,"
                )
            }
        };
        let seconds = STUCK.as_secs();
        let text = format!(
            "{waiting} calls wait, because {busy} and none has returned for {seconds} s: raise max_concurrency, or write \
             handlers that wait, streams above all, with 'async def'"
        );
        self.shared.notify(true, text);
    }

    /// Lets a native handler answer a call, in the worker that has received the call.
    #[cold]
    fn handle_natively(&self, handler: u8, request: Box<Request>) {
        // One-way calls of one client are handled in their order: this worker keeps the lead meanwhile.
        let keeps_lead = request.is_oneway();
        if !keeps_lead {
            self.begin_handler();
        }
        let mut request = Some(request);
        // This worker may hold the interpreter. A client that calls without a pause must not keep the interpreter from
        // other threads.
        around_sleep(&mut || {
            if let Some(request) = request.take() {
                self.contain(|| self.directory.native(handler).handle(request));
            }
        });
        if keeps_lead {
            return;
        }
        if self.shared.leadership.lead.back() {
            // Such a handler takes tens of microseconds. So the next client to call need not wait for many of them.
            self.reactor.lock().ask_poller();
        }
    }

    /// Whether the calling thread is a worker of this server.
    pub(in crate::server) fn is_worker(&self) -> bool {
        is_worker_of(self)
    }

    /// A queued request, if this worker may run it.
    #[cold]
    fn dequeue(&self) -> Option<Work> {
        if !self.shared.crew.begin() {
            return None;
        }
        let work = self.take_queued();
        if work.is_none() {
            // Work that came meanwhile found the place taken: the caller looks again before it sleeps.
            self.shared.crew.end();
        }
        work
    }

    /// A queued request whose handler may begin, for a thread that has a place for it. The caller comes again.
    fn take_queued(&self) -> Option<Work> {
        for _ in 0..MOST_GIVEN_UP {
            // The queue is free again before anything else is locked, because this thread holds the interpreter.
            let mut work = self.pop_queued()?;
            let stream_of = work.is_stream().then(|| work.client());
            if let Work::Call(request) = work {
                let Some(request) = Self::still_wanted(request) else {
                    if let Some(client) = stream_of {
                        self.shared.crew.end_stream_wait(client);
                    }
                    continue;
                };
                work = Work::Call(request);
            }
            if let Some(stream) = work.stream_mut() {
                stream.has_place = self.shared.crew.begin_queued_stream(stream.connection().token());
                if !stream.has_place {
                    // A stream that has just come has taken it.
                    self.put_back(work);
                    return None;
                }
            }
            return Some(work);
        }
        None
    }

    /// Takes out of the queue what is next there.
    fn pop_queued(&self) -> Option<Work> {
        let streams = self.shared.crew.next_stream();
        let mut queue = self.queue.lock();
        let work = queue.pop(streams);
        self.note_queued_work(&queue);
        work
    }

    /// Puts a stream back that `pop_queued` has just returned.
    fn put_back(&self, stream: Work) {
        let mut queue = self.queue.lock();
        if self.is_stopped() {
            drop(queue);
            return stream.give_up();
        }
        queue.push_first(stream);
        self.note_queued_work(&queue);
    }

    /// Gives a request back whose handler may begin; not one that its client has given up, or whose client is to read
    /// first.
    fn still_wanted(request: Box<Request>) -> Option<Box<Request>> {
        if request.is_given_up() {
            request.forget();
            return None;
        }
        // A one-way request need not wait for its client to read: no reply is sent. It also holds the turn of the
        // client's later one-way requests.
        if !request.connection().has_room() && !request.is_oneway() {
            return Arc::clone(&request.inbound).defer(request);
        }
        Some(request)
    }
}
