//! One client, as the server sees it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nearcall_transport::lock::Mutex;
use nearcall_transport::{Incoming, Link, LinkError, Peer, Seat};
use nearcall_wire::{Failure, FrameHead, Kind};

use super::Server;
use super::call::ServerCall;
use super::calls::Calls;
use super::held::Held;
use super::request::Request;
use super::statistics::Statistics;
use crate::event::{Event, Payload};
use crate::outgoing::{Body, Outgoing, await_turn, finish_aside};

/// A connection to one client.
#[derive(Debug)]
pub struct ServerConnection {
    pub(super) token: u64,
    pub(super) link: Arc<dyn Link>,
    calls: Mutex<Calls>,
    /// The client hung up: what it sent before is still handled.
    pub(super) hung_up: AtomicBool,
    /// It is in the list of connections that the reception looks at.
    pub(super) listed: AtomicBool,
    dead: AtomicBool,
    /// Why it ended is in the log.
    told: AtomicBool,
    /// The server's count of requests received and not finished.
    pub(super) in_flight: Arc<AtomicUsize>,
    /// Calls that have arrived: a call's ordinal is what this was when it did.
    arrived: AtomicU64,
    /// Cancelled calls that nothing here was registered for, as their handlers may ask: their numbers, and how many calls
    /// had arrived by then. A later call with the same number is another one.
    cancelled: Mutex<VecDeque<(u32, u64)>>,
    oneway: Mutex<OnewayLane>,
    statistics: Arc<Statistics>,
    /// It watches the server's statistics.
    watches: Mutex<bool>,
    /// Counts the client for as long as a handler may be at work for it.
    _seat: Option<Arc<Seat>>,
    /// One-way requests received and not finished.
    pub(super) oneway_pending: AtomicUsize,
    /// Why nothing is read from it for now, if nothing is.
    pub(super) held: Mutex<Held>,
    /// It owes to read: see [`ServerConnection::is_overdue`].
    pub(super) overdue: AtomicBool,
}

/// One-way calls of a client are handled one after the other, in the order they were sent: nothing else could tell the
/// client's code when the first is done.
#[derive(Debug, Default)]
struct OnewayLane {
    running: bool,
    waiting: VecDeque<Request>,
}

/// Cancellations remembered for handlers that may ask; older ones are forgotten.
const MOST_CANCELLED: usize = 1024;

