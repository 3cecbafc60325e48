//! A transport in memory: a client leaves the other half of its link at the office, and frames go from queue to queue.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nearcall_platform::lock::{Condvar, Mutex};
use nearcall_transport::{
    Accepted, Acceptor, Arrived, Awaits, Body, Bound, CallKey, ConnectError, Connected, Dialled, Dialling, Flushed,
    Greeted, Greeting, Incoming, LONGEST_SLEEP, Link, LinkError, Options, Outgoing, Pace, Peer, Place, Properties,
    Reconnect, Room, Sent, Signal, Wait, WakerSlot,
};
use nearcall_wire::{FrameHead, PartsTable, Welcome};

/// A place, of which there may be several.
#[derive(Debug, Clone)]
pub(crate) struct Post {
    number: usize,
    office: Arc<Office>,
}

impl Post {
    pub(crate) fn new() -> Self {
        static POSTS: AtomicUsize = AtomicUsize::new(0);
        // Relaxed: only uniqueness counts.
        Self { number: POSTS.fetch_add(1, Ordering::Relaxed), office: Arc::default() }
    }

    /// How many clients wait to be accepted.
    pub(crate) fn waiting(&self) -> usize {
        self.office.clients.lock().len()
    }

    /// Cuts all links, as the death of the other end does.
    pub(crate) fn cut(&self) {
        self.office.made.lock().drain(..).for_each(|queue| queue.close());
    }
}

/// Where clients wait for their server.
#[derive(Debug, Default)]
struct Office {
    clients: Mutex<VecDeque<Half>>,
    is_open: Mutex<bool>,
    made: Mutex<Vec<Arc<Queue>>>,
    waker: WakerSlot,
}

impl fmt::Display for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "post://{}", self.number)
    }
}

impl Place for Post {
    fn dial<'a>(&'a self, _: &'a Options, _: &'a Pace) -> Dialling<'a> {
        Box::pin(async move {
            if !*self.office.is_open.lock() {
                return Err(ConnectError::Unavailable(format!("cannot connect to {self}: nobody serves it")));
            }
            let (there, back, welcomed) =
                (Arc::<Queue>::default(), Arc::<Queue>::default(), Arc::<Mutex<_>>::default());
            self.office.made.lock().extend([Arc::clone(&there), Arc::clone(&back)]);
            let other = Half { sends: Arc::clone(&back), gets: Arc::clone(&there), welcomed: Arc::clone(&welcomed) };
            self.office.clients.lock().push_back(other);
            self.office.waker.wake();
            Ok(Box::new(Half { sends: there, gets: back, welcomed }) as _)
        })
    }

    fn bind(&self, _: &Options) -> io::Result<Bound> {
        *self.office.is_open.lock() = true;
        Ok(Bound { acceptor: Box::new(Counter(Arc::clone(&self.office))), place: Arc::new(self.clone()) })
    }

    fn reconnect(&self) -> Reconnect {
        Reconnect::Cheap
    }
}

/// The server's end of an office.
#[derive(Debug)]
struct Counter(Arc<Office>);

impl Acceptor for Counter {
    fn signal(&self) -> Signal<'_> {
        Signal::Waker(&self.0.waker)
    }

    fn accept(&self) -> io::Result<Option<Arrived>> {
        let half = self.0.clients.lock().pop_front();
        Ok(half.map(|half| Arrived { opening: Box::new(Greeter { half, peer: nobody() }), permit: None }))
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        *self.0.is_open.lock() = false;
        self.0.clients.lock().drain(..).for_each(|half| half.close());
    }
}

fn nobody() -> Peer {
    Peer::Local { pid: 0, uid: 0, gid: 0 }
}

/// One end of a link to be.
#[derive(Debug)]
struct Half {
    sends: Arc<Queue>,
    gets: Arc<Queue>,
    welcomed: Arc<Mutex<Option<Welcome>>>,
}

impl Half {
    fn close(&self) {
        self.sends.close();
        self.gets.close();
    }

    fn into_link(self) -> Arc<dyn Link> {
        Arc::new(PostLink { half: self, properties: Properties::new(nobody()) })
    }
}

impl Dialled for Half {
    fn greet(self: Box<Self>, greeting: Greeting<'_>) -> Greeted<'_> {
        Box::pin(async move {
            let welcome = greeting.pace.wait(|until| {
                let closed = self.gets.wait(until);
                let welcome = self.welcomed.lock().take();
                (closed || welcome.is_some()).then_some(welcome)
            });
            match welcome.await {
                Some(Some(welcome)) => Ok(Connected { link: self.into_link(), welcome }),
                Some(None) => Err(ConnectError::Left(format!("{} hung up", greeting.url))),
                None => Err(ConnectError::TimedOut(format!("{} did not greet in time", greeting.url))),
            }
        })
    }
}

#[derive(Debug)]
struct Greeter {
    half: Half,
    peer: Peer,
}

impl Accepted for Greeter {
    fn signal(&self) -> Signal<'_> {
        Signal::Waker(&self.half.gets.waker)
    }

