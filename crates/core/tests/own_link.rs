//! A transport of these tests' own, under the client and the server of the core: a link in memory without a descriptor, which
//! wakes who sleeps by a waker. What a transport has to be is what `post.rs` has, and nothing else.

#[path = "common/post.rs"]
mod post;

use post::Post;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nearcall_core::client::{CallId, Channel, Connection, Expected, NoEvent, Patience, wait_for_first};
use nearcall_core::lock::Mutex;
use nearcall_core::server::{
    ItemOutcome, MethodRouting, Next, Request, ServedMethods, Server, SessionHooks, Work, WorkLimits, Worker,
};
use nearcall_core::{Body, Failure, Incoming, Kind, Listener, Options, Outgoing, Url};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Methods: the first replies with what it got, the second streams three items, the third keeps its request.
const ECHO: u16 = 0;
const COUNT: u16 = 1;
const KEEP: u16 = 2;

/// So long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server with one worker, and what its third method has kept.
struct Served {
    server: Arc<Server>,
    post: Arc<Post>,
    kept: Arc<Mutex<Vec<Request>>>,
    worker: Option<JoinHandle<()>>,
}

impl Served {
    fn new() -> Self {
        Self::after(|_| {})
    }

    /// A server that begins to accept after this.
    fn after(before: impl FnOnce(&Arc<Post>)) -> Self {
        let streams = MethodRouting { streams: true, ..MethodRouting::default() };
        let methods = ServedMethods {
            description: "{}".into(),
            routings: vec![Some(MethodRouting::default()), Some(streams), Some(streams)],
            ..ServedMethods::default()
        };
        let limits = WorkLimits {
            max_concurrency: 10,
            max_pending: 100,
            max_streams: 10,
            max_memory: 1 << 30,
            max_references: 1,
            age: None,
        };
        let (options, hooks) = (Options::default(), SessionHooks::default());
        let server = Server::new(methods, options.clone(), limits, hooks, Box::new(|_| {})).expect("descriptors");
        let post = Arc::new(Post::new());
        let listener = Listener::bind(&Url::of(post.clone()), &options).expect("it is free");
        before(&post);
        server.listen(listener).expect("descriptors");
        let (server, kept) = (Arc::new(server), Arc::default());
        let worker = std::thread::spawn({
            let (server, kept) = (Arc::clone(&server), Arc::clone(&kept));
            move || work(Worker::new(server), &kept)
        });
        Self { server, post, kept, worker: Some(worker) }
    }

    fn channel(&self) -> Channel {
        channel(&self.post)
    }

    fn connect(&self) -> Arc<Connection> {
        let connected = self.channel().usable(Patience::FailFast, None, &mut || true);
        connected.expect("it is served").expect("without a deadline")
    }

    fn stop(&mut self) {
        self.kept.lock().clear();
        self.server.stop(Duration::ZERO, false, &mut || true);
        self.server.close();
        if let Some(worker) = self.worker.take() {
            worker.join().expect("no panic");
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop();
    }
}

fn channel(post: &Arc<Post>) -> Channel {
    Channel::new(Url::of(post.clone()), Options::default(), None, Box::new(|_| Ok(())))
}

fn work(mut worker: Worker, kept: &Mutex<Vec<Request>>) {
    loop {
        let next = match worker.wait(&|| false) {
            Next::Work(work) => Some(work),
            Next::Look => worker.try_next(),
            Next::End => return,
        };
        if let Some(Work::Call(request)) = next {
            worker.begin(&|| false);
            handle(request, kept);
            worker.finish(None);
        }
    }
}

fn handle(request: Box<Request>, kept: &Mutex<Vec<Request>>) {
    match request.head.method {
        ECHO => request.reply(Body::Whole(&request.payload.to_vec())).expect("the client is there"),
        COUNT => {
            let call = request.call.as_ref().expect("it streams");
            for item in [b"one", b"two", b"six"] {
                let sent = call.try_send_item(&request.item(Body::Whole(item)), request.deadline);
                assert!(matches!(sent, Ok(ItemOutcome::Sent)), "{sent:?}");
            }
            request.end_stream().expect("the client is there");
        }
        _ => kept.lock().push(*request),
    }
}

fn request(method: u16, payload: &[u8]) -> Outgoing<'_> {
    Outgoing { method, ..Outgoing::new(Kind::Call, Body::Whole(payload)) }
}

fn begin(connection: &Connection, method: u16, payload: &[u8]) -> CallId {
    connection.begin(&request(method, payload), Expected::default()).expect("the server is there")
}

fn next(connection: &Connection, id: CallId) -> Incoming {
    let mut place = None;
    let waited = connection.next_event(id, Some(Instant::now() + PATIENCE), &mut place, &mut || true);
    assert_eq!(waited, Ok(()));
    place.expect("just found")
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_call_is_answered() {
    let served = Served::new();
    let connection = served.connect();
    assert!(!connection.is_memory(), "nobody looks at it in a loop");
    for round in 0..200 {
        let id = begin(&connection, ECHO, &[round; 300]);
        let reply = next(&connection, id);
        assert_eq!((reply.head.kind, reply.payload.to_vec()), (Kind::Reply, vec![round; 300]));
    }
    assert_eq!(connection.in_flight(), 0);
}

/// What comes before a waker is left wakes nobody, and of many clients only some are accepted at once.
#[test]
fn clients_that_come_before_their_server_listens_are_taken_in() {
    const CLIENTS: usize = 20;
    let mut clients = Vec::new();
    let served = Served::after(|post| {
        clients.extend((0..CLIENTS).map(|_| {
            let post = Arc::clone(post);
            std::thread::spawn(move || channel(&post).usable(Patience::FailFast, None, &mut || true))
        }));
        until("the clients are there", || post.waiting() == CLIENTS);
    });
    for client in clients {
        let connected = client.join().expect("no panic").expect("greeted").expect("without a deadline");
        let id = begin(&connected, ECHO, b"early");
        assert_eq!(next(&connected, id).payload.to_vec(), b"early");
    }
    drop(served);
}

#[test]
fn threads_share_a_connection() {
    let served = Served::new();
    let connection = served.connect();
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let connection = &connection;
            scope.spawn(move || {
                for round in 0..100 {
                    let id = begin(connection, ECHO, &[thread, round]);
                    assert_eq!(next(connection, id).payload.to_vec(), [thread, round]);
                }
            });
        }
    });
}

