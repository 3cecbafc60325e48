//! All sockets over which a process speaks with programs of RMR: one thread accepts, reads, and sends what could not be sent
//! at once.
//!
//! What a peer can make this keep is bounded: in messages that are not whole yet, in connections, and in time. A peer that
//! breaks a rule loses its connection, and is counted.

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_core::lock::Mutex;

use super::frame::{Broken, Frame};
use super::outlet::Outlet;
use super::poller::{Happened, Interest, Poller};
use super::reader::Reader;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Bytes that are read at once.
const CHUNK: usize = 64 * 1024;
/// So often one connection is read before others have their turn.
const TURN: usize = 16;
/// How often what is slow is looked at, and a listener that found no descriptor tries again.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Bytes a second below which a message counts as stalled, once its first time is over.
const SLOWEST: u64 = 64 * 1024;

/// What peers may make this process keep.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of the longest message.
    pub message: usize,
    /// Connections.
    pub connections: usize,
    /// Bytes of messages that are not whole yet, of all connections together.
    pub unfinished: usize,
    /// How long a message may take that comes slowly.
    pub stall: Duration,
}

impl Limits {
    /// Those that are usual for messages of at most so many bytes.
    #[must_use]
    pub fn usual(message: usize) -> Self {
        Self { message, connections: 4096, unfinished: 4 * message.max(1 << 22), stall: Duration::from_secs(30) }
    }
}

/// Who takes messages that have come.
pub trait Sink: Send + Sync {
    /// Takes a message, if there is room. Who says that there is none calls [`Exchange::room`] once there is.
    fn take(&self, frame: &Frame<'_>, from: &Arc<Outlet>) -> bool;
}

/// What has happened so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExchangeCounts {
    /// Connections now.
    pub connections: usize,
    /// Connections that were closed because the other side broke a rule: a wrong length, a message that never ends.
    pub broken: u64,
    /// Connections that were refused because there were too many.
    pub refused: u64,
}

/// Serves the sockets. It owns no thread: one has to run [`work`](Self::work).
pub struct Exchange {
    limits: Limits,
    sink: Box<dyn Sink>,
    poller: Arc<Poller>,
    /// What its thread is to serve from now on.
    coming: Mutex<Vec<Coming>>,
    next: AtomicU64,
    /// There may be room for messages that waited.
    room: AtomicBool,
    closed: AtomicBool,
    connections: AtomicUsize,
    broken: AtomicU64,
    refused: AtomicU64,
}

