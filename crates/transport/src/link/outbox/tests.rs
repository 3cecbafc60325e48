use crate::limits::budget::Budget;
use crate::link::outbox::*;
use crate::sync::AtomicBool;

/// The writes, one entry for each, and the time of the test's clock.
#[derive(Default)]
struct Pipe {
    writes: Vec<Vec<u8>>,
    now: u64,
    full: bool,
}

impl Sink for Pipe {
    const JOINS: bool = true;

    fn now(&self) -> u64 {
        self.now
    }

    fn put(&mut self, frame: &Frame<'_>, sent: &mut usize, most: usize) -> Result<Flushed, LinkError> {
        if self.full {
            return Ok(Flushed::Full);
        }
        let all = [frame.head, &frame.payload.concat()].concat();
        let end = all.len().min(sent.saturating_add(most));
        if end > *sent {
            self.writes.push(all[*sent..end].to_vec());
        }
        *sent = end;
        Ok(if end < all.len() { Flushed::Part } else { Flushed::All })
    }
}

fn outbox() -> (Outbox<Pipe>, Arc<Budget>) {
    let budget = Budget::new(1 << 20);
    (Outbox::new(Pipe::default(), Account::of(&budget, 1 << 10)), budget)
}

fn send(outbox: &Outbox<Pipe>, name: &str, room: Room<'_>) -> Sent {
    outbox.send(&Frame::new(name.as_bytes(), &[b"."]), room).expect("it is open")
}

fn written(outbox: &Outbox<Pipe>) -> Vec<String> {
    let writes = outbox.peek(|pipe| std::mem::take(&mut pipe.writes)).expect("nobody uses it");
    writes.into_iter().map(|write| String::from_utf8(write).expect("names")).collect()
}

#[test]
fn replies_go_out_with_the_last_one() {
    let (outbox, budget) = outbox();
    outbox.cork();
    assert_eq!([send(&outbox, "a", Room::Later), send(&outbox, "b", Room::Later)], [Sent::Out; 2]);
    assert!(written(&outbox).is_empty() && outbox.queued() > 0);
    outbox.uncork();
    assert!(written(&outbox).is_empty(), "one is to come");
    assert_eq!(send(&outbox, "c", Room::Later), Sent::Out);
    assert_eq!(written(&outbox), ["a.b.c."]);
    assert_eq!((outbox.queued(), budget.used()), (0, 0));
    send(&outbox, "d", Room::Later);
    assert_eq!(written(&outbox), ["d."], "a single one does not wait");
}

#[test]
fn they_go_out_when_nothing_more_is_at_hand() {
    let (outbox, _) = outbox();
    outbox.cork();
    send(&outbox, "a", Room::Later);
    assert_eq!(outbox.release(), Ok(Sent::Out));
    send(&outbox, "b", Room::Later);
    assert_eq!(outbox.release(), Ok(Sent::Out));
    assert_eq!(written(&outbox), ["a.", "b."]);
}

#[test]
fn they_go_out_when_the_first_is_old_or_there_are_many() {
    let (outbox, _) = outbox();
    outbox.cork();
    send(&outbox, "a", Room::Later);
    outbox.peek(|pipe| pipe.now += TOGETHER_NS);
    send(&outbox, "b", Room::Later);
    assert_eq!(written(&outbox), ["a.b."]);
    let name = "n".repeat(SMALL - 1);
    for _ in 0..TOGETHER_BYTES / SMALL - 1 {
        send(&outbox, &name, Room::Later);
    }
    assert!(written(&outbox).is_empty());
    send(&outbox, &name, Room::Later);
    assert_eq!(written(&outbox).len(), 1);
}

#[test]
fn items_go_out_with_those_that_follow() {
    let (outbox, budget) = outbox();
    assert_eq!([send(&outbox, "a", Room::Together), send(&outbox, "b", Room::Together)], [Sent::KeptBack; 2]);
    assert!(written(&outbox).is_empty() && outbox.queued() > 0);
    outbox.peek(|pipe| pipe.now += TOGETHER_NS);
    assert_eq!(send(&outbox, "c", Room::Together), Sent::Out, "the first has waited for long");
    assert_eq!(written(&outbox), ["a.b.c."]);
    send(&outbox, "d", Room::Together);
    assert_eq!(send(&outbox, "e", Room::Later), Sent::Out, "what waits for nothing takes them along");
    assert_eq!(written(&outbox), ["d.e."]);
    send(&outbox, "f", Room::Together);
    assert_eq!(outbox.release(), Ok(Sent::Out));
    assert_eq!(written(&outbox), ["f."]);
    outbox.peek(|pipe| pipe.full = true);
    send(&outbox, "g", Room::Together);
    assert_eq!(outbox.release(), Ok(Sent::Queued), "without room they wait as others do");
    assert_eq!(send(&outbox, "h", Room::Together), Sent::Queued);
    outbox.peek(|pipe| pipe.full = false);
    assert_eq!(outbox.flush(), Ok(Flushed::All));
    assert_eq!(written(&outbox).concat(), "g.h.");
    assert_eq!((outbox.queued(), budget.used()), (0, 0));
}

