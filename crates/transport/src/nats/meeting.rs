//! How both sides of a connection find each other.
//!
//! A client says hello at the subject of a service, with a subject of its own for the answer. One server of those that listen
//! there gets the hello, makes a subject of its own, and answers from that. From then on both speak over these two.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use async_nats::{Message, StatusCode, Subject, Subscriber};
use futures_util::StreamExt as _;
use nearcall_platform::sys::{random, send_with_fds};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::broker::{Broker, Denial, Servers};
use super::pipe::{Ends, Pipe, readiness};
use super::taking::{Taker, Taking, take};
use super::thread::Thread;
use crate::errors::ConnectError;
use crate::link::pace::Pace;
use crate::options::Options;

/// What a client says first: the version of what the two sides then speak over their subjects.
const HELLO: &[u8] = b"nearcall/1";
/// The servers at a subject take turns: they are one queue group.
const GROUP: &str = "nearcall";
/// How all subjects for answers begin. A server publishes at no other subject that a client names.
const INBOX: &str = "_INBOX";
/// Reaches a server, on behalf of a URL. What comes is a socket to speak to it.
pub(crate) async fn dial(
    servers: &Servers,
    subject: &str,
    url: &str,
    options: &Options,
    pace: &Pace,
) -> Result<OwnedFd, ConnectError> {
    let thread = Thread::get().map_err(|error| unavailable(url, &error))?;
    let (tell, mut told) = oneshot::channel();
    let (servers, subject, shown, options) = (servers.clone(), Subject::from(subject), url.to_owned(), options.clone());
    let (own, runtime) = (thread.clone(), thread.runtime.clone());
    thread.runtime.spawn(async move {
        match reach(&own, &servers, subject, &shown, &options).await {
            Ok((pipe, socket)) => {
                // Nobody waits any more for a dial that has run out of time.
                if tell.send(Ok(socket)).is_ok() {
                    pipe.run().await;
                }
            }
            Err(error) => _ = tell.send(Err(error)),
        }
    });
    let answer =
        pace.wait(|until| runtime.block_on(async { tokio::time::timeout_at(until.into(), &mut told).await.ok() }));
    match answer.await {
        Some(Ok(Ok(socket))) => {
            pace.reach();
            Ok(socket)
        }
        Some(Ok(Err(error))) => Err(error),
        Some(Err(_)) => Err(ConnectError::Unavailable(format!("cannot connect to {url}: its thread has failed"))),
        None => Err(ConnectError::TimedOut(format!("cannot connect to {url}: no answer in time"))),
    }
}

/// A pipe to one of the servers that listen at a subject, and the socket that it fills.
async fn reach(
    thread: &Thread,
    servers: &Servers,
    subject: Subject,
    url: &str,
    options: &Options,
) -> Result<(Pipe, OwnedFd), ConnectError> {
    let broker = servers.connect(url, options).await?;
    let failed = |error: &dyn std::fmt::Display| unavailable(url, error);
    let own = inbox(options).map_err(|error| failed(&error))?;
    let mut inbox = broker.client.subscribe(own.clone()).await.map_err(|error| failed(&error))?;
    let said = broker.client.publish_with_reply(subject, own.clone(), HELLO.into()).await;
    said.map_err(|error| failed(&error))?;
    let answer = tokio::select! {
        answer = timeout(options.handshake, inbox.next()) => answer,
        denied = broker.denied() => return Err(refused(url, &denied)),
    };
    let answer = answer.map_err(|_| ConnectError::TimedOut(format!("cannot connect to {url}: no answer in time")))?;
    let answer = answer.ok_or_else(|| failed(&"the NATS server has gone"))?;
    if answer.status == Some(StatusCode::NO_RESPONDERS) {
        return Err(failed(&"nobody serves this subject; start the server first"));
    }
    readiness(&answer.payload).map_err(|why| ConnectError::Left(format!("{url} refused: {why}")))?;
    let other = answering(&answer).ok_or_else(|| failed(&"what answers there is no nearcall server"))?;
    let (here, there) = UnixStream::pair().map_err(|error| failed(&error))?;
    let pipe = Pipe::new(broker, Ends { inbox, own, other }, there, thread.enter(), 1);
    Ok((pipe.map_err(|error| failed(&error))?, here.into()))
}

