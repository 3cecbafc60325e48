//! Workers take what the reactor hands out, or leave it to each other.

use super::*;

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
        assert!(leadership.lead.is_held() || leadership.lead.try_take());
        assert!(number(worker.try_next()).is_some());
        worker.begin(&|| false);
        let leads = leadership.lead.is_held();
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
    assert!(leadership.lead.try_take() && leadership.busy().is_some());
    scene.link.frames.lock().extend([Kind::Item, Kind::End].map(|kind| Incoming::new(FrameHead::new(kind, 3), &[])));
    scene.has_news();
    let elsewhere = |call: &ServerCall, until| {
        let next = || server.next_item(call, Some(until));
        std::thread::scope(|scope| scope.spawn(|| [next(), next()]).join()).expect("no panic")
    };
    let late = elsewhere(&others, Instant::now());
    assert!(matches!(late, [NextItem::Late, NextItem::Late]), "another handler keeps it: {late:?}");
    assert!(leadership.lead.is_held());
    // Long enough on any machine: without the lead it would wait to the end.
    let items = elsewhere(&own, Instant::now() + Duration::from_secs(60));
    assert!(matches!(items, [NextItem::Item(_), NextItem::End]), "{items:?}");
    assert!(!leadership.lead.back(), "the handler has lost it");
    assert!(leadership.lead.try_take(), "the other thread is through with it");
}
