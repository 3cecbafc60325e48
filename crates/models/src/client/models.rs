//! `crates/core/src/client/table/leadership.rs`

use std::sync::Arc;
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::leadership::ClientLeadership;
use crate::models::check;
use crate::sync::thread::{Thread, current};

const SLICE: Duration = Duration::from_millis(50);

/// A connection with several callers, of which only the leader receives.
struct Connection {
    receiving: ClientLeadership,
    /// Counts received replies. Only the leader may touch this: loom fails the model if two threads do at once.
    link: UnsafeCell<u32>,
    /// The callers of the replies that are on their way, in order.
    arriving: Mutex<Vec<usize>>,
    arrived: Condvar,
    table: Mutex<Vec<Waiting>>,
}

#[derive(Default)]
struct Waiting {
    delivered: bool,
    thread: Option<Thread>,
}

impl Connection {
    fn new(callers: usize) -> Arc<Self> {
        let receiving = ClientLeadership::default();
        drop(receiving.try_lead());
        assert!(!receiving.is_led());
        receiving.follow(Duration::ZERO); // nobody leads: all atomics are there from here on
        Arc::new(Self {
            receiving,
            link: UnsafeCell::new(0),
            arriving: Mutex::default(),
            arrived: Condvar::new(),
            table: Mutex::new((0..callers).map(|_| Waiting::default()).collect()),
        })
    }

    /// The peer answers.
    fn answer(&self, caller: usize) {
        self.arriving.lock().expect("no panic").push(caller);
        self.arrived.notify_all();
    }

    /// Waits as the core does: a caller that cannot lead registers in the table, then follows. A follower is woken by
    /// its delivered reply, or by the leader that leaves; there is no timeout to help.
    fn wait(&self, me: usize) {
        loop {
            if let Some(_lead) = self.receiving.try_lead() {
                return self.lead(me);
            }
            {
                let mut table = self.table.lock().expect("no panic");
                if table[me].delivered {
                    break;
                }
                table[me].thread = Some(current());
            }
            self.receiving.follow(SLICE);
            let mut table = self.table.lock().expect("no panic");
            table[me].thread = None;
            if table[me].delivered {
                break;
            }
        }
        self.receiving.pass_on();
    }

    /// Receives for all callers, until its own reply has arrived.
    fn lead(&self, me: usize) {
        loop {
            if self.table.lock().expect("no panic")[me].delivered {
                return;
            }
            let mut arriving = self.arriving.lock().expect("no panic");
            while arriving.is_empty() {
                arriving = self.arrived.wait(arriving).expect("no panic");
            }
            let whose = arriving.remove(0);
            drop(arriving);
            // SAFETY: loom fails the model if anybody else has it.
            self.link.with_mut(|count| unsafe { *count += 1 });
            let mut table = self.table.lock().expect("no panic");
            table[whose].delivered = true;
            let woken = table[whose].thread.take();
            drop(table);
            if let Some(woken) = woken {
                woken.unpark();
            }
        }
    }
}

fn replies_reach(preemptions: Option<usize>, order: &'static [usize]) {
    check(preemptions, move || {
        let connection = Connection::new(order.len());
        let threads: Vec<_> = (1..order.len())
            .map(|me| {
                let connection = Arc::clone(&connection);
                thread::spawn(move || connection.wait(me))
            })
            .collect();
        for &caller in order {
            connection.answer(caller);
        }
        connection.wait(0);
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
}

/// There is one leader at a time, and what it did with the link happens before what the next leader does.
#[test]
fn one_leads_after_the_other() {
    check(None, || {
        let connection = Connection::new(0);
        let other = Arc::clone(&connection);
        let receive = |connection: &Connection| {
            if let Some(_lead) = connection.receiving.try_lead() {
                // SAFETY: loom fails the model if anybody else has it.
                connection.link.with_mut(|count| unsafe { *count += 1 });
            }
        };
        let thread = thread::spawn(move || receive(&other));
        receive(&connection);
        thread.join().expect("no panic");
    });
}

/// No waiting caller is stranded, no matter which caller leads and in which order the replies arrive.
#[test]
fn both_of_two_get_their_replies() {
    replies_reach(Some(3), &[0, 1]);
}

#[test]
fn both_of_two_get_their_replies_the_other_way_round() {
    replies_reach(Some(3), &[1, 0]);
}

#[test]
fn all_of_three_get_their_replies() {
    replies_reach(Some(2), &[1, 2, 0]);
}

/// The replies arrive while the callers wait, from a peer that is a thread of its own.
#[test]
fn replies_that_come_late_find_their_callers() {
    check(Some(2), || {
        let connection = Connection::new(2);
        let other = Arc::clone(&connection);
        let caller = thread::spawn(move || other.wait(1));
        let other = Arc::clone(&connection);
        let peer = thread::spawn(move || {
            other.answer(1);
            other.answer(0);
        });
        connection.wait(0);
        caller.join().expect("no panic");
        peer.join().expect("no panic");
    });
}

// What each weakening broke, tried by hand, one at a time.
//
// | weakened                                      | fails                                |
// |-----------------------------------------------|--------------------------------------|
// | `try_lead` exchanges `Relaxed`                | one leads after the other            |
// | `ClientLead::drop` stores `Relaxed`                 | the same                             |
// | the fence in `follow`, or in `drop`, `AcqRel` | all with replies                     |
// | `drop` wakes nobody                           | all with replies                     |
// | `pass_on` wakes nobody                        | all of three                         |
