//! Connections to a server without HTTP/2, as one link. Each connection carries one call at a time; a call that finds
//! none free makes the pool dial one more.
//!
//! The link begins with one connection and lives as long as it has one. Each further connection is dialled by a thread
//! of its own. A waiting call takes whichever connection is free first. If one of several connections fails, only its
//! own call fails.

mod link;

use std::fmt;
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nearcall_platform::lock::{Mutex, OuterMutex};
use nearcall_ring::SpinBudget;
use nearcall_wire::{Failure, Kind};
use smallvec::SmallVec;

use super::bell::Bell;
use super::frames::Frames;
use super::waiting::Waiting;
use crate::errors::{ConnectError, LinkError};
use crate::frame::incoming::Incoming;
use crate::frame::outgoing::{Body, CallKey, Outgoing};
use crate::link::{Ledger, Link, Properties, Room, Sent};
use crate::options::Options;
use crate::sync::{AtomicBool, Ordering};

/// The most connections of a pool.
const MAX_CONNECTIONS: usize = 32;
/// An idle connection is closed after this time, the next time a call uses another one.
const IDLE: Duration = Duration::from_secs(30);
/// The pause after a failed dial. Waiting calls may get one of the other connections meanwhile.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a thread that does not receive sleeps before it looks for a free connection.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// Makes one more connection to the same server.
pub(crate) type Connect = Box<dyn Fn() -> Result<Arc<dyn Link>, ConnectError> + Send + Sync>;

pub(crate) struct Pool {
    this: Weak<Self>,
    properties: Properties,
    connect: Connect,
    state: OuterMutex<PoolState>,
    /// What the receiving thread sleeps on: all connections, and the bell of threads that made a frame or a connection.
    bell: Bell,
    budget: Mutex<SpinBudget>,
    closed: AtomicBool,
}

struct PoolState {
    members: Vec<Member>,
    /// Rotates the connection that is looked at first.
    turn: usize,
    /// Frames for the core that the pool itself made.
    frames: Frames,
    /// Calls of an event loop that wait for a free connection.
    waiting: Waiting,
    /// How many threads wait for a free connection.
    threads: usize,
    /// How many dials are under way, and when the next may begin.
    dialling: usize,
    not_before: Option<Instant>,
}

/// One connection.
struct Member {
    link: Arc<dyn Link>,
    call: Option<Carried>,
    /// Since when the connection has been idle.
    since: Instant,
    /// The connection takes no more calls.
    retires: bool,
}

/// The call that a connection carries.
#[derive(Clone, Copy)]
struct Carried {
    number: u32,
    is_stream: bool,
}

/// Counts a waiting thread in [`PoolState::threads`] while it lives.
struct Counted<'a>(&'a Pool);

impl<'a> Counted<'a> {
    fn new(pool: &'a Pool) -> Self {
        pool.state.lock().threads += 1;
        Self(pool)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.state.lock().threads -= 1;
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("peer", &self.properties.peer).finish_non_exhaustive()
    }
}

impl Member {
    fn new(link: Arc<dyn Link>) -> Self {
        Self { link, call: None, since: Instant::now(), retires: false }
    }

    fn is(&self, link: &Arc<dyn Link>) -> bool {
        Arc::ptr_eq(&self.link, link)
    }

    fn carries(&self, number: u32) -> bool {
        self.call.is_some_and(|call| call.number == number)
    }
}

impl PoolState {
    fn of(&mut self, link: &Arc<dyn Link>) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.is(link))
    }

    fn may_grow(&self) -> bool {
        self.members.len() + self.dialling < MAX_CONNECTIONS && self.not_before.is_none_or(|at| Instant::now() >= at)
    }
}

impl Pool {
    /// # Errors
    /// The system's error.
    pub(crate) fn new(first: Arc<dyn Link>, options: &Options, connect: Connect) -> io::Result<Arc<Self>> {
        let properties = Properties { leaves_work: true, takes_last_calls: false, ..first.properties().clone() };
        let bell = Bell::beside(first.signal())?;
        let state = PoolState {
            members: vec![Member::new(first)],
            turn: 0,
            frames: Frames::new(),
            waiting: Waiting::default(),
            threads: 0,
            dialling: 0,
            not_before: None,
        };
        Ok(Arc::new_cyclic(|this| Self {
            this: this.clone(),
            properties,
            connect,
            state: OuterMutex::new(state),
            bell,
            budget: Mutex::new(SpinBudget::new(options.spin)),
            closed: AtomicBool::new(false),
        }))
    }

    fn is_closed(&self) -> bool {
        // Acquire: pairs with the release in `close`. `welcome` adds no connection once it sees the flag.
        self.closed.load(Ordering::Acquire)
    }

    fn links(&self) -> SmallVec<[Arc<dyn Link>; 4]> {
        let mut state = self.state.lock();
        state.turn = state.turn.wrapping_add(1);
        let at = state.turn % state.members.len().max(1);
        let (before, after) = state.members.split_at(at);
        after.iter().chain(before).map(|member| Arc::clone(&member.link)).collect()
    }

