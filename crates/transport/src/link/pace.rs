//! Work on a socket that is done in slices, because the thread that waits for it may stop at any time.

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

use crate::errors::{ConnectError, LinkError};
use crate::link::wire::Wire;
use crate::sync::{AtomicBool, Ordering};

/// How long a dial may continue: in one slice, and in all.
#[derive(Debug)]
pub struct Pace {
    deadline: Instant,
    slice: Mutex<Instant>,
    reached: AtomicBool,
}

impl Pace {
    pub(crate) fn new(deadline: Instant) -> Self {
        Self { deadline, slice: Mutex::new(deadline), reached: AtomicBool::new(false) }
    }

    /// The connection was accepted at the other end.
    pub fn reach(&self) {
        // Relaxed: only the length of waits depends on it.
        self.reached.store(true, Ordering::Relaxed);
    }

    fn is_reached(&self) -> bool {
        // Relaxed: see `reach`.
        self.reached.load(Ordering::Relaxed)
    }

    /// When the dial has to be complete.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Calls `attempt`, which may wait until the end of the slice, again and again until it returns something. `None`
    /// if time ran out.
    pub async fn wait<T>(&self, mut attempt: impl FnMut(Instant) -> Option<T>) -> Option<T> {
        self.wait_until(self.deadline, &mut attempt).await
    }

    /// Like `wait`, but no longer than `until`.
    pub(crate) async fn wait_until<T>(
        &self,
        until: Instant,
        mut attempt: impl FnMut(Instant) -> Option<T>,
    ) -> Option<T> {
        let deadline = self.deadline.min(until);
        poll_fn(|_| {
            let end = deadline.min(*self.slice.lock());
            match attempt(end) {
                None if Instant::now() < deadline => Poll::Pending,
                ended => Poll::Ready(ended),
            }
        })
        .await
    }

    /// Waits until a descriptor is ready. `false` when time ran out.
    pub async fn ready(&self, fd: BorrowedFd<'_>, events: PollFlags) -> io::Result<bool> {
        let ready = self.wait(|end| match sys::wait_for(fd, events, Some(end)) {
            Ok(false) => None,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
            ended => Some(ended),
        });
        ready.await.unwrap_or(Ok(false))
    }

    /// Sends all of `bytes`, with `fds` beside the first of them. The error is `None` when time ran out.
    pub(crate) async fn send_all(
        &self,
        wire: &impl Wire,
        mut bytes: &[u8],
        mut fds: &[BorrowedFd<'_>],
    ) -> Result<(), Option<LinkError>> {
        loop {
            let step = match (bytes, fds) {
                ([], _) => wire.flush()?.then_some(0),
                (_, []) => wire.write(&[io::IoSlice::new(bytes)])?,
                _ => match sys::send_with_fds(wire.fd(), bytes, fds) {
                    Ok(sent) => Some(sent),
                    Err(rustix::io::Errno::AGAIN) => None,
                    Err(error) => return Err(Some(error.into())),
                },
            };
            match step {
                Some(_) if bytes.is_empty() => return Ok(()),
                Some(sent) => (bytes, fds) = (&bytes[sent..], &[]),
                None if self.ready(wire.fd(), PollFlags::OUT).await.map_err(LinkError::from)? => {}
                None => return Err(None),
            }
        }
    }

    /// Reads until `into` is full. The error is `None` when time ran out.
    pub(crate) async fn receive_exactly(&self, wire: &impl Wire, mut into: &mut [u8]) -> Result<(), Option<LinkError>> {
        while !into.is_empty() {
            match wire.read(into, false) {
                Ok(Some(0)) => return Err(Some(LinkError::Closed)),
                Ok(Some(got)) => into = &mut into[got..],
                Ok(None) => {
                    if !self.ready(wire.fd(), PollFlags::IN).await.map_err(LinkError::from)? {
                        return Err(None);
                    }
                }
                Err(LinkError::Interrupted) => {}
                Err(error) => return Err(Some(error)),
            }
        }
        Ok(())
    }
}

/// Work that is done in slices.
pub(crate) struct Steps<T> {
    future: Pin<Box<dyn Future<Output = Result<T, ConnectError>> + Send>>,
    pace: Arc<Pace>,
}

impl<T> Steps<T> {
    pub(crate) fn new<F>(deadline: Instant, begin: impl FnOnce(Arc<Pace>) -> F) -> Self
    where
        F: Future<Output = Result<T, ConnectError>> + Send + 'static,
    {
        let pace = Arc::new(Pace::new(deadline));
        Self { future: Box::pin(begin(Arc::clone(&pace))), pace }
    }

    /// Continues until `until` at most. `None` if the work is not complete.
    pub(crate) fn advance(&mut self, until: Instant) -> Result<Option<T>, ConnectError> {
        *self.pace.slice.lock() = until;
        match self.future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ended) => ended.map(Some),
            Poll::Pending => Ok(None),
        }
    }

    /// Continues until the work is complete.
    pub(crate) fn finish(mut self) -> Result<T, ConnectError> {
        loop {
            if let Some(result) = self.advance(self.pace.deadline)? {
                return Ok(result);
            }
        }
    }

    /// Whether the connection was accepted at the other end.
    pub(crate) fn is_reached(&self) -> bool {
        self.pace.is_reached()
    }
}
