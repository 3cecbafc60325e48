//! What the reactor hands out to a thread that waits for a reply.

use super::*;

#[test]
fn who_waits_for_a_reply_leaves_work_that_has_come_to_others() {
    let scene = Scene::new(0);
    scene.read();
    scene.call(7);
    assert!(scene.server.shared.leadership.lead.try_take());
    let mut leaves = 0;
    let received = scene.server.receive_as_mine(&mut || false, None, Some(Duration::from_secs(1)), || leaves += 1);
    assert!(!received && leaves == 1, "it sleeps now, until something has come for it");
    assert!(!scene.server.shared.leadership.lead.is_held());
    assert!(scene.server.shared.leadership.lead.try_take(), "another worker may receive");
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
