//! What is left of a client or a server that ends, and what a fault of ours costs.

use super::*;

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
    scene.server.stop(Duration::ZERO, false, &mut || true);
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

/// Their handlers may go on for long, and look at nothing.
#[test]
fn items_of_a_call_that_was_given_up_are_freed_at_once() {
    let scene = Scene::quiet();
    let connection = Arc::clone(&scene.client.connection);
    let call = Arc::new(ServerCall::new(connection, 3, None, None, MethodRouting::default()));
    let frame = |kind| Incoming::new(FrameHead::new(kind, 3), &[7; 500]);
    let used = || scene.server.shared.budget.used();
    for _ in 0..1000 {
        call.take_in(frame(Kind::Item)).expect("there is credit");
    }
    assert!(used() > 500_000);
    for kind in [Kind::Cancel, Kind::Item] {
        call.take_in(frame(kind)).expect("it may be on the way");
        assert_eq!(used(), 0);
    }
}
