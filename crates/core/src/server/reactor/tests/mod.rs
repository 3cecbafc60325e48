//! A server with one client, of which the tests choose what it has sent and whether it reads; each file has one subject.

mod ends;
mod replies;
mod room;
mod turns;
mod workers;

use std::time::Instant;

use nearcall_platform::fault::contained;
use nearcall_platform::lock::{Mutex, held_here, set_around_sleep};
use nearcall_ring::SpinPolicy;
use nearcall_transport::{Body, Incoming, Link, Wait};
use nearcall_wire::{FrameHead, Kind, flags};

use super::*;
use crate::chosen_link::{Chosen, Faulty, MUCH};
use crate::client::Awaited;
use crate::exports::{MethodRouting, OnRelease};
use crate::server::connection::SOCKET;
use crate::server::{
    HandlerKind, NativeHandler, NextItem, ServedMethods, Server, ServerCall, SessionHooks, WorkLimits, Worker,
};

const TOKEN: u64 = 1 << 32;

/// A handler that panics.
#[derive(Debug)]
struct Fails;

impl crate::server::CallObserver for Fails {}

impl NativeHandler for Fails {
    fn handle(&self, _: Box<Request>) {
        panic!("this handler has a fault");
    }
}

/// What a thread does before it sleeps that may hold the interpreter.
fn holds_no_lock(sleep: &mut (dyn FnMut(bool) + Send)) {
    assert_eq!(held_here(), 0, "it would wait for the interpreter with a lock held");
    sleep(false);
}

/// A server with one client. The server has sent the client more than it reads, and the client has made some calls.
struct Scene {
    server: Server,
    client: Arc<Inbound<Request>>,
    link: Arc<Chosen>,
    /// What the server's operator is told.
    said: Arc<Mutex<Vec<Notice>>>,
}

/// A client whose handshake is complete.
fn newcomer(shared: &Arc<Shared>, token: u64, link: &Arc<Chosen>) -> Arc<ServerConnection> {
    ServerConnection::new(shared, token, Arc::clone(link) as Arc<dyn Link>, None, "shm://here".into())
}

impl Scene {
    fn new(calls: u32) -> Self {
        Self::spinning(calls, Duration::ZERO)
    }

    /// A server whose client has read all and called nothing.
    fn quiet() -> Self {
        Self::quiet_with(Chosen::new(VecDeque::new()))
    }

    /// The same, over this link.
    fn quiet_with(link: Arc<Chosen>) -> Self {
        let scene = Self::with(link, Duration::ZERO);
        scene.read();
        scene.server.reactor.lock().poll_events(Some(Duration::ZERO));
        scene
    }

    /// A server that spins for so long.
    fn spinning(calls: u32, time: Duration) -> Self {
        Self::with(Chosen::new((0..calls).map(call).collect()), time)
    }

    /// The same, over this link.
    fn with(link: Arc<Chosen>, time: Duration) -> Self {
        set_around_sleep(holds_no_lock);
        let options = Options { spin: SpinPolicy::Fixed(time), ..Options::default() };
        let limits = WorkLimits {
            max_concurrency: 1,
            max_pending: 100,
            max_streams: 1,
            max_memory: 1 << 30,
            max_references: 1,
            age: None,
        };
        let native = MethodRouting { handler: HandlerKind::Native(0), ..MethodRouting::default() };
        let methods = ServedMethods {
            routings: vec![Some(MethodRouting::default()), Some(native)],
            native_handlers: vec![Arc::new(Fails)],
            ..ServedMethods::default()
        };
        let said = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&said);
        let server = Server::new(
            methods,
            options,
            limits,
            SessionHooks::default(),
            Box::new(move |notice| log.lock().push(notice)),
        );
        let server = server.expect("descriptors");
        let newcomer = newcomer(&server.shared, TOKEN, &link);
        let client = {
            let mut reactor = server.reactor.lock();
            reactor.add_client(newcomer);
            Arc::clone(&reactor.connections[&TOKEN])
        };
        let scene = Self { server, client, link, said };
        scene.send();
        scene
    }

    /// The server sends the client more than it reads.
    fn send(&self) {
        self.client.connection.send(0, &Outgoing::new(Kind::Reply, Body::Whole(&[]))).expect("it is queued");
    }

    /// The client reads all that it was sent.
    fn read(&self) {
        *self.link.queued.lock() = 0;
        self.has_news();
    }

    /// Another client of the same server: its link, and its token.
    fn other(&self) -> (Arc<Chosen>, u64) {
        let (link, token) = (Chosen::new(VecDeque::new()), TOKEN + 1);
        self.server.reactor.lock().add_client(newcomer(&self.server.shared, token, &link));
        (link, token)
    }

    /// The client has a fault, and has been dropped for it; the operator was told so once.
    fn is_dropped_for_a_fault(&self) -> bool {
        let said = std::mem::take(&mut *self.said.lock());
        let told = |notice: &Notice| matches!(notice, Notice::Line { serious: true, text } if text.contains("fault"));
        let connections = self.server.reactor.lock().connections.contains_key(&TOKEN);
        self.client.connection.is_dead() && !connections && said.len() == 1 && told(&said[0])
    }

    /// The client makes a call.
    fn call(&self, number: u32) {
        self.link.frames.lock().push_back(call(number));
        self.has_news();
    }

    /// The poller has an event of the client.
    fn has_news(&self) {
        let flags = SOCKET | EventFlags::OUT;
        self.server.shared.rewatch(self.link.signal(), TOKEN, flags).expect("watched");
    }
}

/// A client's call.
fn call(number: u32) -> Incoming {
    Incoming::new(FrameHead::new(Kind::Call, number), &[])
}

fn number(work: Option<Work>) -> Option<u32> {
    match work? {
        Work::Call(request) => Some(request.head.call),
        Work::Hook(_) => panic!("nobody asked for that"),
    }
}