    /// The connection, if there is only one.
    fn only(&self) -> Option<Arc<dyn Link>> {
        match &self.state.lock().members[..] {
            [one] => Some(Arc::clone(&one.link)),
            _ => None,
        }
    }

    /// Takes a free connection for a call. `None` if none is free now, but one may become free or be made.
    fn claim(&self, state: &mut PoolState, call: Carried) -> Result<Option<Arc<dyn Link>>, LinkError> {
        // The connection that was used last comes first, so that surplus ones stay idle and are closed.
        while let Some(at) = free(&state.members) {
            let member = &mut state.members[at];
            // Between two calls the server sends nothing but its goodbye.
            if !member.link.is_stale() {
                member.call = Some(call);
                let link = Arc::clone(&member.link);
                self.close_old(state);
                return Ok(Some(link));
            }
            if state.members.len() == 1 {
                return Err(LinkError::Closed);
            }
            self.dismiss(state, at);
        }
        let all_are_streams = state.members.iter().all(|member| member.call.is_some_and(|call| call.is_stream));
        if all_are_streams && state.dialling == 0 && !state.may_grow() {
            // The thread that asks may be the reader of one of those streams, and would wait for itself.
            return Err(LinkError::Exhausted(format!(
                "over HTTP/1.1 a connection carries one call at a time, and there are no more than the {} on which streams \
                 are under way: end one of them first, or call on another channel; over HTTP/2 there is no such limit",
                state.members.len()
            )));
        }
        Ok(None)
    }

    /// Starts dials for waiting threads and calls, one for each, up to [`MAX_CONNECTIONS`] connections.
    fn grow(&self, state: &mut PoolState) {
        while state.dialling < state.threads + state.waiting.len() && state.may_grow() && !self.is_closed() {
            let this = self.this.clone();
            let dial = move || {
                let Some(pool) = this.upgrade() else { return };
                let made = (pool.connect)();
                pool.welcome(made.ok());
            };
            if std::thread::Builder::new().name("nearcall-dial".into()).spawn(dial).is_err() {
                state.not_before = Some(Instant::now() + PAUSE);
                return;
            }
            state.dialling += 1;
        }
    }

    /// A dial has ended: `made` is its connection, if it succeeded.
    fn welcome(&self, made: Option<Arc<dyn Link>>) {
        let mut state = self.state.lock();
        state.dialling -= 1;
        match made.filter(|link| self.bell.watch(link.signal(), true).is_ok()) {
            // Checked under the lock: `close` sets the flag before it locks, so it finds this connection or is seen
            // here.
            Some(link) if self.is_closed() => link.close(),
            Some(link) => state.members.push(Member::new(link)),
            None => state.not_before = Some(Instant::now() + PAUSE),
        }
        drop(state);
        // The receiving thread begins the waiting calls.
        self.bell.ring();
    }

    /// Closes connections that have been idle longer than [`IDLE`].
    fn close_old(&self, state: &mut PoolState) {
        while let Some(at) =
            state.members.iter().position(|member| member.call.is_none() && member.since.elapsed() > IDLE)
        {
            self.dismiss(state, at);
        }
    }

    /// Closes a connection that is not the only one.
    fn dismiss(&self, state: &mut PoolState, at: usize) {
        let member = state.members.swap_remove(at);
        // Fails only if the poller does not watch the socket any more.
        let _ = self.bell.watch(member.link.signal(), false);
        member.link.close();
    }

    /// A connection carries no call any more. One that retires is closed, unless it is the only one.
    fn freed(&self, state: &mut PoolState, link: &Arc<dyn Link>) {
        let is_only = state.members.len() == 1;
        let Some(at) = state.members.iter().position(|member| member.is(link)) else { return };
        let member = &mut state.members[at];
        (member.call, member.since) = (None, Instant::now());
        if member.retires && !is_only {
            self.dismiss(state, at);
        }
    }

    /// Begins waiting calls while connections are free.
    fn begin_waiting(&self) {
        loop {
            let mut state = self.state.lock();
            let Some(waited) = state.waiting.pop() else { return };
            let (number, call) = (waited.number, CallKey { number: waited.number, side: 0 });
            match self.claim(&mut state, carried(number, &waited.frame())) {
                Ok(Some(link)) => {
                    drop(state);
                    if let Err(error) = self.pass(&link, call, &waited.frame(), Room::Later) {
                        self.tell(Incoming::local(number, &Failure::new(Failure::INTERNAL, error.to_string())));
                        continue;
                    }
                    for (kind, compress, payload) in waited.rest {
                        let frame = Outgoing { compress, ..Outgoing::new(kind, Body::Whole(&payload)) };
                        // If this fails, the call has ended, and the frame that says so is on its way.
                        let _ = link.send(call, &frame, Room::Later);
                    }
                }
                Ok(None) => {
                    // Under the same lock: a thread that cancels the call meanwhile finds it among the waiting calls.
                    state.waiting.push_first(waited);
                    return self.grow(&mut state);
                }
                Err(error) => {
                    drop(state);
                    let code =
                        if error == LinkError::Closed { Failure::UNAVAILABLE } else { Failure::RESOURCE_EXHAUSTED };
                    self.tell(Incoming::refused(number, &Failure::new(code, error.to_string())));
                }
            }
        }
    }

