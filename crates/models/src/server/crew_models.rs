//! `crates/core/src/server/threads/crew.rs`

use std::sync::Arc;

use loom::sync::Mutex;
use loom::thread;

use super::threads::crew::Crew;
use crate::models::check;

/// The only client.
const CLIENT: u64 = 1;

/// The workers of a server, and the work that waits for one of them.
struct Server {
    crew: Crew,
    /// Calls, and streams.
    queue: Mutex<(usize, usize)>,
    /// How many handlers run, and how often work was begun.
    running: Mutex<(usize, usize)>,
    most: usize,
}

impl Server {
    /// `busy` handlers run.
    fn new(most: usize, busy: usize) -> Arc<Self> {
        let crew = Crew::new(most, most);
        // Used here first: other threads may see it from here on.
        assert!(crew.begin_stream(CLIENT));
        crew.end_stream(CLIENT);
        crew.begin_waiting();
        crew.end_waiting();
        crew.set_queued(0, 0);
        (0..busy).for_each(|_| assert!(crew.begin()));
        Arc::new(Self { crew, queue: Mutex::new((0, 0)), running: Mutex::new((busy, 0)), most })
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
        queue.0 += 1;
        self.crew.set_queued(queue.0, queue.1);
        false
    }

    /// A worker has received a stream: runs it, or leaves it to the others.
    fn accept_stream(&self) -> bool {
        let begins = self.crew.begin();
        if begins && self.crew.begin_stream(CLIENT) {
            self.run();
            return true;
        }
        if begins {
            self.crew.end();
        }
        self.crew.let_stream_wait(CLIENT);
        let mut queue = self.queue.lock().expect("no panic");
        queue.1 += 1;
        self.crew.set_queued(queue.0, queue.1);
        false
    }

    /// A stream is through.
    fn end_stream(&self) {
        self.crew.end_stream(CLIENT);
        self.end();
    }

    /// A worker looks for work that waits, and runs it.
    fn dequeue(&self) -> bool {
        if !self.crew.has_queued() || !self.crew.begin() {
            return false;
        }
        let streams = self.crew.next_stream();
        let mut queue = self.queue.lock().expect("no panic");
        let is_stream = queue.1 > 0 && streams.is_some();
        let found = is_stream || queue.0 > 0;
        if is_stream {
            queue.1 -= 1;
        } else if found {
            queue.0 -= 1;
        }
        self.crew.set_queued(queue.0, queue.1);
        drop(queue);
        if is_stream {
            assert!(self.crew.begin_queued_stream(CLIENT), "nobody else takes it in these models");
        }
        if found {
            self.run();
            if is_stream {
                self.crew.end_stream(CLIENT);
            }
            self.running.lock().expect("no panic").0 -= 1;
        }
        self.crew.end();
        found
    }

    /// What a worker does before it sleeps.
    fn work(&self) {
        loop {
            while self.dequeue() {}
            if !self.crew.may_begin() {
                return;
            }
        }
    }

    fn assert_nothing_waits(&self, begun: usize) {
        assert_eq!(*self.queue.lock().expect("no panic"), (0, 0), "work waits, and every worker sleeps");
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

/// A client has as many places of streams as it may while other threads are free. Its next stream is found by who ends
/// the one that runs, or by who receives.
#[test]
fn a_stream_that_waits_for_its_clients_share_is_begun() {
    check(Some(3), || {
        let server = Server::new(2, 0);
        assert!(server.accept_stream());
        let other = Arc::clone(&server);
        let handler = thread::spawn(move || {
            other.end_stream();
            other.work();
        });
        if server.accept_stream() {
            server.end_stream();
        }
        server.work();
        handler.join().expect("no panic");
        server.assert_nothing_waits(2);
    });
}

// What each weakening broke, tried by hand, one at a time.
//
// | weakened                                             | fails                                               |
// |------------------------------------------------------|-----------------------------------------------------|
// | `begin_waiting` looks at the queue without the fence | work that waits is begun when                       |
// | `begin` looks and counts in two steps                | no more run than may                                |
