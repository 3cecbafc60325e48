//! `crates/core/src/server/threads/crew.rs`

use std::sync::Arc;

use loom::sync::Mutex;
use loom::thread;

use super::threads::crew::Crew;
use crate::models::check;

/// The workers of a server, and the work that waits for one of them.
struct Server {
    crew: Crew,
    queue: Mutex<usize>,
    /// How many handlers run, and how often work was begun.
    running: Mutex<(usize, usize)>,
    most: usize,
}

impl Server {
    /// `busy` handlers run.
    fn new(most: usize, busy: usize) -> Arc<Self> {
        let crew = Crew::new(most, most);
        // Used here first: other threads may see it from here on.
        assert!(crew.begin_stream());
        crew.end_stream();
        crew.begin_waiting();
        crew.end_waiting();
        crew.set_queued(0, 0);
        (0..busy).for_each(|_| assert!(crew.begin()));
        Arc::new(Self { crew, queue: Mutex::new(0), running: Mutex::new((busy, 0)), most })
    }

    fn run(&self) {
        let mut running = self.running.lock().expect("no panic");
        running.0 += 1;
        running.1 += 1;
        assert!(running.0 <= self.most);
    }

    /// A handler is through.
    fn end(&self) {
        self.running.lock().expect("no panic").0 -= 1;
        self.crew.end();
    }

    /// A worker has received work: runs it, or leaves it to the others.
    fn accept(&self) -> bool {
        if self.crew.begin() {
            self.run();
            return true;
        }
        let mut queue = self.queue.lock().expect("no panic");
        *queue += 1;
        self.crew.set_queued(*queue, 0);
        false
    }

    /// A worker looks for work that waits.
    fn dequeue(&self) -> bool {
        if self.crew.queued() == 0 || !self.crew.begin() {
            return false;
        }
        let mut queue = self.queue.lock().expect("no panic");
        let found = *queue > 0;
        if found {
            *queue -= 1;
            self.crew.set_queued(*queue, 0);
        }
        drop(queue);
        if found {
            self.run();
        } else {
            self.crew.end();
        }
        found
    }

    /// What a worker does before it sleeps.
    fn work(&self) {
        loop {
            while self.dequeue() {
                self.end();
            }
            if !self.crew.may_begin() {
                return;
            }
        }
    }

    fn assert_nothing_waits(&self, begun: usize) {
        assert_eq!(*self.queue.lock().expect("no panic"), 0, "work waits, and every worker sleeps");
        assert_eq!(*self.running.lock().expect("no panic"), (0, begun));
        assert!(!self.crew.may_begin());
    }
}

/// One worker receives work while the only handler that may run leaves its place in another. Returns the server, where
/// nothing waits.
fn received_while(leaves: impl FnOnce(&Server) + Send + 'static) -> Arc<Server> {
    let server = Server::new(1, 1);
    let other = Arc::clone(&server);
    let handler = thread::spawn(move || leaves(&other));
    if server.accept() {
        server.end();
    }
    server.work();
    handler.join().expect("no panic");
    server.assert_nothing_waits(1);
    server
}

#[test]
fn work_that_waits_is_found_by_who_ends_or_by_who_receives() {
    check(None, || {
        received_while(|server| {
            server.end();
            server.work();
        });
    });
}

/// The same with two handlers that return. Never more than two run.
#[test]
fn no_more_run_than_may() {
    check(Some(2), || {
        let server = Server::new(2, 2);
        let handlers = [(), ()].map(|()| {
            let server = Arc::clone(&server);
            thread::spawn(move || {
                server.end();
                server.work();
            })
        });
        for _ in 0..2 {
            if server.accept() {
                server.end();
            }
        }
        server.work();
        for handler in handlers {
            handler.join().expect("no panic");
        }
        server.assert_nothing_waits(2);
    });
}

/// The handler waits for a reply instead: it, or who receives, sees to the work.
#[test]
fn work_that_waits_is_begun_when_a_handler_begins_to_wait() {
    check(None, || {
        let server = received_while(|server| {
            server.running.lock().expect("no panic").0 -= 1;
            // It wakes the receiving thread, which does this.
            if server.crew.begin_waiting() {
                server.work();
            }
        });
        server.crew.end_waiting();
    });
}

// What each weakening broke, tried by hand, one at a time.
//
// | weakened                                             | fails                                               |
// |------------------------------------------------------|-----------------------------------------------------|
// | `begin_waiting` looks at the queue without the fence | work that waits is begun when                       |
// | `begin` looks and counts in two steps                | no more run than may                                |
