//! `crates/transport/src/link/outbox/mod.rs`

use std::sync::Arc;

use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::check;
use crate::errors::LinkError;
use crate::limits::budget::{Account, Budget};
use crate::link::outbox::{Frame, Outbox, Sink};
use crate::link::{Flushed, Room, Sent};

/// The bytes on their way to a slow reader: one at a time.
#[derive(Default)]
struct Pipe {
    state: Mutex<Flow>,
    changed: Condvar,
}

#[derive(Default)]
struct Flow {
    bytes: Vec<u8>,
    /// The writer wants to be told of room.
    asked: bool,
    gone: bool,
}

struct End(Arc<Pipe>);

impl Sink for End {
    fn put(&mut self, frame: &Frame<'_>, sent: &mut usize, most: usize) -> Result<Flushed, LinkError> {
        let all: Vec<u8> = frame.head.iter().chain(frame.payload.iter().copied().flatten()).copied().collect();
        let mut flow = self.0.state.lock().expect("no panic");
        if flow.gone {
            return Err(LinkError::Closed);
        }
        let mut wrote = 0;
        if *sent < all.len() && flow.bytes.is_empty() {
            flow.bytes.push(all[*sent]);
            *sent += 1;
            wrote = 1;
            self.0.changed.notify_all();
        }
        Ok(match *sent {
            sent if sent == all.len() => Flushed::All,
            _ if wrote == most => Flushed::Part,
            _ => Flushed::Full,
        })
    }

    fn ask_for_room(&mut self) -> bool {
        self.0.state.lock().expect("no panic").asked = true;
        true
    }
}

struct Connection {
    pipe: Arc<Pipe>,
    outbox: Outbox<End>,
    budget: Arc<Budget>,
}

impl Connection {
    fn new() -> Arc<Self> {
        let pipe = Arc::new(Pipe::default());
        let budget = Budget::new(1 << 20);
        let account = Account::of(&budget, 1 << 20);
        let outbox = Outbox::new(End(Arc::clone(&pipe)), Arc::clone(&account));
        let made = Self { pipe, outbox, budget };
        // Each atomic is used here first: other threads may see it from here on.
        let frame = Frame::new(&[], &[]);
        assert_eq!(made.outbox.send(&frame, Room::Now), Ok(Sent::Out));
        assert_eq!((made.outbox.queued(), made.budget.used()), (0, 0));
        drop(account.charge_anyway(0));
        Arc::new(made)
    }

    /// Sends a frame of two bytes: the name, which is a capital letter or a small one, and the next letter. Small ones
    /// are in the payload, which is long by that. `patience` is how often the sender waits for room before it gives up;
    /// with 0, the frame is queued instead.
    fn send(&self, name: u8, mut patience: u32) -> Result<Sent, LinkError> {
        let bytes = [name, name + 1];
        let (head, payload) = bytes.split_at(usize::from(name.is_ascii_uppercase()));
        let payload = [payload];
        let frame = Frame::new(head, &payload);
        if patience == 0 {
            let sent = self.outbox.send(&frame, Room::Later);
            if sent == Ok(Sent::LookAgain) {
                // In place of the reader, who was told too soon.
                self.outbox.flush()?;
            }
            return sent;
        }
        let mut blocked = || {
            patience -= 1;
            if patience == 0 {
                return Err(LinkError::DeadlinePassed);
            }
            let mut flow = self.pipe.state.lock().expect("no panic");
            while !flow.bytes.is_empty() && !flow.gone {
                flow = self.pipe.changed.wait(flow).expect("no panic");
            }
            drop(flow);
            // The room may be for another sender, which is in the middle of a frame.
            thread::yield_now();
            Ok(())
        };
        let sent = self.outbox.send(&frame, Room::Wait(&mut blocked));
        if matches!(sent, Ok(Sent::Queued | Sent::LookAgain)) {
            // As every sender must that gets `Queued`.
            self.outbox.flush()?;
        }
        sent
    }

    /// Reads that many bytes. When it has made room, it flushes if it was asked to, or `always`.
    fn read(&self, bytes: usize, always: bool) -> Vec<u8> {
        let mut read = Vec::new();
        while read.len() < bytes {
            let mut flow = self.pipe.state.lock().expect("no panic");
            while flow.bytes.is_empty() {
                flow = self.pipe.changed.wait(flow).expect("no panic");
            }
            read.append(&mut flow.bytes);
            let asked = std::mem::take(&mut flow.asked);
            self.pipe.changed.notify_all();
            drop(flow);
            if asked || always {
                self.outbox.flush().expect("the reader is there");
            }
        }
        read
    }

    /// The reader goes away.
    fn leave(&self) {
        self.pipe.state.lock().expect("no panic").gone = true;
        self.pipe.changed.notify_all();
        self.outbox.close();
    }
}

/// Each frame arrives once and whole, and the frames of one sender arrive in order.
fn whole(read: &[u8], orders: &[&[u8]]) {
    let mut names = Vec::new();
    for frame in read.chunks(2) {
        assert_eq!(frame[1], frame[0] + 1, "a frame is torn: {read:?}");
        names.push(frame[0]);
    }
    for order in orders {
        let came: Vec<u8> = names.iter().copied().filter(|name| order.contains(name)).collect();
        assert_eq!(&came, order);
    }
    assert_eq!(names.len(), orders.iter().map(|order| order.len()).sum::<usize>());
}

