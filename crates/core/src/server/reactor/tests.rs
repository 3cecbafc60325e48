//! What the reactor hands out for a client that stops reading and reads again, and to a thread that waits for a reply.

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

/// The thread that flushes holds the reactor, so an endless flush would stop the server.
#[test]
fn to_flush_what_can_never_be_sent_comes_to_an_end() {
    let scene = Scene::new(0);
    *scene.link.broken.lock() = true;
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        scene.server.reactor.lock().handle(TOKEN, false);
        done.send(scene.link.queued())
    });
    assert_eq!(ended.recv_timeout(Duration::from_secs(20)), Ok(0), "nothing is left that would have to be sent");
}

/// A client's call.
fn call(number: u32) -> Incoming {
    Incoming::new(FrameHead::new(Kind::Call, number), &[])
}

fn number(work: Option<Work>) -> Option<u32> {
    match work? {
        Work::Call(request) => Some(request.head.call),
        Work::Session(_) | Work::Release(_) => panic!("nobody asked for that"),
    }
}

#[test]
fn whoever_finds_nothing_has_begun_all_calls_that_waited_for_room() {
    let scene = Scene::new(3);
    let mut reactor = scene.server.reactor.lock();
    assert_eq!(number(reactor.poll()), None, "they wait until the client reads");
    scene.read();
    reactor.poll_events(Some(Duration::ZERO));
    let begun: Vec<_> = std::iter::from_fn(|| number(reactor.poll())).collect();
    assert_eq!(begun, [0, 1, 2]);
}

/// The reactor asks the poller in the middle of the wait, as after long handlers or a long message. The poller does not
/// report the same event again, so no event would end a sleep.
#[test]
fn nobody_falls_asleep_over_a_call_that_waited_for_room() {
    let scene = Scene::new(0);
    let mut reactor = scene.server.reactor.lock();
    for call in 0..3 {
        scene.call(call);
        reactor.poll_events(Some(Duration::ZERO));
        assert_eq!(number(reactor.poll()), None, "it waits until the client reads");
        scene.read();
        reactor.unpolled = FRAMES_PER_POLL;
        assert_eq!(number(reactor.wait_for(Some(Duration::ZERO))), Some(call));
        scene.send();
    }
}

/// A thread has sent what waited, over shared memory: then the reader of the ring has no reason to tell of room.
#[test]
fn calls_that_waited_begin_when_another_thread_has_made_room() {
    let scene = Scene::quiet_with(Chosen::over_memory(VecDeque::new()));
    scene.send();
    let mut reactor = scene.server.reactor.lock();
    scene.call(7);
    reactor.poll_events(Some(Duration::ZERO));
    assert_eq!(number(reactor.poll()), None, "it waits until the client reads");
    assert!(reactor.arm(), "nobody looks at the client any more");
    *scene.link.queued.lock() = 0;
    reactor.poll_events(Some(Duration::ZERO));
    assert_eq!(number(reactor.poll()), None, "nobody has told of it");
    scene.client.connection.note_look_again();
    assert_eq!(number(reactor.wait_for(None)), None, "it wakes, and looks again");
    assert_eq!(number(reactor.poll()), Some(7));
}

/// A client with requests that were deferred takes turns with the others.
#[test]
fn calls_that_waited_do_not_keep_others_waiting() {
    let scene = Scene::new(3);
    let mut reactor = scene.server.reactor.lock();
    assert_eq!(number(reactor.poll()), None);
    scene.read();
    reactor.poll_events(Some(Duration::ZERO));
    let other = Scene::new(0);
    other.read();
    other.link.frames.lock().extend((10..13).map(call));
    reactor.add_client(newcomer(&scene.server.shared, TOKEN + 1, &other.link));
    let begun: Vec<_> = std::iter::from_fn(|| number(reactor.poll())).collect();
    assert_eq!(begun, [10, 0, 11, 1, 12, 2]);
}

/// So many other clients of the same server, each with so many calls that it has sent. They live as long as what is
/// returned.
fn busy_others(reactor: &mut Reactor, clients: usize, calls: usize) -> Vec<Scene> {
    let others: Vec<_> = (0..clients).map(|_| Scene::new(0)).collect();
    for (token, other) in (TOKEN + 1..).zip(&others) {
        other.read();
        other.link.frames.lock().extend((0..calls).map(|_| call(1)));
        let newcomer = newcomer(&reactor.shared, token, &other.link);
        reactor.add_client(newcomer);
    }
    others
}

