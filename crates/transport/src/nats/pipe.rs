//! The bytes of one connection, between a socket of this process and two subjects of a NATS server.
//!
//! A message on such a subject is [`HEAD`] bytes and data: flags, the message's number, and how much the sender has taken
//! of what was sent to him. So a message that is missing, or comes twice, ends the connection, and no more is under way
//! than [`WINDOW`]: a NATS server drops those who are slow to read.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::Shutdown;
use std::time::Duration;

use async_nats::{Message, StatusCode, Subject, Subscriber};
use futures_util::StreamExt as _;
use nearcall_wire::shown;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, recv};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::broker::Broker;
use super::thread::Open;

/// Bytes in front of the data: flags, number and taken.
const HEAD: usize = 1 + 8 + 8;
/// The only flag: the last message, whose data is text that says why, or nothing.
const LAST: u8 = 1;
/// The most bytes of that text.
const LONGEST_TEXT: usize = 512;

/// What may be under way to a side, and so be kept there: data, and [`MESSAGE_COST`] for every message.
const WINDOW: u64 = 1 << 20;
/// What a message with data takes beside it.
const MESSAGE_COST: u64 = 256;
/// Less room than this is not worth a message.
const MIN_ROOM: u64 = 4 << 10;
/// The most data of a message, if the NATS server takes so much.
const MAX_DATA: usize = 256 << 10;
/// The least that a NATS server has to take.
const LEAST_PAYLOAD: usize = 1 << 10;

/// A side that has sent nothing for so long says that it lives.
const BEAT: Duration = Duration::from_secs(1);
/// A side says so soon what it has taken, if it sends nothing else.
const ACKNOWLEDGE_AFTER: Duration = Duration::from_millis(20);
/// A side that was not heard for so long is gone.
const SILENCE: Duration = Duration::from_secs(10);
/// How long the last message may take to leave.
const PARTING: Duration = Duration::from_secs(1);

thread_local! {
    /// Where what a socket has is looked at. One for all connections: with one each, a thousand clients that have only said
    /// hello would keep a quarter of a gigabyte here.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; MAX_DATA + 1]);
}

/// One connection.
#[derive(Debug)]
pub(super) struct Pipe {
    broker: Broker,
    /// What comes from the other side.
    inbox: Subscriber,
    own: Subject,
    other: Subject,
    socket: UnixStream,
    ending: watch::Receiver<bool>,
    is_ending: bool,
    _open: Open,
    /// The other side has ended, or is gone.
    ended: bool,
    /// Data that the socket had no room for, and how much of the first is in it.
    waiting: VecDeque<Vec<u8>>,
    at: usize,
    /// The number of the next message, in and out.
    expected: u64,
    next: u64,
    /// What was sent, and how much of it the other side has taken.
    sent: u64,
    acknowledged: u64,
    /// What has come, how much of it the socket has taken, and how much of that the other side knows of.
    come: u64,
    taken: u64,
    told: u64,
    taken_at: Instant,
    /// Bytes that were sent and are left in the socket until the other side has taken all: none or one. So the program here
    /// sees whether that is so.
    held: usize,
    heard_at: Instant,
    sent_at: Instant,
    /// The most data of a message.
    most: usize,
}

/// Why a connection ends.
enum End {
    /// The program here has closed its side, or ends.
    Here,
    /// The other side has.
    There,
    /// The other side does what it may not, or something was lost.
    Broken(&'static str),
}

/// The subjects of a connection, and what has come on its own one.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) inbox: Subscriber,
    pub(super) own: Subject,
    pub(super) other: Subject,
}

impl Pipe {
    /// `expected` messages have come from the other side already.
    pub(super) fn new(
        broker: Broker,
        ends: Ends,
        socket: std::os::unix::net::UnixStream,
        (open, ending): (Open, watch::Receiver<bool>),
        expected: u64,
    ) -> io::Result<Self> {
        let most = broker.client.max_payload();
        if most < LEAST_PAYLOAD {
            return Err(io::Error::other(format!(
                "the NATS server takes messages of {most} bytes only (max_payload), {LEAST_PAYLOAD} are needed"
            )));
        }
        socket.set_nonblocking(true)?;
        let socket = UnixStream::from_std(socket)?;
        let Ends { inbox, own, other } = ends;
        let now = Instant::now();
        Ok(Self {
            broker,
            inbox,
            own,
            other,
            socket,
            ending,
            is_ending: false,
            _open: open,
            ended: false,
            waiting: VecDeque::new(),
            at: 0,
            expected,
            next: 0,
            sent: 0,
            acknowledged: 0,
            come: 0,
            taken: 0,
            told: 0,
            taken_at: now,
            held: 0,
            heard_at: now,
            sent_at: now,
            most: MAX_DATA.min(most - HEAD),
        })
    }

