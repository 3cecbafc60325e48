//! Freeing large memory, without waiting for it.
//!
//! The system takes 0.1 to 0.2 ms to take back a megabyte of pages. The thread that receives for all clients of a server must not
//! spend that on the last message of one of them, nor must a thread that has the interpreter. So in a process that serves, large
//! memory is freed by a thread of its own.

use std::collections::VecDeque;
use std::sync::LazyLock;
use std::thread;

use crate::lock::InnerMutex;
use crate::per_process::PerProcess;
use crate::sync::{AtomicBool, Ordering};

/// From so many bytes on, to free them takes longer than to start a thread.
const LARGE: usize = 4 << 20;
/// So many bytes may wait to be freed. What comes beyond that is freed at once: what waits still takes memory, and counts
/// against no limit.
const MOST_WAITING: usize = 64 << 20;

/// The lowest priority: nobody waits for this.
const LEAST_URGENT: i32 = 19;

static SERVES: AtomicBool = AtomicBool::new(false);
static FREEING: LazyLock<PerProcess<InnerMutex<Freeing>>> = LazyLock::new(|| PerProcess::new(InnerMutex::default));

#[derive(Default)]
struct Freeing {
    waiting: VecDeque<(Box<dyn Send>, usize)>,
    /// Bytes that wait, and those that are being freed.
    bytes: usize,
    /// A thread frees them.
    runs: bool,
}

/// This process serves: from now on large memory is freed aside.
pub fn serve() {
    // Relaxed: who does not see it yet frees at once.
    SERVES.store(true, Ordering::Relaxed);
}

/// Drops a value that has so many bytes of memory: on another thread if that takes long, and this process serves.
#[inline]
pub fn free<T: Send + 'static>(value: T, bytes: usize) {
    // Relaxed: see `serve`.
    if bytes >= LARGE && SERVES.load(Ordering::Relaxed) {
        free_aside(Box::new(value), bytes);
    }
}

#[cold]
fn free_aside(value: Box<dyn Send>, bytes: usize) {
    let freeing = FREEING.get();
    {
        let mut freeing = freeing.lock();
        if freeing.bytes + bytes > MOST_WAITING {
            drop(freeing);
            drop(value);
            return;
        }
        freeing.bytes += bytes;
        freeing.waiting.push_back((value, bytes));
        if std::mem::replace(&mut freeing.runs, true) {
            return;
        }
    }
    if thread::Builder::new().name("nearcall-freeing".into()).spawn(free_unhurried).is_err() {
        // There may be no more threads.
        free_all();
    }
}

fn free_unhurried() {
    // SAFETY: no memory is passed. On Linux this is the calling thread's own priority, and a failure leaves it as it is.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, LEAST_URGENT) };
    free_all();
}

fn free_all() {
    let freeing = FREEING.get();
    let mut done = 0;
    loop {
        let next = {
            let mut freeing = freeing.lock();
            freeing.bytes -= done;
            let next = freeing.waiting.pop_front();
            freeing.runs = next.is_some();
            next
        };
        let Some((value, bytes)) = next else { return };
        drop(value);
        done = bytes;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread::ThreadId;

    use super::*;
    use crate::lock::{Condvar, Mutex};

    /// Notes on which thread it is dropped.
    struct Noted(Arc<(Mutex<Option<ThreadId>>, Condvar)>);

    impl Drop for Noted {
        fn drop(&mut self) {
            *self.0.0.lock() = Some(thread::current().id());
            self.0.1.notify_all();
        }
    }

    /// The thread that frees a value of so many bytes.
    fn freed_by(bytes: usize) -> ThreadId {
        let noted = Arc::new((Mutex::new(None), Condvar::new()));
        free(Noted(Arc::clone(&noted)), bytes);
        let mut by = noted.0.lock();
        loop {
            match *by {
                Some(thread) => return thread,
                None => noted.1.wait(&mut by),
            }
        }
    }

    #[test]
    fn what_is_large_is_freed_by_another_thread_in_a_process_that_serves() {
        let own = thread::current().id();
        assert_eq!(freed_by(LARGE), own, "it does not serve");
        serve();
        assert_eq!(freed_by(LARGE - 1), own, "to start a thread takes longer");
        assert_eq!(freed_by(MOST_WAITING + 1), own, "it would take memory for too long");
        for _ in 0..100 {
            assert_ne!(freed_by(LARGE), own);
        }
    }
}
