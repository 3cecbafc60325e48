//! The threads that run handlers take turns at receiving.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Server;
use super::call::ServerCall;
use super::connection::Request;

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

    /// The next request, if this worker receives and one is here. Never waits.
    pub fn try_next(&mut self) -> Option<Request> {
        let server = &*self.server;
        if !server.baton.is_held() {
            return None;
        }
        let request = server.reception.lock().poll(server)?;
        server.begin_handler();
        Some(request)
    }

    /// To be called when the handler of the last request has returned.
    pub fn finish(&mut self) {
        self.server.baton.back();
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
                if server.standby.load(Ordering::Acquire) == 0 && server.workers() < server.max_workers {
                    spawn();
                }
                let request = server.reception.lock().wait(server);
                if request.is_some() {
                    server.begin_handler();
                }
                return request.map_or(Next::Look, Next::Request);
            }
            if server.standby.load(Ordering::Acquire) >= KEPT_STANDBY {
                return Next::End;
            }
            server.standby.fetch_add(1, Ordering::AcqRel);
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
}

impl Server {
    fn begin_handler(&self) {
        self.baton.busy();
        // SeqCst: after the baton's word; see `Baton::busy`.
        if self.watcher_sleeps.load(Ordering::SeqCst) {
            self.wake_watcher();
        }
    }

    #[cold]
    fn wake_watcher(&self) {
        let _watch = self.vacancy.0.lock();
        self.watcher_sleeps.store(false, Ordering::SeqCst);
        self.vacancy.1.notify_all();
    }

    /// Lets another worker receive: the caller is going to wait for something else.
    pub(super) fn release(&self) {
        if self.baton.give_up() {
            self.announce_vacancy();
        }
    }

    fn announce_vacancy(&self) {
        let _watch = self.vacancy.0.lock();
        self.vacancy.1.notify_all();
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

    /// A handler waits for frames of its call: it receives by itself, unless another worker does.
    pub(super) fn wait_in_handler(&self, call: &Arc<ServerCall>, ready: impl Fn(&ServerCall) -> bool + Copy + Sync) {
        const SLICE: Duration = Duration::from_millis(50);
        if self.receive_in_handler(|| ready(call), false) {
            return;
        }
        let mut wait = || {
            while !ready(call) && !self.is_stopped() {
                if !self.receive_in_handler(|| ready(call), true) {
                    call.wait_changed(ready, SLICE);
                }
            }
        };
        (self.around_wait)(&mut wait);
    }

    /// Receives in the middle of a handler, if the baton is ours or free, until `ready`. A request that comes meanwhile is
    /// left to another worker, and the baton with it. Whether it became ready.
    fn receive_in_handler(&self, ready: impl Fn() -> bool, may_wait: bool) -> bool {
        if !self.baton.back() && !self.baton.try_take() {
            return ready();
        }
        let mut reception = self.reception.lock();
        loop {
            let more = reception.poll_into_backlog(self);
            if ready() || self.is_stopped() {
                drop(reception);
                if more {
                    self.release();
                } else {
                    self.baton.busy();
                }
                return true;
            }
            if more {
                drop(reception);
                self.release();
                return false;
            }
            if !may_wait {
                drop(reception);
                self.baton.busy();
                return false;
            }
            if let Some(request) = reception.wait(self) {
                reception.keep(request);
            }
        }
    }
}