#[test]
fn a_stream_has_its_items_and_its_end() {
    let served = Served::new();
    let connection = served.connect();
    let id = begin(&connection, COUNT, b"");
    let frames: Vec<_> = (0..4).map(|_| next(&connection, id)).collect();
    let kinds: Vec<_> = frames.iter().map(|frame| frame.head.kind).collect();
    assert_eq!(kinds, [Kind::Item, Kind::Item, Kind::Item, Kind::End]);
    assert_eq!(frames[..3].iter().map(|frame| frame.payload.to_vec()).collect::<Vec<_>>(), [b"one", b"two", b"six"]);
}

#[test]
fn a_deadline_ends_the_wait_and_the_call() {
    let served = Served::new();
    let connection = served.connect();
    let soon = Duration::from_millis(100);
    let call = Outgoing { deadline_us: Some(soon.as_micros() as u64), ..request(KEEP, b"") };
    let id = connection.begin(&call, Expected::default()).expect("the server is there");
    let deadline = Instant::now() + soon;
    let mut place = None;
    let ended = connection.next_event(id, Some(deadline), &mut place, &mut || true);
    assert_eq!((ended, place.is_some()), (Err(NoEvent::DeadlinePassed), false));
    connection.cancel(id);
    until("the server knows", || served.kept.lock().iter().any(|kept| kept.is_late() && kept.context().is_cancelled()));
    let id = begin(&connection, ECHO, b"on");
    assert_eq!(next(&connection, id).payload.to_vec(), b"on");
}

#[test]
fn a_death_ends_every_call_and_the_next_one_dials_anew() {
    let mut served = Served::new();
    let channel = served.channel();
    let usable = |patience| channel.usable(patience, None, &mut || true).expect("served").expect("no deadline");
    let connection = usable(Patience::FailFast);
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            let connection = Arc::clone(&connection);
            std::thread::spawn(move || {
                let id = begin(&connection, KEEP, b"");
                next(&connection, id)
            })
        })
        .collect();
    until("all calls are there", || served.kept.lock().len() == 4);
    served.post.cut();
    for thread in waiting {
        let end = thread.join().expect("no panic");
        assert_eq!(end.head.kind, Kind::Error);
        let failure = Failure::decode(&end.payload.to_vec()).expect("a failure");
        assert_eq!(failure.code, Failure::UNAVAILABLE, "{}", failure.message);
    }
    assert!(connection.is_dead());
    until("the server knows", || served.kept.lock().iter().all(|kept| kept.connection().is_dead()));
    let connection = usable(Patience::FailFast);
    let id = begin(&connection, ECHO, b"again");
    assert_eq!(next(&connection, id).payload.to_vec(), b"again");
    served.stop();
    until("it has said goodbye", || !connection.stands());
    let refused = channel.usable(Patience::FailFast, None, &mut || true).expect_err("nobody serves it");
    assert_eq!(refused.code, Failure::UNAVAILABLE);
}

#[test]
fn a_server_notices_that_its_client_is_gone() {
    let served = Served::new();
    let connection = served.connect();
    begin(&connection, KEEP, b"");
    until("the call is there", || !served.kept.lock().is_empty());
    connection.close(None);
    until("the call is given up", || served.kept.lock()[0].connection().is_dead());
}

/// Whether an event loop's poller sees the descriptor within that time.
fn is_readable(fd: BorrowedFd<'_>, timeout: Duration) -> bool {
    let timeout = Timespec::try_from(timeout).expect("short");
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).expect("no signal") > 0
}

#[test]
fn an_event_loop_polls_a_descriptor_that_the_core_has_made() {
    let served = Served::new();
    let connection = served.connect();
    let fd = connection.poll_fd().expect("a descriptor");
    let expected = Expected { in_loop: true, ..Expected::default() };
    for round in 0..50 {
        let id = connection.begin(&request(ECHO, &[round]), expected).expect("the server is there");
        let end = Instant::now() + PATIENCE;
        while !connection.pump().contains(&id) {
            assert!(Instant::now() < end, "no reply comes");
            if connection.may_sleep() {
                assert!(is_readable(fd, PATIENCE), "round {round}: nobody wakes the loop");
                assert!(connection.on_readable());
            }
            connection.stay_awake();
        }
        assert_eq!(connection.arrived(id).expect("under way").expect("a reply").payload.to_vec(), [round]);
    }
}

#[test]
fn a_thread_sleeps_at_several_connections() {
    let served = Served::new();
    let (one, other) = (served.connect(), served.connect());
    let silent = begin(&one, KEEP, b"");
    for _ in 0..20 {
        let id = begin(&other, ECHO, b"first");
        let calls = [(Arc::clone(&one), silent), (Arc::clone(&other), id)];
        assert_eq!(wait_for_first(&calls, Some(Instant::now() + PATIENCE), &mut || true), Ok(()));
        assert_eq!(next(&other, id).payload.to_vec(), b"first");
    }
}
