//! What is taken from a NATS server for as long as somebody wants it: when the server is lost, it is looked for again.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use nearcall_platform::fork::Owned;
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;

use super::broker::Broker;
use super::thread::Thread;
use crate::errors::ConnectError;

/// How long a process waits before it looks for its NATS server again.
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// Something is taken until this is dropped in the process that began it.
#[derive(Debug)]
pub struct Taking(Owned<Arc<Notify>>);

impl Drop for Taking {
    fn drop(&mut self) {
        if let Some(end) = self.0.get() {
            end.notify_one();
        }
    }
}

/// Takes what comes from a NATS server.
pub(super) trait Taker: Send + Sync + 'static {
    /// By what it comes.
    type Source: Send;

    /// Connects, and asks for it.
    ///
    /// # Errors
    /// The NATS server is not there, or does not let this process have it.
    fn begin(&self) -> impl Future<Output = Result<(Broker, Self::Source), ConnectError>> + Send;

    /// Passes on what comes, until nothing more does.
    fn pass_on(&self, broker: &Broker, source: &mut Self::Source) -> impl Future<Output = ()> + Send;

    /// Nothing more is wanted.
    fn leave(&self, _broker: &Broker, _source: Self::Source) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// Takes from now on. `unavailable` makes an error of a reason.
///
/// # Errors
/// It could not begin.
pub(super) fn take(
    thread: &Thread,
    taker: impl Taker,
    unavailable: impl FnOnce(&dyn Display) -> ConnectError,
) -> Result<Taking, ConnectError> {
    let (tell, told) = oneshot::channel();
    let end = Arc::new(Notify::new());
    let ended = Arc::clone(&end);
    thread.runtime.spawn(async move { keep(&taker, &ended, tell).await });
    told.blocking_recv().map_err(|_| unavailable(&"its thread has failed"))??;
    Ok(Taking(Owned::new(end)))
}

async fn keep(taker: &impl Taker, end: &Notify, tell: oneshot::Sender<Result<(), ConnectError>>) {
    let (mut first, mut pauses) = (Some(tell), Pauses::default());
    loop {
        match taker.begin().await {
            Ok((broker, mut source)) => {
                pauses = Pauses::default();
                _ = first.take().map(|tell| tell.send(Ok(())));
                tokio::select! {
                    () = taker.pass_on(&broker, &mut source) => {}
                    () = broker.lost() => {}
                    () = end.notified() => return taker.leave(&broker, source).await,
                }
            }
            Err(error) => {
                if let Some(tell) = first.take() {
                    _ = tell.send(Err(error));
                    return;
                }
            }
        }
        tokio::select! {
            () = sleep(pauses.next()) => {}
            () = end.notified() => return,
        }
    }
}

/// The pauses before a NATS server is looked for once more: each is twice as long as the last.
pub(super) struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(PAUSE)
    }
}

impl Pauses {
    pub(super) fn next(&mut self) -> Duration {
        let next = (self.0 * 2).min(LONGEST_PAUSE);
        std::mem::replace(&mut self.0, next)
    }
}