/// Takes clients at a subject, on behalf of a URL, until what is returned is dropped. Each comes as a socket through `channel`.
///
/// # Errors
/// The NATS server is not there, or does not let this process in.
pub(crate) fn listen(
    servers: &Servers,
    subject: &str,
    url: &str,
    options: &Options,
    channel: OwnedFd,
) -> Result<Taking, ConnectError> {
    let thread = Thread::get().map_err(|error| unavailable(url, &error))?;
    let door = Door {
        thread: thread.clone(),
        servers: servers.clone(),
        subject: Subject::from(subject),
        url: url.to_owned(),
        options: options.clone(),
        channel,
    };
    take(&thread, door, |why| unavailable(url, why))
}

/// Where clients come to a server.
struct Door {
    thread: Thread,
    servers: Servers,
    subject: Subject,
    url: String,
    options: Options,
    channel: OwnedFd,
}

impl Taker for Door {
    type Source = Subscriber;

    async fn begin(&self) -> Result<(Broker, Subscriber), ConnectError> {
        let broker = self.servers.connect(&self.url, &self.options).await?;
        let hellos = self.subscribe(&broker).await?;
        Ok((broker, hellos))
    }

    async fn pass_on(&self, broker: &Broker, hellos: &mut Subscriber) {
        while let Some(hello) = hellos.next().await {
            if let Some(other) = answering(&hello)
                && let Some(version) = hello.payload.strip_prefix(b"nearcall/")
            {
                let refusal = (version != b"1").then_some("this server speaks another version of nearcall over NATS");
                _ = self.admit(broker.clone(), other, refusal).await;
            }
        }
    }
}

impl Door {
    /// Subscribes to the subject.
    ///
    /// # Errors
    /// The NATS server does not let this user listen there.
    async fn subscribe(&self, broker: &Broker) -> Result<Subscriber, ConnectError> {
        let failed = |error: &dyn std::fmt::Display| unavailable(&self.url, error);
        let group = GROUP.into();
        let hellos =
            broker.client.queue_subscribe(self.subject.clone(), group).await.map_err(|error| failed(&error))?;
        // Asks for an answer by nobody: whatever comes, comes after what is not allowed of the above.
        let own = inbox(&self.options).map_err(|error| failed(&error))?;
        let mut answers = broker.client.subscribe(own.clone()).await.map_err(|error| failed(&error))?;
        let nobody = inbox(&self.options).map_err(|error| failed(&error))?;
        let asked = broker.client.publish_with_reply(nobody, own, "".into()).await;
        asked.map_err(|error| failed(&error))?;
        tokio::select! {
            biased;
            denied = broker.denied() => if denied.is_of_subscription { Err(refused(&self.url, &denied)) } else { Ok(hellos) },
            _ = timeout(self.options.handshake, answers.next()) => Ok(hellos),
        }
    }

    /// Hands a client to the server, or says why not.
    async fn admit(&self, broker: Broker, other: Subject, refusal: Option<&str>) -> io::Result<()> {
        let own = inbox(&self.options)?;
        let inbox = broker.client.subscribe(own.clone()).await.map_err(io::Error::other)?;
        let (here, there) = UnixStream::pair()?;
        let mut pipe = Pipe::new(broker, Ends { inbox, own, other }, there, self.thread.enter(), 0)?;
        let handed = || send_with_fds(self.channel.as_fd(), &[0], &[here.as_fd()]).is_ok();
        let refusal = refusal.or_else(|| (!handed()).then_some("too many clients wait there to be accepted"));
        pipe.answer(refusal).await;
        if refusal.is_none() {
            self.thread.runtime.spawn(pipe.run());
        }
        Ok(())
    }
}

/// A subject for answers that nobody else can guess.
fn inbox(options: &Options) -> io::Result<Subject> {
    let prefix = options.nats.as_ref().map_or(INBOX, |login| &login.inbox);
    Ok(format!("{prefix}.{:032x}", u128::from_le_bytes(random()?)).into())
}

/// The subject from which somebody speaks.
fn answering(message: &Message) -> Option<Subject> {
    let reply = message.reply.as_ref().filter(|reply| reply.is_valid())?;
    let fine = reply.starts_with(INBOX) && reply.len() <= 256 && !reply.contains(['*', '>']);
    fine.then(|| reply.clone())
}

fn refused(url: &str, denied: &Denial) -> ConnectError {
    ConnectError::Refused(format!("cannot connect to {url}: {}", denied.why))
}

fn unavailable(url: &str, error: &dyn std::fmt::Display) -> ConnectError {
    ConnectError::Unavailable(format!("cannot connect to {url}: {error}"))
}