/// Clients that had nothing to say until now, and those that say more and more, take turns.
#[test]
fn whoever_calls_now_and_then_waits_for_one_call_of_the_others() {
    let scene = Scene::quiet();
    let mut reactor = scene.server.reactor.lock();
    let _others = busy_others(&mut reactor, 3, 3);
    assert_eq!(number(reactor.poll()), Some(1));
    scene.call(7);
    reactor.unpolled = FRAMES_PER_POLL;
    let begun: Vec<_> = std::iter::from_fn(|| number(reactor.poll())).collect();
    assert_eq!(begun.len(), 9);
    assert!(begun[..2].contains(&7), "{begun:?}");
}

/// Its turn among the others, in which nothing is found, must not be one that it waits for with its next call.
#[test]
fn whoever_calls_again_soon_does_not_wait_for_all_others() {
    let scene = Scene::quiet();
    let mut reactor = scene.server.reactor.lock();
    let _others = busy_others(&mut reactor, 12, 6);
    for own in 10..16 {
        scene.call(own);
        reactor.unpolled = FRAMES_PER_POLL;
        let begun: Vec<_> = (0..3).map(|_| number(reactor.poll())).collect();
        assert!(begun.contains(&Some(own)), "{own} has to wait: {begun:?}");
    }
}

/// Whoever says much is one of the others soon.
#[test]
fn whoever_says_much_takes_turns_with_those_who_do() {
    let scene = Scene::quiet();
    let mut reactor = scene.server.reactor.lock();
    let _others = busy_others(&mut reactor, 2, 100);
    assert_eq!(number(reactor.poll()), Some(1));
    scene.link.frames.lock().extend((0..100).map(|_| call(7)));
    scene.has_news();
    reactor.unpolled = FRAMES_PER_POLL;
    let begun: Vec<_> = (0..150).map(|_| number(reactor.poll()).expect("there are more")).collect();
    let own = begun.iter().filter(|number| **number == 7).count();
    assert!((50..60).contains(&own), "{own} of 150");
}

/// A thread that holds the interpreter comes back to let others have it, however much there is that is no request.
#[test]
fn a_look_ends_though_more_is_here() {
    let scene = Scene::quiet();
    let mut reactor = scene.server.reactor.lock();
    let cancel = || Incoming::new(FrameHead::new(Kind::Cancel, 1), &[]);
    scene.link.frames.lock().extend((0..3 * FRAMES_PER_POLL).map(|_| cancel()));
    scene.call(7);
    let mut looks = 0;
    loop {
        match reactor.look() {
            Look::More => looks += 1,
            Look::Nothing => panic!("there is a call"),
            Look::Work(work) => break assert_eq!(number(Some(work)), Some(7)),
        }
    }
    assert_eq!(looks, 3);
}

#[test]
fn who_has_work_is_not_told_to_sleep() {
    let scene = Scene::new(1);
    let mut reactor = scene.server.reactor.lock();
    assert_eq!(number(reactor.poll()), None);
    scene.read();
    reactor.poll_events(Some(Duration::ZERO));
    assert!(!reactor.arm() && !reactor.fall_asleep());
    assert_eq!(number(reactor.poll()), Some(0));
    assert_eq!(number(reactor.poll()), None);
    assert!(reactor.fall_asleep());
}

#[test]
fn who_waits_for_a_reply_leaves_work_that_has_come_to_others() {
    let scene = Scene::new(0);
    scene.read();
    scene.call(7);
    assert!(scene.server.shared.leadership.try_take());
    let mut leaves = 0;
    let received = scene.server.receive_as_mine(&mut || false, Some(Duration::from_secs(1)), || leaves += 1);
    assert!(!received && leaves == 1, "it sleeps now, until something has come for it");
    assert!(!scene.server.shared.leadership.is_mine());
    assert!(scene.server.shared.leadership.try_take(), "another worker may receive");
    assert_eq!(number(scene.server.reactor.lock().poll()), Some(7));
}