impl ServerConnection {
    pub(super) fn new(
        token: u64,
        link: Arc<dyn Link>,
        in_flight: Arc<AtomicUsize>,
        statistics: Arc<Statistics>,
        seat: Option<Arc<Seat>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            token,
            link,
            calls: Mutex::default(),
            hung_up: AtomicBool::new(false),
            listed: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            told: AtomicBool::new(false),
            in_flight,
            arrived: AtomicU64::new(0),
            cancelled: Mutex::default(),
            oneway: Mutex::default(),
            statistics,
            watches: Mutex::default(),
            _seat: seat,
            oneway_pending: AtomicUsize::new(0),
            held: Mutex::default(),
            overdue: AtomicBool::new(false),
        })
    }

    /// Who the client is.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        self.link.peer()
    }

    /// Whether the connection is gone.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        // Acquire: pairs with the release in `die`.
        self.dead.load(Ordering::Acquire)
    }

    /// Tells the log why the connection ends, once, unless the client just hung up.
    pub(super) fn tell_end(&self, server: &Server, error: &LinkError) {
        // Relaxed: nothing else hangs on it.
        if *error != LinkError::Closed && !self.told.swap(true, Ordering::Relaxed) {
            // A lack of descriptors or memory is this server's own trouble.
            let serious = matches!(error, LinkError::Exhausted(_));
            server.notify(serious, format!("dropped the connection to {}: {error}", self.peer()));
        }
    }

    /// The client is gone: its calls are cancelled.
    pub(super) fn die(&self) {
        self.dead.store(true, Ordering::Release);
        self.link.close();
        self.unwatch();
        let calls = self.calls.lock().take();
        for call in calls {
            call.cancel();
        }
    }

    /// The client looks at the server's statistics: calls are measured until it is gone, or says that it is through.
    pub(super) fn watch(&self, server: &Server) {
        let mut watches = self.watches.lock();
        // A connection that dies now waits for the lock, and takes this back.
        if !*watches && !self.is_dead() {
            *watches = true;
            self.statistics.add_watcher(server.measured);
        }
    }

    /// The client looks no more. Harmless when repeated.
    pub(super) fn unwatch(&self) {
        let mut watches = self.watches.lock();
        if std::mem::take(&mut *watches) {
            self.statistics.remove_watcher();
        }
    }

    /// A one-way request that may be handled now; `None` if it waits for an earlier one.
    pub(super) fn begin_oneway(request: Request) -> Option<Request> {
        let connection = Arc::clone(&request.connection);
        let mut lane = connection.oneway.lock();
        if lane.running {
            lane.waiting.push_back(request);
            return None;
        }
        lane.running = true;
        Some(request)
    }

    /// The one-way request that waited for the one just handled.
    pub(super) fn next_oneway(&self) -> Option<Request> {
        let mut lane = self.oneway.lock();
        let next = lane.waiting.pop_front();
        lane.running = next.is_some();
        next
    }

    /// Forgets the one-way requests that wait: the server ends.
    pub(super) fn clear_oneway(&self) {
        let waiting = std::mem::take(&mut self.oneway.lock().waiting);
        drop(waiting);
        self.abandon();
    }

    /// Whether the call of that number was cancelled that arrived with that ordinal.
    pub(super) fn was_cancelled(&self, call: u32, ordinal: u64) -> bool {
        self.cancelled.lock().iter().any(|&(number, arrived)| number == call && arrived > ordinal)
    }

    pub(super) fn forget(&self, call: u32) {
        self.calls.lock().remove(call);
    }

    /// Takes in a frame; a new call comes out as a request.
    pub(super) fn route(self: &Arc<Self>, server: &Server, incoming: Incoming) -> Result<Option<Request>, LinkError> {
        let Event { head, payload } = Event::parse(incoming).map_err(|bad| LinkError::Broken(bad.0.to_owned()))?;
        match head.kind {
            Kind::Call => return self.begin(server, head, payload),
            Kind::Ping => {
                let payload = payload.inline().unwrap_or_default();
                self.send_in_passing(head.call, &Outgoing::new(Kind::Pong, Body::Whole(payload)))?;
            }
            Kind::Item | Kind::End | Kind::Cancel | Kind::Credit => {
                // Of a call that has ended here: the client could not know yet.
                let call = self.calls.lock().get(head.call);
                if let Some(call) = call {
                    call.take_in(Event { head, payload })?;
                } else if head.kind == Kind::Cancel {
                    let mut cancelled = self.cancelled.lock();
                    if cancelled.len() >= MOST_CANCELLED {
                        cancelled.pop_front();
                    }
                    // Relaxed: frames are taken in one after the other.
                    cancelled.push_back((head.call, self.arrived.load(Ordering::Relaxed)));
                }
            }
            Kind::Pong => {}
            Kind::Reply | Kind::Error | Kind::GoAway | Kind::Head => {
                return Err(LinkError::Broken("the client sent a frame that only servers send".into()));
            }
        }
        Ok(None)
    }

    fn begin(
        self: &Arc<Self>,
        server: &Server,
        head: FrameHead,
        payload: Payload,
    ) -> Result<Option<Request>, LinkError> {
        let kind = server.methods.get(usize::from(head.method));
        // Relaxed: a bound on memory, exact enough; the request itself is published by other means.
        let pending = self.in_flight.fetch_add(1, Ordering::Relaxed);
        let deadline = head.deadline_us().and_then(|us| Instant::now().checked_add(Duration::from_micros(us)));
        let context = OnceLock::new();
        let measured = server.statistics.begin(head.method, payload.len());
        let mut request = Request {
            connection: Arc::clone(self),
            head,
            payload,
            call: None,
            deadline,
            context,
            finished: AtomicBool::new(false),
            measured,
            // Relaxed: as where it is read.
            ordinal: self.arrived.fetch_add(1, Ordering::Relaxed),
        };
        let oneway = request.is_oneway();
        // Relaxed: as above.
        let alone = !oneway || self.oneway_pending.fetch_add(1, Ordering::Relaxed) == 0;
        let refusal = match kind {
            None => {
                let what = format!("the server has no method number {}", request.head.method);
                Some(Failure::new(Failure::UNIMPLEMENTED, what))
            }
            Some(_) if server.is_stopping() => Some(Failure::new(Failure::UNAVAILABLE, "the server is stopping")),
            Some(_) if pending >= server.limits.max_pending && !oneway => Some(server.too_many_pending()),
            Some(kind) if kind.streams && self.calls.lock().streams() >= server.limits.max_streams => {
                Some(server.too_many_streams())
            }
            Some(_) if pending >= server.limits.max_pending && !alone => {
                self.held.lock().requests.push_back(request);
                return Ok(None);
            }
            Some(_) => None,
        };
        if let Some(refusal) = refusal {
            request.note_end(refusal.code, 0);
            if !oneway {
                if server.is_stopping() {
                    // The goodbye to all may not be sent yet; without it the client would not know that it may try again.
                    self.send_in_passing(0, &Outgoing::new(Kind::GoAway, Body::Whole(&[])))?;
                }
                let body = refusal.encode();
                self.send_in_passing(request.head.call, &Outgoing::new(Kind::Error, Body::Whole(&body)))?;
            } else if refusal.code == Failure::UNAVAILABLE {
                server.came_too_late.fetch_add(1, Ordering::Relaxed);
            }
            return Ok(None);
        }
        if let Some(kind) = kind
            && kind.tracked
            && !oneway
        {
            let queue = server.async_queue(kind.in_loop);
            let call = ServerCall::new(Arc::clone(self), request.head.call, queue, request.measured.clone());
            let call = Arc::new(call);
            if !self.calls.lock().insert(request.head.call, &call, kind.streams) {
                return Err(LinkError::Broken("the client used the number of a call that is under way".into()));
            }
            request.call = Some(call);
        }
        Ok(Some(request))
    }

    /// Sends the last frame of an introspective call, maybe from the receiving worker itself. Whoever only watches must not
    /// keep those who work: a client that asks and does not read is dropped.
    #[cold]
    pub(super) fn send_to_watcher(&self, server: &Server, call: u32, frame: &Outgoing<'_>) -> Result<(), LinkError> {
        const SLICE: Duration = Duration::from_millis(1);
        let mut patience = 200;
        let mut wait = |wait: &mut (dyn FnMut() -> Result<(), LinkError> + Send)| {
            patience -= 1;
            if patience == 0 {
                return Err(LinkError::Broken("the client does not read what it asks for".into()));
            }
            // There may be nobody else to receive, if as many handlers run as may.
            server.release();
            let mut result = Ok(());
            (server.around_wait)(&mut || result = wait());
            result
        };
        let mut send = || {
            // See `await_turn`; a worker that replies to this client may have to wait for it much longer than we may.
            while self.link.is_sending() {
                wait(&mut || {
                    self.link.wait_turn(SLICE);
                    Ok(())
                })?;
            }
            frame.send(call, &*self.link, &mut || wait(&mut || self.link.wait_room(false, SLICE)))
        };
        let sent = send();
        if let Err(error @ LinkError::Broken(_)) = &sent {
            server.notify(false, format!("dropped the connection to {}: {error}", self.peer()));
            self.link.close();
        }
        sent
    }

    /// Sends a frame for an event loop, which does not wait: [`LinkError::Full`] if there is no room. What a socket has no
    /// room for after the beginning is sent aside.
    pub(super) fn send_at_once(&self, server: &Server, call: u32, frame: &Outgoing<'_>) -> Result<(), LinkError> {
        let sent = frame.try_send(call, &*self.link);
        match &sent {
            Ok(()) if self.link.has_rest() => finish_aside(&self.link),
            Ok(()) => {}
            Err(error) if error.spares_connection() => {}
            // As in `send`.
            Err(error) => {
                self.tell_end(server, error);
                self.link.close();
            }
        }
        sent
    }

    /// Sends a frame; a worker that must wait for room lets another one receive.
    pub(super) fn send(&self, server: &Server, call: u32, frame: &Outgoing<'_>) -> Result<(), LinkError> {
        self.send_while(server, call, frame, &|| true)
    }

    /// Sends a frame as long as it is `wanted`: [`LinkError::Full`] if there was no room until then.
    pub(super) fn send_while(
        &self,
        server: &Server,
        call: u32,
        frame: &Outgoing<'_>,
        wanted: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), LinkError> {
        const SLICE: Duration = Duration::from_millis(100);
        while self.link.is_sending() {
            if !wanted() {
                return Err(LinkError::Full);
            }
            server.release();
            await_turn(&*self.link, &server.around_wait, Instant::now().checked_add(SLICE));
        }
        let sent = frame.send(call, &*self.link, &mut || {
            server.release();
            let mut result = Ok(());
            (server.around_wait)(&mut || result = self.link.wait_room(false, SLICE));
            match result {
                _ if self.is_dead() => Err(LinkError::Closed),
                Ok(()) if !wanted() => Err(LinkError::Full),
                result => result,
            }
        });
        match &sent {
            // The beginning of a frame that is no longer wanted is out.
            Ok(()) if self.link.has_rest() => finish_aside(&self.link),
            Ok(()) | Err(LinkError::Interrupted) => {}
            Err(error) if error.spares_connection() => {}
            // The reception notices the end by itself, and drops the connection; but not why.
            Err(error) => {
                self.tell_end(server, error);
                self.link.close();
            }
        }
        sent
    }
}