/// Two threads send beside a slow reader, who flushes when asked or `always`; `patience` as in [`Connection::send`].
fn two_send(first: &'static [(u8, u32)], second: &'static [(u8, u32)], always: bool) {
    let connection = Connection::new();
    let threads = [first, second].map(|frames| {
        let connection = Arc::clone(&connection);
        thread::spawn(move || {
            for &(name, patience) in frames {
                connection.send(name, patience).expect("the reader is there");
            }
        })
    });
    let read = connection.read(2 * (first.len() + second.len()), always);
    for thread in threads {
        thread.join().expect("no panic");
    }
    let orders = [first, second].map(|frames| frames.iter().map(|&(name, _)| name).collect::<Vec<_>>());
    whole(&read, &[&orders[0], &orders[1]]);
    assert_eq!((connection.outbox.queued(), connection.budget.used()), (0, 0));
}

const FOR_EVER: u32 = u32::MAX;

/// Queued frames are flushed when the reader tells of room, and none stays behind.
#[test]
fn what_waits_goes_out() {
    check(Some(2), || two_send(&[(b'A', 0), (b'C', 0)], &[(b'E', 0)], false));
}

/// The same for frames that are copied without the lock, and for what comes meanwhile.
#[test]
fn what_is_copied_goes_out() {
    check(Some(2), || two_send(&[(b'a', 0)], &[(b'c', 0)], false));
}

/// Nothing comes between the parts of a frame while the rest is copied.
#[test]
fn what_is_copied_is_not_interrupted() {
    check(Some(2), || two_send(&[(b'a', 0)], &[(b'E', 0)], false));
}

/// A reader that flushes without being asked does not interrupt it either.
#[test]
fn what_is_copied_is_not_interrupted_by_a_flush() {
    check(Some(2), || two_send(&[(b'a', 0)], &[(b'E', 0)], true));
}

/// Frames that come in the middle of a long one wait behind it.
#[test]
fn a_patient_sender_is_not_interrupted() {
    check(Some(3), || two_send(&[(b'A', FOR_EVER)], &[(b'C', 0), (b'E', 0)], false));
}

/// A reader that flushes without being asked does not interrupt the sender either.
#[test]
fn a_patient_sender_is_not_interrupted_by_a_flush() {
    check(Some(2), || two_send(&[(b'A', FOR_EVER)], &[(b'C', 0)], true));
}

#[test]
fn two_patient_senders_take_turns() {
    check(Some(2), || two_send(&[(b'A', FOR_EVER)], &[(b'C', FOR_EVER)], false));
}

/// A sender that gives up in the middle of a frame leaves its rest to the queue, in front of later frames.
#[test]
fn the_rest_of_a_frame_goes_out() {
    check(Some(2), || {
        let connection = Connection::new();
        let other = Arc::clone(&connection);
        let behind = thread::spawn(move || other.send(b'C', 0));
        let sent = connection.send(b'A', 1);
        let read = match sent {
            Ok(_) => connection.read(4, false),
            // No byte of the frame was out.
            Err(error) => {
                assert_eq!(error, LinkError::DeadlinePassed);
                connection.read(2, false)
            }
        };
        behind.join().expect("no panic").expect("it waits at most");
        whole(&read, if read.len() == 4 { &[b"A", b"C"] } else { &[b"C"] });
        assert_eq!((connection.outbox.queued(), connection.budget.used()), (0, 0));
    });
}

/// A reader that goes away leaves no sender waiting, and no frame kept.
#[test]
fn nobody_waits_for_a_reader_that_is_gone() {
    check(Some(2), || {
        let connection = Connection::new();
        let threads: Vec<_> = [(b'A', FOR_EVER), (b'C', 0)]
            .into_iter()
            .map(|(name, patience)| {
                let connection = Arc::clone(&connection);
                thread::spawn(move || connection.send(name, patience))
            })
            .collect();
        connection.leave();
        for thread in threads {
            let _ = thread.join().expect("no panic");
        }
        assert_eq!(connection.send(b'E', 0), Err(LinkError::Closed));
        assert_eq!((connection.outbox.queued(), connection.budget.used()), (0, 0));
    });
}

// What each weakening broke, tried by hand, one at a time.
//
// | weakened                                              | fails                                               |
// |-------------------------------------------------------|-----------------------------------------------------|
// | `put` does not look again after asking                | what waits, not interrupted, the rest of a frame    |
// | `put` gives the lock away without the turn            | all but the rest of a frame and nobody waits        |
// | `keep` leaves a copied frame that waits alone         | what is copied: all three                           |
// | `end_turn` leaves what came behind                    | what is copied: all three                           |
// | `drain` asks nobody                                   | what waits (a deadlock)                             |
// | `send` goes before frames that wait                   | what waits, not interrupted, the rest of a frame    |
// | `send` goes into the middle of a frame                | not interrupted, take turns                         |
// | `flush` goes into the middle of a frame               | not interrupted, by a flush                         |
// | a patient sender leaves what came behind it           | not interrupted (a deadlock)                        |
// | the rest of a frame is kept behind the others         | the rest of a frame                                 |
// | `close` keeps what waits                              | nobody waits                                        |
// | `drain` does not look again after asking              | none: a sender told `Queued` flushes once more      |
// | `keep` copies without the turn                        | none: here a first part has always set it           |
// | `flush` does not note what it has missed              | none: here nobody marks what waits; see the tests   |
// | what goes out at once is shown as waiting             | none: here nobody looks meanwhile; see the tests    |
// | who sends what others queued does not say so          | none: here nobody waits for that; see the tests     |