/// The thread that waits for the reply to a call of the client's object.
#[derive(Default)]
struct Caller {
    replies: Vec<u32>,
}

impl Awaited for Caller {
    fn is_over(&mut self) -> bool {
        !self.replies.is_empty()
    }

    fn take_in(&mut self, arrived: &mut Option<Incoming>) -> bool {
        self.replies.extend(arrived.take().map(|frame| frame.head.call));
        self.is_over()
    }

    fn sleep(&mut self) -> bool {
        unreachable!("it receives")
    }
}

/// The reply to a call that the server has made.
fn reply(number: u32) -> Incoming {
    let mut head = FrameHead::new(Kind::Reply, number);
    head.flags = flags::BACK;
    Incoming::new(head, &[])
}

/// Longer than a test may take: a thread that slept for so long would fail it.
const FOR_EVER: Duration = Duration::from_secs(3600);

#[test]
fn who_waits_for_a_reply_takes_it_from_its_connection_and_leaves_what_comes_behind_it() {
    let scene = Scene::quiet();
    let mut reactor = scene.server.reactor.lock();
    assert_eq!(number(reactor.poll()), None, "the client is not looked at any more");
    // The poller is told of nothing: both were read with one look.
    scene.link.frames.lock().extend([reply(3), call(4)]);
    let mut caller = Caller::default();
    let (work, over) = reactor.wait_for_reply(FOR_EVER, TOKEN, &mut caller);
    assert!(work.is_none() && over);
    assert_eq!(caller.replies, [3]);
    assert!(!reactor.arm(), "nobody sleeps over the rest");
    assert_eq!(number(reactor.poll()), Some(4));
}

#[test]
fn who_waits_for_a_reply_is_handed_a_call_that_comes_in_its_place() {
    let scene = Scene::new(0);
    scene.read();
    let mut reactor = scene.server.reactor.lock();
    scene.link.frames.lock().extend([call(4), reply(3)]);
    let mut caller = Caller::default();
    let (work, over) = reactor.wait_for_reply(FOR_EVER, TOKEN, &mut caller);
    assert_eq!((number(work), over), (Some(4), false));
    let (work, over) = reactor.wait_for_reply(FOR_EVER, TOKEN, &mut caller);
    assert!(work.is_none() && over);
    assert_eq!(caller.replies, [3]);
}

/// Frames that a client sends behind a frame that cannot be taken in yet are not taken in before it.
#[test]
fn who_waits_for_a_reply_does_not_read_on_where_reading_has_stopped() {
    let scene = Scene::new(0);
    let mut reactor = scene.server.reactor.lock();
    scene.link.frames.lock().extend([Incoming::new(FrameHead::new(Kind::Ping, 1), &[]), reply(3)]);
    assert!(reactor.poll().is_none(), "nothing more is read until the client reads the answer");
    let mut caller = Caller::default();
    let (work, over) = reactor.wait_for_reply(Duration::ZERO, TOKEN, &mut caller);
    assert!(work.is_none() && !over && caller.replies.is_empty());
    assert_eq!(scene.link.frames.lock().len(), 1);
}

/// The same, if reading stops while the thread spins.
#[test]
fn who_spins_for_a_reply_stops_where_reading_stops() {
    let scene = Scene::spinning(0, FOR_EVER);
    let mut reactor = scene.server.reactor.lock();
    reactor.poll_events(Some(Duration::ZERO));
    assert!(reactor.poll().is_none());
    scene.link.frames.lock().extend([Incoming::new(FrameHead::new(Kind::Ping, 1), &[]), reply(3)]);
    let mut caller = Caller::default();
    let (work, over) = reactor.wait_for_reply(FOR_EVER, TOKEN, &mut caller);
    assert!(work.is_none() && !over && caller.replies.is_empty());
    assert_eq!(scene.link.frames.lock().len(), 1);
}

#[test]
fn who_waits_for_a_reply_notices_the_end_of_its_connection() {
    let scene = Scene::new(0);
    scene.read();
    *scene.link.gone.lock() = true;
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut reactor = scene.server.reactor.lock();
        let (work, over) = reactor.wait_for_reply(FOR_EVER, TOKEN, &mut Caller::default());
        done.send(work.is_none() && !over && scene.client.connection.is_dead())
    });
    assert_eq!(ended.recv_timeout(Duration::from_secs(20)), Ok(true), "it is to look whether its call has ended");
}