    /// The next frame that the pool itself made.
    fn next_made(&self) -> Option<Incoming> {
        let mut state = self.state.lock();
        let frame = state.frames.pop_front();
        if !state.frames.is_empty() {
            // Keeps the next sleep from missing the other frames.
            self.bell.ring();
        }
        frame
    }

    fn tell(&self, frame: Incoming) {
        self.state.lock().frames.push_back(frame);
        self.bell.ring();
    }

    /// Sends the first frame of a call on the connection that was claimed for it.
    fn pass(
        &self,
        link: &Arc<dyn Link>,
        call: CallKey,
        frame: &Outgoing<'_>,
        room: Room<'_>,
    ) -> Result<Sent, LinkError> {
        match link.send(call, frame, room) {
            Err(error) if error.spares_connection() => {
                self.freed(&mut self.state.lock(), link);
                Err(error)
            }
            Err(error) => {
                // Part of the frame may have been sent, so the call cannot go to another connection.
                self.lost(link, error)?;
                self.bell.ring();
                Ok(Sent::Out)
            }
            sent => sent,
        }
    }

    /// Notes what a received frame means for its connection. Returns the frame if it is for the core.
    fn look_at(&self, link: &Arc<dyn Link>, frame: Incoming) -> Option<Incoming> {
        let mut state = self.state.lock();
        if frame.head.kind == Kind::GoAway {
            if state.members.len() == 1 {
                return Some(frame);
            }
            let member = state.of(link)?;
            member.retires = true;
            if member.call.is_none() {
                self.freed(&mut state, link);
            }
            return None;
        }
        if frame.ends_call() && state.of(link).is_some_and(|member| member.carries(frame.head.call)) {
            self.freed(&mut state, link);
        }
        Some(frame)
    }

    /// Removes a connection that failed, and ends its call. Returns the error if it was the only one: then the link has
    /// failed.
    fn lost(&self, link: &Arc<dyn Link>, error: LinkError) -> Result<(), LinkError> {
        let mut state = self.state.lock();
        let Some(at) = state.members.iter().position(|member| member.is(link)) else { return Ok(()) };
        if state.members.len() == 1 {
            return Err(error);
        }
        if let Some(call) = state.members[at].call {
            let why = match error {
                LinkError::Closed => "the connection of the call was lost: the server stopped or died".to_owned(),
                error => format!("the connection of the call is broken: {error}"),
            };
            let failure = Failure::new(Failure::UNAVAILABLE, why);
            let was_sent = !never_sent(&**link).contains(&call.number);
            let end = if was_sent { Incoming::lost } else { Incoming::refused };
            state.frames.push_back(end(call.number, &failure));
        }
        self.dismiss(&mut state, at);
        Ok(())
    }

    /// The next frame of one of the connections, if one has arrived.
    fn try_next(&self) -> Result<Option<Incoming>, LinkError> {
        self.bell.clear();
        // A dial may have made a connection for waiting calls.
        self.begin_waiting();
        if let Some(frame) = self.next_made() {
            return Ok(Some(frame));
        }
        let mut later = None;
        for link in self.links() {
            loop {
                let mut slot = None;
                match link.try_receive_part(&mut slot).map(|()| slot) {
                    Ok(Some(frame)) => {
                        if let Some(frame) = self.look_at(&link, frame) {
                            if frame.ends_call() {
                                self.begin_waiting();
                            }
                            return Ok(Some(frame));
                        }
                    }
                    Ok(None) => break,
                    Err(error @ (LinkError::OverBudget | LinkError::Unfinished)) => {
                        later = Some(error);
                        break;
                    }
                    Err(error) => {
                        self.lost(&link, error)?;
                        break;
                    }
                }
            }
        }
        match self.next_made() {
            Some(frame) => Ok(Some(frame)),
            None => later.map_or(Ok(None), Err),
        }
    }
}

/// The free connection that was used last.
fn free(members: &[Member]) -> Option<usize> {
    let free = members.iter().enumerate().filter(|(_, member)| member.call.is_none() && !member.retires);
    free.max_by_key(|(_, member)| member.since).map(|(at, _)| at)
}

fn carried(number: u32, frame: &Outgoing<'_>) -> Carried {
    Carried { number, is_stream: frame.path.is_some_and(|path| path.streams_in || path.streams_out) }
}

/// The calls of one connection of which nothing was sent.
fn never_sent(link: &dyn Link) -> Vec<u32> {
    link.ledger().map_or_else(Vec::new, Ledger::never_sent)
}
