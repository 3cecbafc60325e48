//! Workers in reserve: threads that the server needs no more at the moment. They sleep for a while before they end, as the next
//! slow handlers may need them: to start a thread takes the interpreter several times.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nearcall_platform::lock::{Condvar, Mutex};

/// So long a worker that nobody calls stays.
const STAY: Duration = Duration::from_secs(1);

/// The workers in reserve.
#[derive(Debug, Default)]
pub(in crate::server) struct Reserve(Mutex<Sleepers>);

#[derive(Debug, Default)]
struct Sleepers {
    /// Each sleeps on its own. Who came last is called first, so that those end which are really too many.
    conditions: Vec<Arc<Condvar>>,
    /// The server has stopped.
    closed: bool,
}

impl Reserve {
    /// The calling thread is in reserve. Whether it was called; if not, it ends.
    pub(in crate::server) fn wait(&self) -> bool {
        self.wait_for(STAY)
    }

    fn wait_for(&self, stay: Duration) -> bool {
        let mut sleepers = self.0.lock();
        if sleepers.closed {
            return false;
        }
        let own = Arc::new(Condvar::new());
        sleepers.conditions.push(Arc::clone(&own));
        let end = Instant::now() + stay;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                own.wait_for(&mut sleepers, left);
            }
            match sleepers.conditions.iter().position(|other| Arc::ptr_eq(other, &own)) {
                None => return !sleepers.closed,
                Some(place) if left.is_zero() => {
                    sleepers.conditions.remove(place);
                    return false;
                }
                Some(_) => {}
            }
        }
    }

    /// Calls one of them, if there are any. Whether it did.
    pub(in crate::server) fn call(&self) -> bool {
        let mut sleepers = self.0.lock();
        let Some(one) = sleepers.conditions.pop() else { return false };
        one.notify_all();
        true
    }

    /// All of them end, and whoever would join them.
    pub(in crate::server) fn close(&self) {
        let mut sleepers = self.0.lock();
        sleepers.closed = true;
        sleepers.conditions.drain(..).for_each(|one| one.notify_all());
    }

    pub(in crate::server) fn len(&self) -> usize {
        self.0.lock().conditions.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn until(done: impl Fn() -> bool) {
        while !done() {
            thread::yield_now();
        }
    }

    #[test]
    fn who_came_last_is_called_first_and_the_end_of_the_server_calls_nobody() {
        let reserve = Arc::new(Reserve::default());
        assert!(!reserve.call(), "there is nobody");
        let (told, outcomes) = channel();
        let threads: Vec<_> = (0..3)
            .map(|number| {
                let (own, told) = (Arc::clone(&reserve), told.clone());
                let thread = thread::spawn(move || told.send((number, own.wait_for(LONG))).unwrap());
                until(|| reserve.len() == number + 1);
                thread
            })
            .collect();
        assert!(reserve.call());
        assert_eq!(outcomes.recv(), Ok((2, true)));
        reserve.close();
        let mut rest = [outcomes.recv().unwrap(), outcomes.recv().unwrap()];
        rest.sort_unstable();
        assert_eq!(rest, [(0, false), (1, false)]);
        assert!(!reserve.call() && !reserve.wait_for(LONG));
        for thread in threads {
            thread.join().unwrap();
        }
    }

    #[test]
    fn who_is_not_called_for_a_while_ends() {
        let reserve = Reserve::default();
        assert!(!reserve.wait_for(Duration::from_millis(1)));
        assert_eq!(reserve.len(), 0);
    }
}
