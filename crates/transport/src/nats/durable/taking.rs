//! Messages that a NATS server has kept, for one of a group.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::AckKind;
use async_nats::jetstream::consumer::AckPolicy;
use async_nats::jetstream::consumer::pull::{self, MessagesErrorKind};
use async_nats::jetstream::message::{Acker, Message};
use futures_util::{FutureExt as _, StreamExt as _};
use nearcall_platform::lock::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{sleep, timeout};

use super::{Durable, name_of};
use crate::errors::ConnectError;
use crate::nats::broker::Broker;
use crate::nats::taking::{self, Taker, Taking};
use crate::nats::thread::Thread;
use crate::options::Options;

/// So many messages may be with this process, and not handled yet.
const MAX_TAKEN: u32 = 64;
/// How long the NATS server waits for word of a message before it gives it to another member of the group. This side waits twice as long
/// for word that the server has messages for it, or none.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it gets word.
const BEAT: Duration = Duration::from_secs(2);
/// The pause before a message comes again whose handler has failed. It doubles each time.
const AGAIN: Duration = Duration::from_millis(100);
const LONGEST_AGAIN: Duration = Duration::from_secs(60);
/// How long one that takes no more waits for what has come to be handled.
const FAREWELL: Duration = Duration::from_secs(10);

/// What has become of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It was handled: it does not come again for this group.
    Handled,
    /// It was not, and comes again after a pause.
    Failed,
    /// Nobody can handle it, now or later: it does not come again either.
    Useless,
}

/// The word of a message that is awaited. If this is dropped, the message comes again at once.
#[derive(Debug)]
pub struct Delivery(Mutex<Option<oneshot::Sender<Settled>>>);

impl Delivery {
    /// Says what has become of the message. The first word counts.
    pub fn settle(&self, how: Settled) {
        let tell = self.0.lock().take();
        // Nobody hears it any more when the process ends.
        _ = tell.map(|tell| tell.send(how));
    }
}

type Sink = Box<dyn Fn(Vec<u8>, Delivery) + Send + Sync>;

/// Gets messages of a subject as a member of a group, from now on. `sink` is called with each, in the thread that reads for all, and must not
/// wait.
///
/// # Errors
/// The NATS server is not there, keeps no messages, or does not let this process in.
pub fn take(place: Durable, options: &Options, group: &str, sink: Sink) -> Result<Taking, ConnectError> {
    let thread = Thread::get().map_err(|error| place.unavailable(&error))?;
    let taker = Member {
        thread: thread.clone(),
        place,
        options: options.clone(),
        group: name_of(group),
        sink,
        room: Arc::new(Semaphore::new(MAX_TAKEN as usize)),
    };
    let place = taker.place.clone();
    taking::take(&thread, taker, |why| place.unavailable(why))
}

/// A member of a group.
struct Member {
    thread: Thread,
    place: Durable,
    options: Options,
    group: String,
    sink: Sink,
    room: Arc<Semaphore>,
}

impl Taker for Member {
    type Source = pull::Stream;

    async fn begin(&self) -> Result<(Broker, pull::Stream), ConnectError> {
        let (broker, _, stream) = self.place.reach(&self.options).await?;
        let failed = |error: &dyn fmt::Display| {
            self.place.unavailable(&format!("the group {:?} gets no messages: {error}", self.group))
        };
        let config = pull::Config {
            durable_name: Some(self.group.clone()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: PATIENCE,
            filter_subject: self.place.subject.clone(),
            ..pull::Config::default()
        };
        let consumer = stream.get_or_create_consumer(&self.group, config).await.map_err(|error| failed(&error))?;
        // What is on its way counts as not handled, too. The server says now and then that it knows of the wish for messages:
        // one that was lost would else be noticed when it has expired, after half a minute.
        let messages = consumer.stream().max_messages_per_batch(MAX_TAKEN as usize / 2).heartbeat(PATIENCE);
        let messages = messages.messages().await;
        Ok((broker, messages.map_err(|error| failed(&error))?))
    }

    async fn pass_on(&self, _broker: &Broker, messages: &mut pull::Stream) {
        loop {
            // While there is no room, nobody looks for the server's word.
            let was_full = self.room.available_permits() == 0;
            let Ok(permit) = Arc::clone(&self.room).acquire_owned().await else { return };
            let Some(message) = next(messages, was_full).await else { return };
            let (tell, told) = oneshot::channel();
            let times = message.info().map_or(1, |info| info.delivered);
            let (message, acker) = Message::split(message);
            self.thread.runtime.spawn(attend(acker, told, times, permit));
            (self.sink)(message.payload.into(), Delivery(Mutex::new(Some(tell))));
        }
    }

    /// Waits for what has come to be handled, also if the process ends meanwhile.
    async fn leave(&self, broker: &Broker, mut messages: pull::Stream) {
        let (_open, _) = self.thread.enter();
        // Those that have come and were not passed on go to others.
        while let Some(Some(Ok(message))) = messages.next().now_or_never() {
            _ = message.ack_with(AckKind::Nak(None)).await;
        }
        drop(messages);
        _ = timeout(FAREWELL, self.room.acquire_many(MAX_TAKEN)).await;
        broker.flush(PATIENCE).await;
    }
}

/// The next message. `None` if the server has said nothing for too long, or the consumer was taken away. With `looks_late` some of
/// its word may have come and not been seen.
async fn next(messages: &mut pull::Stream, mut looks_late: bool) -> Option<Message> {
    loop {
        // The library looks how late it is only when it is asked.
        match timeout(PATIENCE, messages.next()).await {
            Err(_) => {}
            Ok(Some(Ok(message))) => return Some(message),
            Ok(Some(Err(error))) if looks_late && error.kind() == MessagesErrorKind::MissingHeartbeat => {
                looks_late = false;
            }
            Ok(_) => return None,
        }
    }
}

/// Tells the NATS server that somebody is at a message, and in the end what has become of it.
async fn attend(acker: Acker, mut told: oneshot::Receiver<Settled>, times: i64, permit: OwnedSemaphorePermit) {
    // What cannot be told is noticed by the NATS server: the message comes again.
    let word = loop {
        tokio::select! {
            settled = &mut told => break match settled {
                Ok(Settled::Handled) => AckKind::Ack,
                Ok(Settled::Failed) => AckKind::Nak(Some(pause(times))),
                Ok(Settled::Useless) => AckKind::Term,
                Err(_) => AckKind::Nak(None),
            },
            () = sleep(BEAT) => { _ = acker.ack_with(AckKind::Progress).await; }
        }
    };
    _ = acker.ack_with(word).await;
    drop(permit);
}

/// How long a message that has failed so many times rests.
fn pause(times: i64) -> Duration {
    let doubled = times.clamp(1, 20) - 1;
    (AGAIN * (1 << doubled)).min(LONGEST_AGAIN)
}
