//! The one thread of this process that speaks with NATS servers.
//!
//! A broker stands between the two sides, so that some thread has to read what it brings for all of them, whoever waits. The
//! thread begins with the first `nats://` URL. A forked child begins its own.

use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::sync::{LazyLock, Once};
use std::time::Duration;

use nearcall_platform::lock::InnerMutex;
use nearcall_platform::per_process::PerProcess;
use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;

/// How long a process that ends waits for what its connections have not sent yet.
const FAREWELL: Duration = Duration::from_secs(2);

static THREAD: LazyLock<PerProcess<InnerMutex<Option<Thread>>>> =
    LazyLock::new(|| PerProcess::new(InnerMutex::default));

/// The thread, for those who give it work.
#[derive(Debug, Clone)]
pub(super) struct Thread {
    pub(super) runtime: Handle,
    /// Becomes true when the process ends.
    ending: watch::Sender<bool>,
    /// How many connections may have something to send.
    open: watch::Sender<usize>,
}

impl Thread {
    /// The thread of this process.
    ///
    /// # Errors
    /// The system gives no thread, or no descriptors for it.
    pub(super) fn get() -> io::Result<Self> {
        static WATCH: Once = Once::new();
        let thread = THREAD.get();
        let mut begun = thread.lock();
        if let Some(thread) = &*begun {
            return Ok(thread.clone());
        }
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let made =
            Self { runtime: runtime.handle().clone(), ending: watch::Sender::new(false), open: watch::Sender::new(0) };
        std::thread::Builder::new()
            .name("nearcall-nats".into())
            .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
        // SAFETY: the function lives as long as the program. If there is no room for it, the farewell is left out.
        WATCH.call_once(|| _ = unsafe { libc::atexit(bid_farewell) });
        *begun = Some(made.clone());
        Ok(made)
    }

    /// To be held by a connection as long as it may have something to send; and what tells it that the process ends.
    pub(super) fn enter(&self) -> (Open, watch::Receiver<bool>) {
        self.open.send_modify(|open| *open += 1);
        (Open(self.open.clone()), self.ending.subscribe())
    }
}

/// A connection that may have something to send.
#[derive(Debug)]
pub(super) struct Open(watch::Sender<usize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

/// What was written to a socket leaves also when the process ends: so it has to be with these connections.
extern "C" fn bid_farewell() {
    let Some(thread) = THREAD.get().lock().clone() else { return };
    let Ok((mut told, teller)) = UnixStream::pair() else { return };
    thread.ending.send_replace(true);
    let mut open = thread.open.subscribe();
    thread.runtime.spawn(async move {
        _ = open.wait_for(|open| *open == 0).await;
        drop(teller);
    });
    _ = told.set_read_timeout(Some(FAREWELL));
    _ = told.read(&mut [0]);
}