/// A worker may be about to look at the poller when the server is closed.
#[test]
fn what_comes_after_the_close_is_left_to_who_stops_the_server() {
    let scene = Scene::new(0);
    scene.server.close();
    for number in 0..2 {
        scene.server.shared.mailbox.released(Box::new(number));
    }
    let mut reactor = scene.server.reactor.lock();
    reactor.poll_events(Some(Duration::ZERO));
    assert!(reactor.poll().is_none());
    drop(reactor);
    assert!(std::iter::from_fn(|| scene.server.take_hook()).count() == 2 && scene.server.has_no_hooks());
}

/// A worker may have received work, and not handed it out yet, when the server is closed.
#[test]
fn what_is_handed_out_after_the_close_is_left_to_who_stops_the_server() {
    let scene = Scene::new(0);
    scene.server.shared.mailbox.released(Box::new(()));
    let release = scene.server.take_hook().expect("one is there");
    scene.server.stop(Duration::ZERO, false);
    scene.server.close();
    assert!(scene.server.shared.crew.begin(), "another handler runs, and one may");
    assert!(scene.server.accept(release).is_none());
    assert!(scene.server.take_hook().is_some());
}

/// Its frames may be long, and take much longer to decompress.
#[test]
fn of_a_client_that_has_hung_up_and_leaves_no_work_nothing_is_read() {
    for leaves_work in [true, false] {
        let link = if leaves_work { Chosen::new } else { Chosen::without_work };
        let scene = Scene::quiet_with(link(VecDeque::new()));
        scene.link.frames.lock().push_back(call(7));
        *scene.link.gone.lock() = true;
        let mut reactor = scene.server.reactor.lock();
        reactor.handle(TOKEN, true);
        assert_eq!(number(reactor.poll()), None, "nobody waits for the answer");
        assert!(scene.client.connection.is_dead());
        assert_eq!(scene.link.frames.lock().is_empty(), leaves_work);
    }
}

/// A fault is whatever panics. The client that it concerns must not wait for ever, and nobody else.
#[test]
fn a_fault_over_what_a_client_sends_costs_that_client_its_connection() {
    for faulty in [Faulty::Reading, Faulty::Releasing, Faulty::Sending] {
        let scene = Scene::quiet();
        let (other, _) = scene.other();
        scene.link.frames.lock().push_back(Incoming::new(FrameHead::new(Kind::Ping, 1), &[]));
        scene.has_news();
        other.frames.lock().push_back(call(7));
        *scene.link.faulty.lock() = faulty;
        let mut found = Vec::new();
        for _ in 0..3 {
            let _ = contained(|| found.extend(number(scene.server.reactor.lock().wait_for(Some(Duration::ZERO)))));
        }
        assert_eq!(found, [7], "{faulty:?}");
        assert!(scene.is_dropped_for_a_fault(), "{faulty:?}");
    }
}

#[test]
fn a_fault_over_one_event_loses_no_other_event() {
    let scene = Scene::new(0);
    let (other, token) = scene.other();
    assert!(scene.server.reactor.lock().poll().is_none(), "both are waited for");
    other.frames.lock().push_back(call(7));
    scene.read();
    *scene.link.faulty.lock() = Faulty::Flushing;
    let flags = SOCKET | EventFlags::OUT;
    scene.server.shared.rewatch(other.signal(), token, flags).expect("watched");
    let _ = contained(|| scene.server.reactor.lock().poll_events(Some(Duration::ZERO)));
    assert_eq!(number(scene.server.reactor.lock().poll()), Some(7));
    assert!(scene.is_dropped_for_a_fault());
}

#[test]
fn a_fault_over_a_client_that_was_set_aside_ends_it() {
    let scene = Scene::new(0);
    scene.link.frames.lock().push_back(Incoming::new(FrameHead::new(Kind::Ping, 1), &[]));
    assert!(scene.server.reactor.lock().poll().is_none(), "nothing more is read until the client reads the answer");
    scene.link.frames.lock().push_back(Incoming::new(FrameHead::new(Kind::Ping, 1), &[]));
    scene.read();
    *scene.link.faulty.lock() = Faulty::Reading;
    scene.server.reactor.lock().poll_events(Some(Duration::ZERO));
    assert!(scene.server.reactor.lock().poll().is_none());
    assert!(scene.is_dropped_for_a_fault());
}