    fn awaits(&self) -> Awaits {
        Awaits { arrivals: true, room: false }
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }

    fn advance(&mut self, welcome: &Welcome, _: &Options) -> Result<bool, Option<String>> {
        *self.half.welcomed.lock() = Some(welcome.clone());
        self.half.sends.note();
        Ok(true)
    }

    fn into_link(self: Box<Self>, _: &Options) -> Option<Arc<dyn Link>> {
        Some(self.half.into_link())
    }

    fn reject(self: Box<Self>, _: &str, _: bool) {
        self.half.close();
    }
}

/// Frames on their way in one direction.
#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    waker: WakerSlot,
}

#[derive(Debug, Default)]
struct State {
    frames: VecDeque<Incoming>,
    closed: bool,
    /// Something else has happened that the reader waits for.
    noted: bool,
}

impl Queue {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changed.notify_all();
        self.waker.wake();
    }

    fn note(&self) {
        self.change(|state| state.noted = true);
    }

    fn close(&self) {
        self.change(|state| state.closed = true);
    }

    fn is_quiet(&self) -> bool {
        let state = self.state.lock();
        state.frames.is_empty() && !state.closed
    }

    /// Waits until something has happened. Whether it is closed.
    fn wait(&self, until: Instant) -> bool {
        let mut state = self.state.lock();
        while state.frames.is_empty() && !state.closed && !std::mem::take(&mut state.noted) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.changed.wait_for(&mut state, left);
        }
        state.closed
    }
}

#[derive(Debug)]
struct PostLink {
    half: Half,
    properties: Properties,
}

impl Drop for PostLink {
    fn drop(&mut self) {
        self.close();
    }
}

impl Wait for PostLink {
    fn signal(&self) -> Signal<'_> {
        Signal::Waker(&self.half.gets.waker)
    }

    fn arm(&self) -> bool {
        self.half.gets.is_quiet()
    }

    fn spin(&self) -> bool {
        !self.half.gets.is_quiet()
    }

    fn may_have_more(&self) -> bool {
        !self.half.gets.is_quiet()
    }

    fn wait_room(&self, receiving: bool, timeout: Duration) -> Result<(), LinkError> {
        if receiving {
            self.half.gets.wait(Instant::now() + timeout);
        }
        Ok(())
    }
}

impl Link for PostLink {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn send(&self, call: CallKey, frame: &Outgoing<'_>, _: Room<'_>) -> Result<Sent, LinkError> {
        let mut head = FrameHead::new(frame.kind, call.number);
        (head.flags, head.target, head.method) = (frame.flags | call.side, frame.target, frame.method);
        if frame.deadline_us.is_some() || frame.metadata.is_some() {
            head.extras_mut().deadline_us = frame.deadline_us;
            head.extras_mut().metadata.clone_from(&frame.metadata);
        }
        let payload = match frame.body {
            Body::Whole(bytes) => bytes.to_vec(),
            Body::Pieces(pieces) => pieces.concat(),
            Body::Parts(body, buffers) => {
                let lengths: Vec<usize> = buffers.iter().map(|buffer| buffer.len()).collect();
                head.extras_mut().parts = Some(PartsTable::of(&lengths));
                [body, &buffers.concat()].concat()
            }
        };
        let mut closed = false;
        self.half.sends.change(|state| {
            closed = state.closed;
            if !closed {
                state.frames.push_back(Incoming::new(head, &payload));
            }
        });
        if closed { Err(LinkError::Closed) } else { Ok(Sent::Out) }
    }

    fn flush(&self) -> Result<Flushed, LinkError> {
        Ok(Flushed::All)
    }

    fn release(&self) -> Result<Sent, LinkError> {
        Ok(Sent::Out)
    }

    fn queued(&self) -> usize {
        0
    }

    fn stop_sending(&self) {
        self.half.sends.close();
    }

    fn has_delivered(&self) -> bool {
        true
    }

    fn try_receive_part(&self, slot: &mut Option<Incoming>) -> Result<(), LinkError> {
        let mut state = self.half.gets.state.lock();
        *slot = state.frames.pop_front();
        if slot.is_none() && state.closed { Err(LinkError::Closed) } else { Ok(()) }
    }

    fn receive(&self, deadline: Option<Instant>, slot: &mut Option<Incoming>) -> Result<(), LinkError> {
        let longest = Instant::now() + LONGEST_SLEEP;
        self.half.gets.wait(deadline.map_or(longest, |deadline| deadline.min(longest)));
        self.try_receive_part(slot)
    }

    fn is_stale(&self) -> bool {
        !self.half.gets.is_quiet()
    }

    fn close(&self) {
        self.half.close();
    }
}
