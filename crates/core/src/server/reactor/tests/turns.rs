//! Clients take turns, whoever has much to say and whoever says something now and then.

use super::*;

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