enum Coming {
    Listener(TcpListener),
    Connection(Arc<Outlet>),
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Exchange {
    /// One without sockets.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(limits: Limits, sink: Box<dyn Sink>) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            limits,
            sink,
            poller: Arc::new(Poller::new()?),
            coming: Mutex::default(),
            next: AtomicU64::new(0),
            room: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            broken: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }))
    }

    /// The longest message in bytes.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.limits.message
    }

    /// Takes clients from now on.
    ///
    /// # Errors
    /// What the system says.
    pub fn listen(&self, listener: TcpListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        self.bring(Coming::Listener(listener));
        Ok(())
    }

    /// Serves a connection that this process has made.
    ///
    /// # Errors
    /// What the system says.
    pub fn adopt(&self, socket: TcpStream) -> io::Result<Arc<Outlet>> {
        let outlet = self.outlet(socket)?;
        self.bring(Coming::Connection(Arc::clone(&outlet)));
        Ok(outlet)
    }

    fn bring(&self, coming: Coming) {
        self.coming.lock().push(coming);
        self.poller.wake();
    }

    fn outlet(&self, socket: TcpStream) -> io::Result<Arc<Outlet>> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        Ok(Outlet::new(socket, self.number(), Arc::clone(&self.poller)))
    }

    fn number(&self) -> u64 {
        // Relaxed: only different numbers are wanted.
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// There is room for messages again, after some were refused.
    pub fn room(&self) {
        // Release: who sees it finds the room.
        self.room.store(true, Ordering::Release);
        self.poller.wake();
    }

    /// What has happened so far.
    #[must_use]
    pub fn counts(&self) -> ExchangeCounts {
        // Relaxed, all: numbers to be shown.
        ExchangeCounts {
            connections: self.connections.load(Ordering::Relaxed),
            broken: self.broken.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    /// Ends [`work`](Self::work), which closes all sockets.
    pub fn close(&self) {
        // Release: before the wake that lets it be seen.
        self.closed.store(true, Ordering::Release);
        self.poller.wake();
    }

    /// Whether [`close`](Self::close) was called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        // Acquire: after `close`.
        self.closed.load(Ordering::Acquire)
    }

    /// Serves the sockets until this is closed. For a thread of its own.
    pub fn work(&self) {
        let mut sockets = Sockets::new(self);
        while !self.is_closed() {
            let happened = self.poller.sleep(sockets.has_slow().then_some(LOOK_INTERVAL));
            sockets.take_in();
            for each in happened {
                sockets.serve(each);
            }
            // Acquire: after the Release of `room`.
            if self.room.swap(false, Ordering::Acquire) {
                sockets.retry();
            }
            sockets.look_at_slow();
        }
        sockets.end();
    }
}

/// One connection.
struct Connection {
    outlet: Arc<Outlet>,
    reader: Reader,
    /// Since when the message is coming that is not whole.
    since: Option<Instant>,
    /// Its next message found no room, so that nothing more is read.
    waits: bool,
}

/// How a connection ended.
enum Ended {
    /// It was closed, or lost.
    Gone,
    /// The other side broke a rule.
    Broken,
}

impl From<Broken> for Ended {
    fn from(_: Broken) -> Self {
        Self::Broken
    }
}

/// All sockets, for the thread that serves them.
struct Sockets<'a> {
    exchange: &'a Exchange,
    chunk: Vec<u8>,
    listeners: HashMap<u64, TcpListener>,
    connections: HashMap<u64, Connection>,
    /// Bytes of messages that are not whole, or found no room.
    unfinished: usize,
    /// Listeners that found no descriptor, and when they are watched again.
    resting: Option<Instant>,
    /// Whether a message may be there in part. Found anew now and then.
    any_slow: bool,
    looked: Instant,
}

impl<'a> Sockets<'a> {
    fn new(exchange: &'a Exchange) -> Self {
        Self {
            exchange,
            chunk: vec![0; CHUNK],
            listeners: HashMap::new(),
            connections: HashMap::new(),
            unfinished: 0,
            resting: None,
            any_slow: false,
            looked: Instant::now(),
        }
    }

    /// Takes over what others have brought.
    fn take_in(&mut self) {
        let coming = std::mem::take(&mut *self.exchange.coming.lock());
        for each in coming {
            match each {
                Coming::Listener(listener) => {
                    let number = self.exchange.number();
                    // It fails for want of memory only; then nobody can connect, and a client is told so.
                    let _ = self.exchange.poller.watch(&listener, number, Interest::READ);
                    self.listeners.insert(number, listener);
                }
                Coming::Connection(outlet) => self.add(outlet),
            }
        }
    }

    fn add(&mut self, outlet: Arc<Outlet>) {
        let (exchange, number) = (self.exchange, outlet.number);
        outlet.pause(false);
        let reader = Reader::new(exchange.limits.message);
        self.connections.insert(number, Connection { outlet, reader, since: None, waits: false });
        self.count();
    }

    fn count(&self) {
        // Relaxed: a number to be shown.
        self.exchange.connections.store(self.connections.len(), Ordering::Relaxed);
    }

    fn serve(&mut self, happened: Happened) {
        let Happened { number, readable, writable } = happened;
        if self.listeners.contains_key(&number) {
            self.accept(number);
            return;
        }
        let Some(connection) = self.connections.get_mut(&number) else { return };
        if writable || connection.waits {
            connection.outlet.flush();
        }
        if readable {
            self.read(number);
        }
    }

