//! Dialling in slices: whoever waits for a connection may stop at any time, and somebody else go on where he was.

use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use nearcall_platform::lock::Mutex;
use nearcall_platform::sys;
use rustix::event::PollFlags;

use crate::connect::{Connected, establish};
use crate::link::{ConnectError, Options};
use crate::url::Url;

/// A connection in the making: dialled, but not greeted yet. It goes on only inside [`Dial::advance`], and ends when it is
/// dropped.
pub struct Dial {
    steps: Pin<Box<dyn Future<Output = Result<Connected, ConnectError>> + Send>>,
    pace: Arc<Pace>,
}

impl std::fmt::Debug for Dial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dial").field("deadline", &self.pace.deadline).finish_non_exhaustive()
    }
}

impl Dial {
    /// A connection to `url` that is to be there within `options.handshake`. `version` is this library's.
    #[must_use]
    pub fn new(url: &Url, version: &'static str, options: &Options) -> Self {
        let pace = Arc::new(Pace::new(Instant::now() + options.handshake));
        let (url, options, own) = (url.clone(), options.clone(), Arc::clone(&pace));
        Self { steps: Box::pin(async move { establish(&url, version, &options, &own).await }), pace }
    }

    /// Goes on for at most until then, or until a signal arrives. `None` if it has not come to an end.
    ///
    /// # Errors
    /// [`ConnectError`], with a sentence that names the URL.
    ///
    /// # Panics
    /// If it has come to an end before.
    pub fn advance(&mut self, until: Instant) -> Result<Option<Connected>, ConnectError> {
        *self.pace.slice.lock() = until;
        match self.steps.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ended) => ended.map(Some),
            Poll::Pending => Ok(None),
        }
    }
}

/// How long a dial may go on: in one go, and in all.
#[derive(Debug)]
pub(crate) struct Pace {
    deadline: Instant,
    slice: Mutex<Instant>,
}

impl Pace {
    pub(crate) fn new(deadline: Instant) -> Self {
        Self { deadline, slice: Mutex::new(deadline) }
    }

    /// Lets `attempt` wait until the end of a slice, again and again until it has something. `None` if time ran out.
    pub(crate) async fn wait<T>(&self, mut attempt: impl FnMut(Instant) -> Option<T>) -> Option<T> {
        poll_fn(|_| {
            let end = self.deadline.min(*self.slice.lock());
            match attempt(end) {
                None if Instant::now() < self.deadline => Poll::Pending,
                ended => Poll::Ready(ended),
            }
        })
        .await
    }

    /// Waits until a descriptor is ready. `false` when time ran out.
    pub(crate) async fn ready(&self, fd: BorrowedFd<'_>, events: PollFlags) -> io::Result<bool> {
        let ready = self.wait(|end| match sys::wait_for(fd, events, Some(end)) {
            Ok(false) => None,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
            ended => Some(ended),
        });
        ready.await.unwrap_or(Ok(false))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_dial_goes_on_where_it_was_and_ends_with_its_time() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listen");
        let port = listener.local_addr().expect("its address").port();
        let options = Options { handshake: Duration::from_millis(300), ..Options::default() };
        let mut dial = Dial::new(&format!("tcp://127.0.0.1:{port}").parse().expect("a URL"), "test", &options);
        let mut slices = 0;
        let error = loop {
            slices += 1;
            match dial.advance(Instant::now() + Duration::from_millis(10)) {
                Ok(connected) => assert!(connected.is_none(), "nobody answers"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, ConnectError::TimedOut(_)), "{error}");
        assert!(slices > 1);
        // All of that was one connection.
        listener.set_nonblocking(true).expect("set");
        assert!(listener.accept().is_ok() && listener.accept().is_err());
    }
}
