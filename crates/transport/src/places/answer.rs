//! An answer that a thread of its own is asked for, because it may take any time and cannot be interrupted.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use nearcall_platform::lock::{Condvar, Mutex};

use crate::link::pace::Pace;

/// An answer that may not have arrived yet.
pub(crate) struct Answer<T>(Arc<Asked<T>>);

struct Asked<T> {
    said: Mutex<Option<T>>,
    came: Condvar,
}

impl<T: Send + 'static> Answer<T> {
    /// Asks in a thread of that name. If it takes too long, the thread is left to end by itself.
    pub(crate) fn ask(name: &str, question: impl FnOnce() -> T + Send + 'static) -> io::Result<Self> {
        let asked = Arc::new(Asked { said: Mutex::new(None), came: Condvar::new() });
        let asking = Arc::clone(&asked);
        thread::Builder::new().name(name.into()).spawn(move || {
            let said = question();
            *asking.said.lock() = Some(said);
            asking.came.notify_all();
        })?;
        Ok(Self(asked))
    }

    /// The answer, or `None` if it does not arrive until `until`.
    pub(crate) async fn wait(self, until: Instant, pace: &Pace) -> Option<T> {
        let answer = pace.wait_until(until, move |end| {
            let mut said = self.0.said.lock();
            if said.is_none() {
                self.0.came.wait_for(&mut said, end.saturating_duration_since(Instant::now()));
            }
            said.take()
        });
        answer.await
    }
}