    fn accept(&mut self, number: u64) {
        // Relaxed, below: numbers to be shown.
        while let Some(listener) = self.listeners.get(&number) {
            match listener.accept() {
                Ok(_) if self.connections.len() >= self.exchange.limits.connections => {
                    self.exchange.refused.fetch_add(1, Ordering::Relaxed);
                }
                Ok((socket, _)) => match self.exchange.outlet(socket) {
                    Ok(outlet) => self.add(outlet),
                    Err(_) => _ = self.exchange.refused.fetch_add(1, Ordering::Relaxed),
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {
                }
                // No descriptor is left: its clients wait until there is one.
                Err(_) => {
                    self.exchange.poller.leave(listener);
                    self.resting = Some(Instant::now() + LOOK_INTERVAL);
                    return;
                }
            }
        }
    }

    fn read(&mut self, number: u64) {
        for _ in 0..TURN {
            let Some(connection) = self.connections.get_mut(&number) else { return };
            if connection.waits {
                return;
            }
            let before = connection.reader.unread();
            let read = match (&connection.outlet.socket).read(&mut self.chunk) {
                Ok(0) => Err(Ended::Gone),
                Ok(len) => {
                    connection.reader.push(&self.chunk[..len]);
                    handle(connection, self.exchange).map(|()| len < CHUNK)
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
                Err(_) => Err(Ended::Gone),
            };
            self.unfinished = self.unfinished - before + connection.reader.unread();
            self.any_slow |= connection.since.is_some();
            match read {
                Ok(_) if self.unfinished > self.exchange.limits.unfinished => {
                    self.remove(number, &Ended::Broken);
                    return;
                }
                Ok(true) => return,
                Ok(false) => {}
                Err(ended) => {
                    self.remove(number, &ended);
                    return;
                }
            }
        }
    }

    /// Tries once more with the messages that found no room.
    fn retry(&mut self) {
        let waiting: Vec<u64> =
            self.connections.iter().filter(|(_, connection)| connection.waits).map(|(&number, _)| number).collect();
        for number in waiting {
            let Some(connection) = self.connections.get_mut(&number) else { continue };
            connection.waits = false;
            let before = connection.reader.unread();
            let handled = handle(connection, self.exchange);
            self.any_slow |= connection.since.is_some();
            self.unfinished = self.unfinished - before + connection.reader.unread();
            if !connection.waits {
                connection.outlet.pause(false);
            }
            if let Err(ended) = handled {
                self.remove(number, &ended);
            }
        }
    }

    /// Whether something has to be looked at even if nothing happens.
    fn has_slow(&self) -> bool {
        self.resting.is_some() || self.any_slow
    }

    fn look_at_slow(&mut self) {
        let now = Instant::now();
        if self.resting.is_some_and(|until| until <= now) {
            self.resting = None;
            for (&number, listener) in &self.listeners {
                let _ = self.exchange.poller.watch(listener, number, Interest::READ);
            }
        }
        if now < self.looked + LOOK_INTERVAL.min(self.exchange.limits.stall) {
            return;
        }
        self.looked = now;
        let stall = self.exchange.limits.stall;
        let is_slow = |connection: &Connection| {
            let allowed = stall + Duration::from_secs(connection.reader.unread() as u64 / SLOWEST);
            !connection.waits && connection.since.is_some_and(|since| now > since + allowed)
        };
        let slow = self.connections.iter().filter(|(_, each)| is_slow(each)).map(|(&number, _)| number);
        for number in slow.collect::<Vec<_>>() {
            self.remove(number, &Ended::Broken);
        }
        self.any_slow = self.connections.values().any(|connection| connection.since.is_some());
    }

    fn remove(&mut self, number: u64, ended: &Ended) {
        let Some(connection) = self.connections.remove(&number) else { return };
        self.exchange.poller.leave(&connection.outlet.socket);
        connection.outlet.lose();
        self.unfinished -= connection.reader.unread();
        if matches!(ended, Ended::Broken) {
            // Relaxed: a number to be shown.
            self.exchange.broken.fetch_add(1, Ordering::Relaxed);
        }
        self.count();
    }

    fn end(&mut self) {
        self.take_in();
        self.listeners.clear();
        for (_, connection) in self.connections.drain() {
            connection.outlet.lose();
        }
        self.count();
    }
}

/// Gives on the messages that are whole.
fn handle(connection: &mut Connection, exchange: &Exchange) -> Result<(), Ended> {
    while let Some(frame) = connection.reader.next_frame()? {
        if exchange.sink.take(&frame, &connection.outlet) {
            connection.since = None;
            continue;
        }
        let len = frame.bytes().len();
        connection.reader.put_back(len);
        connection.waits = true;
        // What has come stays where it is, and the rest with the sender.
        connection.outlet.pause(true);
        return Ok(());
    }
    if connection.reader.unread() == 0 {
        connection.since = None;
    } else if connection.since.is_none() {
        connection.since = Some(Instant::now());
    }
    Ok(())
}