#[test]
fn what_cannot_wait_goes_behind_them() {
    let (outbox, budget) = outbox();
    outbox.cork();
    send(&outbox, "a", Room::Later);
    send(&outbox, "b", Room::Wait(&mut || panic!("there is room")));
    send(&outbox, "c", Room::Later);
    send(&outbox, "d", Room::Now);
    send(&outbox, "e", Room::Later);
    send(&outbox, &"f".repeat(SMALL), Room::Later);
    assert_eq!(written(&outbox).concat().replace('f', ""), "a.b.c.d.e..");
    assert_eq!((outbox.queued(), budget.used()), (0, 0));
}

#[test]
fn what_waits_goes_out_in_parts() {
    let budget = Budget::new(64 << 20);
    let outbox = Outbox::new(Pipe::default(), Account::of(&budget, 8 << 20));
    outbox.peek(|pipe| pipe.full = true);
    let long = vec![b'l'; 3 * PART];
    assert_eq!(outbox.send(&Frame::new(b"one", &[&long]), Room::Later), Ok(Sent::Queued));
    for name in ["two", "three"] {
        assert_eq!(send(&outbox, name, Room::Later), Sent::Queued);
    }
    outbox.peek(|pipe| pipe.full = false);
    let mut all = String::new();
    for done in [Flushed::Part, Flushed::Part, Flushed::Part, Flushed::All] {
        assert_eq!(outbox.flush(), Ok(done));
        let part = written(&outbox).concat();
        assert!(part.len() <= PART);
        all += &part;
    }
    assert_eq!(all.replace('l', ""), "onetwo.three.");
    assert_eq!((all.len(), outbox.queued(), budget.used()), (3 + long.len() + 10, 0, 0));
}

#[test]
fn without_room_they_wait_as_others_do() {
    let (outbox, budget) = outbox();
    outbox.peek(|pipe| pipe.full = true);
    outbox.cork();
    send(&outbox, "a", Room::Later);
    assert_eq!(outbox.release(), Ok(Sent::Queued));
    outbox.cork();
    assert_eq!(send(&outbox, "b", Room::Later), Sent::Queued);
    outbox.peek(|pipe| pipe.full = false);
    assert_eq!(outbox.flush(), Ok(Flushed::All));
    assert_eq!(written(&outbox).concat(), "a.b.");
    assert_eq!((outbox.queued(), budget.used()), (0, 0));
}

/// Takes a frame in many parts, and gets on with it only when it is told to.
struct Slow {
    told: Arc<AtomicBool>,
    begun: Arc<AtomicBool>,
    writes: Vec<u8>,
}

impl Sink for Slow {
    const JOINS: bool = true;

    fn put(&mut self, frame: &Frame<'_>, sent: &mut usize, _most: usize) -> Result<Flushed, LinkError> {
        let len = frame.head.len() + frame.payload_len;
        if len > PART && !self.told.load(Ordering::SeqCst) {
            self.begun.store(true, Ordering::SeqCst);
            return Ok(Flushed::Part);
        }
        self.writes.push(frame.head[0]);
        *sent = len;
        Ok(Flushed::All)
    }
}

/// Sends a long frame, in the middle of which another thread does something. Returns how the long one was sent, and the
/// first bytes of all that was written.
fn in_the_middle(act: impl FnOnce(&Outbox<Slow>)) -> (Result<Sent, LinkError>, Vec<u8>) {
    let budget = Budget::new(64 << 20);
    let [told, begun] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let sink = Slow { told: Arc::clone(&told), begun: Arc::clone(&begun), writes: Vec::new() };
    let outbox = Outbox::new(sink, Account::of(&budget, 8 << 20));
    let long = vec![b'l'; PART + 1];
    let sent = std::thread::scope(|scope| {
        let sender = scope.spawn(|| outbox.send(&Frame::new(b"l", &[&long]), Room::Later));
        while !begun.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        act(&outbox);
        told.store(true, Ordering::SeqCst);
        sender.join().expect("no panic")
    });
    assert_eq!((outbox.queued(), budget.used()), (0, 0));
    (sent, outbox.peek(|sink| std::mem::take(&mut sink.writes)).expect("nobody uses it"))
}

