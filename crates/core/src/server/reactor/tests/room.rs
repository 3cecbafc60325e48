//! What the reactor hands out for a client that stops reading and reads again.

use nearcall_transport::{Account, Charge};

use super::*;

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

/// Looks once a second, until somebody is hung up on: one call finds no room all the time. `goes_on` is what clients do in a
/// second. Returns how often it was looked, and who is left.
fn look_while_short(scene: &Scene, mut goes_on: impl FnMut()) -> (u32, Vec<u64>) {
    let newcomer = Account::of(&scene.server.shared.budget, 4 << 20);
    let mut reactor = scene.server.reactor.lock();
    let mut looks = 0;
    while reactor.connections.len() == 2 {
        assert!(looks < 20, "nobody is hung up on");
        assert!(newcomer.charge(4 << 20).is_none(), "there is no room");
        goes_on();
        if reactor.shortage.is_some() {
            reactor.look_at_shortage();
        } else {
            reactor.note_shortage();
        }
        looks += 1;
    }
    (looks, reactor.connections.keys().copied().collect())
}

/// What this client keeps, bytes that wait for it.
fn keep(scene: &Scene, token: u64, bytes: usize) -> Charge {
    scene.server.reactor.lock().connections[&token].connection.items_account().charge_anyway(bytes)
}

/// One client keeps most, and goes on; of what the other keeps comes a byte now and then.
#[test]
fn who_hardly_goes_on_is_hung_up_on_and_the_log_warns_of_it() {
    let scene = Scene::quiet();
    let (_, token) = scene.other();
    let (mut trickles, mut goes_on) = (keep(&scene, TOKEN, 1 << 29), keep(&scene, token, 1 << 30));
    let (looks, left) = look_while_short(&scene, || {
        trickles.set(trickles.bytes() - 1);
        goes_on.set(goes_on.bytes() - (9 << 20));
    });
    assert_eq!((looks, left), (6, vec![token]), "both have five seconds");
    let warns = |notice: &Notice| matches!(notice, Notice::Line { serious: true, text } if text.contains("max_memory"));
    assert_eq!(scene.said.lock().iter().filter(|notice| warns(notice)).count(), 1);
}

#[test]
fn who_waits_with_little_is_not_worse_off_than_who_sends_a_byte_now_and_then() {
    let scene = Scene::quiet();
    let (_, token) = scene.other();
    let (_waits, mut trickles) = (keep(&scene, TOKEN, 400 << 20), keep(&scene, token, 1 << 30));
    let (_, left) = look_while_short(&scene, || trickles.set(trickles.bytes() - 1));
    assert_eq!(left, [TOKEN]);
}

#[test]
fn nobody_is_hung_up_on_if_calls_find_room_again() {
    let scene = Scene::quiet();
    let mut reactor = scene.server.reactor.lock();
    let kept = scene.client.connection.items_account().charge_anyway(1 << 30);
    let newcomer = Account::of(&scene.server.shared.budget, 4 << 20);
    assert!(newcomer.charge(4 << 20).is_none());
    reactor.note_shortage();
    drop(kept);
    let _kept = scene.client.connection.items_account().charge_anyway(1 << 29);
    while reactor.shortage.is_some() {
        assert!(newcomer.charge(4 << 20).is_some());
        reactor.look_at_shortage();
    }
    assert!(reactor.connections.contains_key(&TOKEN));
}