    /// Carries bytes until one side ends.
    pub(super) async fn run(mut self) {
        let broker = self.broker.clone();
        let end = tokio::select! {
            end = self.carry() => end,
            () = broker.lost() => Ok(()),
        };
        let text = match end {
            Err(End::Here) => Some(""),
            Err(End::Broken(why)) => Some(why),
            Ok(()) | Err(End::There) => None,
        };
        if let Some(text) = text {
            _ = tokio::time::timeout(PARTING, self.publish(LAST, text.as_bytes())).await;
            broker.flush(PARTING).await;
        }
        // A forked child may have a copy of the socket.
        if let Ok(socket) = self.socket.into_std() {
            _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Says that this side is ready, or why it is not.
    pub(super) async fn answer(&mut self, refusal: Option<&str>) {
        let (flags, text) = refusal.map_or((0, ""), |why| (LAST, why));
        _ = self.publish(flags, text.as_bytes()).await;
    }

    async fn carry(&mut self) -> Result<(), End> {
        let mut beats = interval(BEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.ended && self.waiting.is_empty() {
                return Err(End::There);
            }
            if self.taken - self.told >= WINDOW / 4 {
                self.publish(0, &[]).await?;
            }
            if self.held > 0 && self.acknowledged == self.sent {
                self.consume(self.held);
                self.held = 0;
            }
            let room = WINDOW.saturating_sub(self.sent - self.acknowledged + MESSAGE_COST);
            let may_send = room >= MIN_ROOM && !self.ended;
            if may_send && self.is_ending && !self.forward(room).await? {
                return Err(End::Here);
            }
            tokio::select! {
                message = self.inbox.next(), if !self.ended => match message {
                    Some(message) => self.arrived(&message)?,
                    None => return Ok(()),
                },
                _ = self.socket.readable(), if may_send => { self.forward(room).await?; }
                _ = self.socket.writable(), if !self.waiting.is_empty() => self.deliver()?,
                () = sleep_until(self.taken_at + ACKNOWLEDGE_AFTER), if self.taken > self.told => self.publish(0, &[]).await?,
                _ = beats.tick() => self.beat().await?,
                _ = self.ending.changed(), if !self.is_ending => { self.is_ending = true; }
            }
        }
    }

    /// Takes a message of the other side.
    fn arrived(&mut self, message: &Message) -> Result<(), End> {
        if message.status == Some(StatusCode::NO_RESPONDERS) {
            // Nobody is there for what was sent. What has come before is still delivered.
            self.ended = true;
            return Ok(());
        }
        let (flags, number, taken, data) = decode(&message.payload).ok_or(End::Broken("a message is malformed"))?;
        if number != self.expected {
            return Err(End::Broken("a message is missing, or came twice"));
        }
        if taken < self.acknowledged || taken > self.sent {
            return Err(End::Broken("more was taken than was sent"));
        }
        self.expected += 1;
        self.acknowledged = taken;
        self.heard_at = Instant::now();
        self.ended = flags & LAST != 0;
        if self.ended || data.is_empty() {
            return Ok(());
        }
        self.come += data.len() as u64 + MESSAGE_COST;
        if self.come - self.taken > WINDOW {
            return Err(End::Broken("more was sent than may be under way"));
        }
        let mut written = 0;
        while self.waiting.is_empty() && written < data.len() {
            match self.socket.try_write(&data[written..]) {
                Ok(some) => written += some,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return Err(End::Here),
            }
        }
        if written == data.len() {
            self.take(data.len());
        } else {
            // Copied, because the library's buffer may hold more than this.
            self.at = if self.waiting.is_empty() { written } else { self.at };
            self.waiting.push_back(data.to_vec());
        }
        Ok(())
    }

    /// Writes what waits into the socket, as far as there is room.
    fn deliver(&mut self) -> Result<(), End> {
        while let Some(first) = self.waiting.front() {
            match self.socket.try_write(&first[self.at..]) {
                Ok(some) => self.at += some,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(_) => return Err(End::Here),
            }
            if self.at == first.len() {
                let len = first.len();
                self.at = 0;
                self.waiting.pop_front();
                self.take(len);
            }
        }
        Ok(())
    }

    /// The socket has taken a message.
    fn take(&mut self, len: usize) {
        if self.taken == self.told {
            self.taken_at = Instant::now();
        }
        self.taken += len as u64 + MESSAGE_COST;
    }

    /// Sends what the socket has, at most `room` bytes. Whether it had any.
    async fn forward(&mut self, room: u64) -> Result<bool, End> {
        let most = self.most.min(room as usize) + self.held;
        let taken = SCRATCH.with_borrow_mut(|scratch| match self.look(&mut scratch[..most]) {
            Ok(0) => Err(End::Here),
            Ok(got) => Ok(Some((got, self.message(0, &scratch[self.held..got])))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(_) => Err(End::Here),
        })?;
        let Some((got, message)) = taken else { return Ok(false) };
        let sent = self.send(message).await;
        self.sent += (got - self.held) as u64 + MESSAGE_COST;
        self.consume(got - 1);
        self.held = 1;
        sent.map(|()| true)
    }

    /// Looks at what is in the socket, behind what is held there. 0: nothing more will come.
    fn look(&self, scratch: &mut [u8]) -> io::Result<usize> {
        let (socket, held) = (&self.socket, self.held);
        let mut peek = || recv(socket, &mut *scratch, RecvFlags::PEEK | RecvFlags::DONTWAIT).map(|(_, got)| got);
        socket.try_io(Interest::READABLE, || {
            let got = peek()?;
            if got > held || got == 0 {
                return Ok(got);
            }
            let mut at = [PollFd::new(socket, PollFlags::RDHUP)];
            if poll(&mut at, Some(&Timespec::default()))? == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            // It is over, perhaps with something that came since.
            Ok(peek()?).map(|got| if got > held { got } else { 0 })
        })
    }

    /// Takes bytes that were sent out of the socket.
    fn consume(&self, mut len: usize) {
        SCRATCH.with_borrow_mut(|scratch| {
            while len > 0 {
                match recv(&self.socket, &mut scratch[..len], RecvFlags::DONTWAIT) {
                    Ok((_, got)) if got > 0 => len -= got,
                    _ => return,
                }
            }
        });
    }

    /// Says that this side lives, unless it has said so just now.
    async fn beat(&mut self) -> Result<(), End> {
        if !self.ended && self.heard_at.elapsed() > SILENCE {
            return Err(End::Broken("the other side is silent"));
        }
        if self.sent_at.elapsed() * 2 > BEAT { self.publish(0, &[]).await } else { Ok(()) }
    }

    async fn publish(&mut self, flags: u8, data: &[u8]) -> Result<(), End> {
        let message = self.message(flags, data);
        self.send(message).await
    }

    /// The next message. It has to be sent.
    fn message(&mut self, flags: u8, data: &[u8]) -> Vec<u8> {
        let mut message = Vec::with_capacity(HEAD + data.len());
        message.push(flags);
        message.extend_from_slice(&self.next.to_le_bytes());
        message.extend_from_slice(&self.taken.to_le_bytes());
        message.extend_from_slice(data);
        self.next += 1;
        self.told = self.taken;
        self.sent_at = Instant::now();
        message
    }

    async fn send(&mut self, message: Vec<u8>) -> Result<(), End> {
        // With a subject for the answer, the server tells at once if nobody is there any more.
        let published =
            self.broker.client.publish_with_reply(self.other.clone(), self.own.clone(), message.into()).await;
        published.map_err(|_| End::There)
    }
}

/// The flags, the number, what was taken, and the data; `None` if this is no message of a pipe.
fn decode(payload: &[u8]) -> Option<(u8, u64, u64, &[u8])> {
    let (head, data) = payload.split_first_chunk::<HEAD>()?;
    let (flags, numbers) = head.split_first()?;
    let (number, taken) = numbers.split_first_chunk::<8>()?;
    let taken = taken.first_chunk::<8>()?;
    (flags & !LAST == 0).then(|| (*flags, u64::from_le_bytes(*number), u64::from_le_bytes(*taken), data))
}

/// Whether the first message of the other side says that it is ready; if not, why.
pub(super) fn readiness(payload: &[u8]) -> Result<(), String> {
    match decode(payload) {
        Some((0, 0, 0, [])) => Ok(()),
        Some((LAST, 0, 0, text)) if text.len() <= LONGEST_TEXT => Err(shown(&String::from_utf8_lossy(text))),
        _ => Err("what answers there is no nearcall server".into()),
    }
}