#[test]
fn others_get_the_lock_in_the_middle_of_a_long_frame() {
    let all = in_the_middle(|outbox| {
        assert_eq!(outbox.flush(), Ok(Flushed::All), "nothing waits");
        assert_eq!(outbox.release(), Ok(Sent::Out));
    });
    assert_eq!(all, (Ok(Sent::Out), b"l".to_vec()));
}

#[test]
fn what_comes_in_the_middle_of_a_long_frame_goes_out_behind_it() {
    let all = in_the_middle(|outbox| {
        for name in [b"a", b"b"] {
            assert_eq!(outbox.send(&Frame::new(name, &[b"."]), Room::Later), Ok(Sent::Queued));
        }
    });
    assert_eq!(all, (Ok(Sent::Out), b"lab".to_vec()));
}

#[test]
fn who_flushed_in_the_middle_of_a_long_frame_is_told_again() {
    let all = in_the_middle(|outbox| {
        assert_eq!(outbox.send(&Frame::new(b"a", &[b"."]), Room::Later), Ok(Sent::Queued));
        assert_eq!(outbox.flush(), Ok(Flushed::Full));
    });
    assert_eq!(all, (Ok(Sent::LookAgain), b"la".to_vec()));
}

#[test]
fn who_closes_in_the_middle_of_a_long_frame_ends_it() {
    let all = in_the_middle(Outbox::close);
    assert_eq!(all, (Err(LinkError::Closed), Vec::new()));
}

/// Finds no room at first, and notes what others see waiting whenever a frame goes out.
#[derive(Default)]
struct Seen {
    fulls: usize,
    outbox: Option<std::sync::Weak<Outbox<Self>>>,
    waiting: Vec<usize>,
}

impl Sink for Seen {
    fn put(&mut self, frame: &Frame<'_>, sent: &mut usize, _most: usize) -> Result<Flushed, LinkError> {
        if let Some(left) = self.fulls.checked_sub(1) {
            self.fulls = left;
            return Ok(Flushed::Full);
        }
        *sent = frame.head.len() + frame.payload_len;
        self.waiting.extend(self.outbox.as_ref().and_then(std::sync::Weak::upgrade).map(|outbox| outbox.queued()));
        Ok(Flushed::All)
    }
}

fn seen(fulls: usize) -> (Arc<Outbox<Seen>>, impl Fn(usize)) {
    let outbox = Arc::new(Outbox::new(Seen::default(), Account::of(&Budget::new(64 << 20), 8 << 20)));
    let weak = Arc::downgrade(&outbox);
    outbox.peek(|sink| *sink = Seen { fulls, outbox: Some(weak), waiting: Vec::new() });
    let sink = Arc::clone(&outbox);
    (outbox, move |fulls| sink.peek(|sink| sink.fulls = fulls).expect("nobody uses it"))
}

#[test]
fn what_goes_out_in_the_same_breath_is_never_seen_to_wait() {
    let (outbox, _) = seen(1);
    let long = vec![b'l'; 2 * PART];
    assert_eq!(outbox.send(&Frame::new(b"l", &[&long]), Room::Later), Ok(Sent::Out));
    assert_eq!(outbox.peek(|sink| std::mem::take(&mut sink.waiting)), Some(vec![0]));
}

#[test]
fn who_sends_what_others_queued_says_so() {
    let (outbox, set_fulls) = seen(1);
    let short = Frame::new(b"a", &[b"."]);
    assert_eq!(outbox.send(&short, Room::Later), Ok(Sent::Queued));
    assert_eq!(outbox.send(&short, Room::Now), Ok(Sent::LookAgain));
    set_fulls(1);
    assert_eq!(outbox.send(&short, Room::Later), Ok(Sent::Queued));
    assert_eq!(outbox.send(&short, Room::Wait(&mut || Ok(()))), Ok(Sent::LookAgain));
    assert_eq!(outbox.queued(), 0);
    assert_eq!(outbox.send(&short, Room::Wait(&mut || panic!("there is room"))), Ok(Sent::Out));
}