#[test]
fn a_call_whose_handler_has_a_fault_is_answered() {
    let scene = Scene::quiet();
    let mut head = FrameHead::new(Kind::Call, 5);
    head.method = 1;
    scene.link.frames.lock().push_back(Incoming::new(head, &[]));
    scene.has_news();
    let Some(work) =
        scene.server.reactor.lock().wait_for(Some(Duration::ZERO)).or_else(|| scene.server.reactor.lock().poll())
    else {
        panic!("there is a call")
    };
    let _ = contained(|| scene.server.accept(work));
    assert_eq!(scene.link.queued(), MUCH, "one answer was sent");
    assert_eq!(scene.said.lock().len(), 1);
    assert!(!scene.client.connection.is_dead());
    assert_eq!(scene.server.shared.in_flight.load(crate::sync::Ordering::Relaxed), 0);
}

/// Workers take work out of the queue with the interpreter held. What they ask of the work takes locks of its own.
#[test]
fn who_takes_work_out_of_the_queue_does_not_hold_it_while_it_looks_at_the_work() {
    let scene = Scene::quiet();
    let shared = &scene.server.shared;
    assert!(shared.crew.begin(), "another handler runs, and one may");
    scene.call(1);
    scene.call(2);
    for _ in 0..2 {
        let work = scene.server.reactor.lock().poll().expect("a call has come");
        assert!(scene.server.accept(work).is_none(), "it waits");
    }
    scene.link.frames.lock().push_back(Incoming::new(FrameHead::new(Kind::Cancel, 1), &[]));
    scene.has_news();
    assert_eq!(number(scene.server.reactor.lock().poll()), None);
    shared.crew.end();
    let server = Arc::new(scene.server);
    let mut worker = Worker::new(Arc::clone(&server));
    assert_eq!(number(worker.try_next()), Some(2), "the first was cancelled");
    worker.finish(None);
    assert!(server.shared.crew.begin(), "the place is free again");
}

/// A place is free again as soon as the work is through, and that of who waits for a reply at once.
#[test]
fn as_many_handlers_run_as_may_whoever_receives() {
    let scene = Scene::quiet();
    scene.call(1);
    let server = Arc::new(scene.server);
    let crew = &server.shared.crew;
    let (mut first, mut second) = (Worker::new(Arc::clone(&server)), Worker::new(Arc::clone(&server)));
    assert!(crew.begin());
    let work = server.reactor.lock().poll().expect("a call has come");
    assert!(server.accept(work).is_none(), "it waits, though a worker is free and nobody has the lead");
    assert!(first.try_next().is_none() && second.try_next().is_none());
    assert!(crew.begin_waiting(), "somebody is to run the work");
    assert_eq!(number(first.try_next()), Some(1));
    assert!(second.try_next().is_none());
    crew.end_waiting();
    first.finish(None);
    assert!(!crew.begin(), "who has waited goes on");
}

/// The worker keeps the interpreter meanwhile, so nobody else may need its CPU.
#[test]
fn who_looks_for_a_moment_does_so_only_where_it_pays() {
    let scene = Scene::spinning(0, Duration::from_secs(1));
    scene.read();
    let (link, token) = (Chosen::over_memory(VecDeque::new()), TOKEN + 1);
    *link.pays.lock() = true;
    let mut reactor = scene.server.reactor.lock();
    reactor.poll_events(Some(Duration::ZERO));
    assert!(number(reactor.poll()).is_none() && reactor.arm(), "nothing is to be done");
    reactor.add_client(newcomer(&scene.server.shared, token, &link));
    assert!(matches!(reactor.look_soon(), Look::Nothing), "it comes to an end");
    link.frames.lock().push_back(call(1));
    *link.pays.lock() = false;
    assert!(matches!(reactor.look_soon(), Look::Nothing), "the client sleeps");
    *link.pays.lock() = true;
    let Look::Work(work) = reactor.look_soon() else { panic!("a call has come") };
    assert_eq!(number(Some(work)), Some(1));
    scene.call(2);
    reactor.poll_events(Some(Duration::ZERO));
    link.frames.lock().push_back(call(3));
    assert!(matches!(reactor.look_soon(), Look::Nothing), "a client over a socket may need this CPU");
}

