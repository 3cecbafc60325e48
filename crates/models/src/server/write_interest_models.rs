//! `crates/core/src/server/connection/write_interest.rs`

use std::sync::Arc;

use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::write_interest::{Sends, WriteInterest};
use crate::models::check;

/// A client that reads slowly, and the frames that wait for it.
#[derive(Default)]
struct Client {
    state: Mutex<State>,
    changed: Condvar,
    write_interest: WriteInterest,
    /// `true`: a ring, whose reader rings once if it was asked to. `false`: a socket, whose room the poller reports as
    /// long as the socket is watched.
    rings: bool,
}

#[derive(Default)]
struct State {
    room: usize,
    queued: usize,
    out: usize,
    watched: bool,
    asked: bool,
    bell: bool,
}

impl Sends for Client {
    fn flush(&self) -> bool {
        let mut state = self.state.lock().expect("no panic");
        let now = state.queued.min(state.room);
        state.queued -= now;
        state.room -= now;
        state.out += now;
        state.asked |= state.queued > 0;
        state.queued == 0
    }

    fn is_queued(&self) -> bool {
        self.state.lock().expect("no panic").queued > 0
    }

    fn watch_room(&self, watch: bool) {
        self.state.lock().expect("no panic").watched = watch;
        self.changed.notify_all();
    }
}

impl Client {
    fn new(rings: bool) -> Arc<Self> {
        let client = Self { rings, ..Self::default() };
        // Used here first: other threads may see it from here on.
        assert!(!client.write_interest.is_set());
        Arc::new(client)
    }

    /// A worker sends a frame.
    fn send(&self) {
        let mut state = self.state.lock().expect("no panic");
        if state.queued == 0 && state.room > 0 {
            state.room -= 1;
            state.out += 1;
            return;
        }
        state.queued += 1;
        state.asked = true;
        drop(state);
        self.write_interest.set(self);
    }

    /// The client reads a frame.
    fn read(&self) {
        let mut state = self.state.lock().expect("no panic");
        state.room += 1;
        state.bell |= std::mem::take(&mut state.asked);
        self.changed.notify_all();
    }

    /// The receiving thread: flushes when it is told of room, until `frames` frames are out.
    fn receive(&self, frames: usize) {
        loop {
            let mut state = self.state.lock().expect("no panic");
            while state.out < frames && !(if self.rings { state.bell } else { state.watched && state.room > 0 }) {
                state = self.changed.wait(state).expect("no panic");
            }
            if state.out >= frames {
                return;
            }
            state.bell = false;
            drop(state);
            if self.rings || self.write_interest.is_set() {
                self.write_interest.flush(self);
            }
            self.changed.notify_all();
        }
    }
}

/// Two workers send, the client reads. All frames go out, and in the end none is marked as waiting.
fn all_goes_out(rings: bool, first: usize, second: usize) {
    let client = Client::new(rings);
    let workers = [first, second].map(|frames| {
        let client = Arc::clone(&client);
        thread::spawn(move || {
            for _ in 0..frames {
                client.send();
                // The receiving thread may wait for a frame that went out directly.
                client.changed.notify_all();
            }
        })
    });
    let reader = {
        let client = Arc::clone(&client);
        thread::spawn(move || (0..first + second).for_each(|_| client.read()))
    };
    client.receive(first + second);
    for thread in workers {
        thread.join().expect("no panic");
    }
    reader.join().expect("no panic");
    // A mark that was set after its frame was sent is removed by the next flush.
    client.write_interest.flush(&*client);
    let state = client.state.lock().expect("no panic");
    assert_eq!((state.out, state.queued), (first + second, 0));
    assert!(!client.write_interest.is_set());
}

#[test]
fn what_waits_for_room_in_a_socket_goes_out() {
    check(Some(2), || all_goes_out(false, 1, 1));
}

#[test]
fn what_waits_for_room_in_a_ring_goes_out() {
    check(Some(2), || all_goes_out(true, 1, 1));
}

#[test]
fn more_that_waits_goes_out() {
    check(Some(2), || all_goes_out(false, 2, 1));
}

// What each weakening broke, tried by hand, one at a time.
//
// | weakened                                             | fails                                        |
// |------------------------------------------------------|----------------------------------------------|
// | a bell looks at the mark, not at the queue           | in a ring                                    |
// | `flush` clears the mark before it stops watching     | in a socket, more that waits                 |
// | `flush` does not look at the queue again             | in a socket, more that waits                 |