/// A method counts as slow after two slow handlers in a row, and no more after a quick one.
#[test]
fn a_worker_leaves_the_lead_before_a_handler_that_will_be_slow() {
    let scene = Scene::quiet();
    (1..=80).for_each(|number| scene.call(number));
    let server = Arc::new(scene.server);
    let leadership = &server.shared.leadership;
    let mut worker = Worker::new(Arc::clone(&server));
    // Whether the worker holds the lead while the handler runs.
    let mut run = |slow: bool| {
        assert!(leadership.is_mine() || leadership.try_take());
        assert!(number(worker.try_next()).is_some());
        worker.begin(&|| false);
        let leads = leadership.is_mine();
        if slow {
            // As the watcher does.
            leadership.release();
        }
        worker.finish(None);
        leads
    };
    leadership.park_nobody();
    assert!(run(true) && run(true));
    leadership.park_nobody();
    assert!(!run(true), "it was slow twice in a row");
    let mut quick = || {
        leadership.park_nobody();
        run(false)
    };
    assert!((0..40).any(|_| quick()), "it was quick for a while");
    leadership.close();
    assert!((0..3).all(|_| run(true)), "nobody is parked");
}

/// The handler of a call may wait for a thread that takes the call's items, and no other thread receives here.
#[test]
fn who_takes_items_beside_the_handler_receives_and_leaves_the_lead_with_the_last_one() {
    let scene = Scene::quiet();
    let (server, connection) = (&scene.server, Arc::clone(&scene.client.connection));
    let leadership = &server.shared.leadership;
    let new = |id| Arc::new(ServerCall::new(Arc::clone(&connection), id, None, None, MethodRouting::default()));
    let (own, others) = (new(3), new(5));
    own.handle_here();
    scene.client.calls.lock().insert(&own);
    assert!(leadership.try_take() && leadership.busy().is_some());
    scene.link.frames.lock().extend([Kind::Item, Kind::End].map(|kind| Incoming::new(FrameHead::new(kind, 3), &[])));
    scene.has_news();
    let elsewhere = |call: &ServerCall, until| {
        let next = || server.next_item(call, Some(until));
        std::thread::scope(|scope| scope.spawn(|| [next(), next()]).join()).expect("no panic")
    };
    let late = elsewhere(&others, Instant::now());
    assert!(matches!(late, [NextItem::Late, NextItem::Late]), "another handler keeps it: {late:?}");
    assert!(leadership.is_mine());
    // Long enough on any machine: without the lead it would wait to the end.
    let items = elsewhere(&own, Instant::now() + Duration::from_secs(60));
    assert!(matches!(items, [NextItem::Item(_), NextItem::End]), "{items:?}");
    assert!(!leadership.back(), "the handler has lost it");
    assert!(leadership.try_take(), "the other thread is through with it");
}

/// How many locks its thread held when it was told of news.
#[derive(Debug, Default)]
struct Told(Mutex<Vec<usize>>);

impl crate::server::CallObserver for Told {
    fn changed(&self, _: &Arc<ServerCall>) {
        let held = held_here();
        self.0.lock().push(held);
    }
}

/// Who is told may end the call, which takes it out of the table.
#[test]
fn calls_are_told_of_room_without_a_lock() {
    let (scene, told) = (Scene::new(0), Arc::new(Told::default()));
    let connection = Arc::clone(&scene.client.connection);
    assert!(!connection.has_room_or_tells());
    let observer = Some(Arc::clone(&told) as _);
    let call = ServerCall::new(connection, 3, observer, None, MethodRouting::default());
    assert!(scene.client.calls.lock().insert(&Arc::new(call)));
    *scene.link.queued.lock() = 0;
    let reactor = scene.server.reactor.lock();
    let held = held_here();
    scene.client.flush();
    drop(reactor);
    assert_eq!(std::mem::take(&mut *told.0.lock()), [held]);
}
