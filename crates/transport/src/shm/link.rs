//! A connection over shared memory.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nearcall_ring::{Consumer, MappedLane, Producer, Segment, SpinBudget, cpu, spin};
use parking_lot::{Condvar, Mutex};
use rustix::event::PollFlags;
use smallvec::SmallVec;

use super::regions::{Mapped, Note, Outgoing};
use super::socket::{Inbox, ring_bell};
use crate::fork;
use crate::link::{Link, LinkError, Options};
use crate::message::{INLINE, Incoming};
use crate::peer::Peer;
use crate::sys;

/// How long a sender looks for room before it tells the reader that it waits: about what the reader needs to make some.
const ROOM_SPIN_NS: u64 = 20_000;

#[derive(Debug)]
pub(crate) struct ShmLink {
    segment: Segment,
    socket: OwnedFd,
    peer: Peer,
    sender: Mutex<Sender>,
    receiver: Mutex<Receiver>,
    /// Longest message the peer takes, and this side.
    peer_limit: u64,
    limit: u64,
    closed: AtomicBool,
    generation: u32,
    /// Threads that wait for room while another one receives.
    room_waiters: AtomicU32,
    room: (Mutex<()>, Condvar),
}

#[derive(Debug)]
struct Sender {
    producer: Producer<MappedLane>,
    regions: Outgoing,
}

#[derive(Debug)]
struct Receiver {
    consumer: Consumer<MappedLane>,
    regions: Mapped,
    inbox: Inbox,
    budget: SpinBudget,
}

impl ShmLink {
    pub(crate) fn new(socket: OwnedFd, segment: Segment, peer: Peer, peer_limit: u64, options: &Options) -> Self {
        let (producer, consumer) = segment.lanes();
        segment.own_side().publish_cpu();
        Self {
            segment,
            socket,
            peer,
            sender: Mutex::new(Sender { producer, regions: Outgoing::default() }),
            receiver: Mutex::new(Receiver {
                consumer,
                regions: Mapped::default(),
                inbox: Inbox::default(),
                budget: SpinBudget::new(options.spin),
            }),
            peer_limit,
            limit: options.max_message,
            closed: AtomicBool::new(false),
            generation: fork::generation(),
            room_waiters: AtomicU32::new(0),
            room: (Mutex::new(()), Condvar::new()),
        }
    }

    fn is_closed(&self) -> bool {
        // Acquire: whoever sees the flag sees the shutdown that came before it.
        self.closed.load(Ordering::Acquire)
    }

    fn wake_peer(&self) {
        if self.segment.peer_side().claim_wake() {
            ring_bell(&self.socket);
        }
    }

    /// Writes one record, waiting for room through `blocked`.
    fn write(
        &self,
        producer: &mut Producer<MappedLane>,
        parts: &[&[u8]],
        len: usize,
        note: bool,
        blocked: &mut dyn FnMut() -> Result<(), LinkError>,
    ) -> Result<(), LinkError> {
        let mut starving = false;
        while !producer.try_write(parts, note)? {
            if self.is_closed() {
                return Err(LinkError::Closed);
            }
            let pays = || self.segment.peer_side().runs_elsewhere();
            if spin(ROOM_SPIN_NS, || producer.fits(len).unwrap_or(true), pays).is_some() {
                continue;
            }
            producer.declare_starved();
            starving = true;
            if !producer.fits(len)? {
                blocked()?;
            }
        }
        if starving {
            producer.declare_sated();
        }
        Ok(())
    }

    /// Lets threads that wait for room look again; called whenever the bell may have rung for them.
    fn notify_room(&self) {
        // SeqCst: a waiter counts itself before it looks for room the last time.
        if self.room_waiters.load(Ordering::SeqCst) > 0 {
            let _guard = self.room.0.lock();
            self.room.1.notify_all();
        }
    }

    /// Waits until the ring has something, the bell rings, or the deadline passes.
    fn sleep(&self, receiver: &mut Receiver, deadline: Option<Instant>) -> Result<(), LinkError> {
        let own = self.segment.own_side();
        let Receiver { consumer, inbox, budget, .. } = receiver;
        own.publish_cpu();
        let mut limit = budget.next();
        if let Some(deadline) = deadline {
            let left = deadline.saturating_duration_since(Instant::now()).as_nanos();
            limit = limit.min(u64::try_from(left).unwrap_or(u64::MAX));
        }
        let pays = || {
            own.publish_cpu();
            self.segment.peer_side().runs_elsewhere()
        };
        if let Some(waited) = spin(limit, || consumer.has_work(), pays) {
            budget.learn(waited);
            return Ok(());
        }
        let begun = cpu::monotonic_ns();
        own.park();
        if consumer.has_record() {
            own.unpark();
            return Ok(());
        }
        if consumer.producer_waits(None) {
            ring_bell(&self.socket);
        }
        let woken = match deadline {
            // One system call sleeps and empties the socket at once.
            None => inbox.read(&self.socket, true),
            Some(_) => match sys::wait_for(self.socket.as_fd(), PollFlags::IN, deadline) {
                Ok(true) => inbox.read(&self.socket, false),
                Ok(false) => Ok(()),
                Err(error) => Err(error.into()),
            },
        };
        own.unpark();
        budget.learn(limit + (cpu::monotonic_ns() - begun));
        if let Some(cost) = own.wake_cost_ns() {
            budget.learn_wake_cost(cost);
        }
        self.notify_room();
        match woken {
            // What the peer wrote before it died is still delivered.
            Err(LinkError::Closed) if consumer.has_record() => Ok(()),
            other => other,
        }
    }

    fn take(&self, receiver: &mut Receiver) -> Result<Option<Incoming>, LinkError> {
        let Receiver { consumer, regions, inbox, .. } = receiver;
        let Some(record) = consumer.peek()? else {
            if consumer.producer_waits(None) {
                ring_bell(&self.socket);
            }
            return Ok(None);
        };
        let mut bytes = SmallVec::new();
        if record.len <= INLINE {
            // A fixed length makes clearing it a few instructions.
            bytes = SmallVec::from_buf_and_len([0; INLINE], record.len);
        } else {
            bytes.resize(record.len, 0);
        }
        consumer.copy(&mut bytes);
        consumer.consume(record);
        if consumer.producer_waits(Some(record)) {
            ring_bell(&self.socket);
        }
        if !record.note {
            return Ok(Some(Incoming { bytes, lease: None }));
        }
        let note = bytes.first_chunk::<{ Note::LEN }>().map(Note::decode);
        let note = note.ok_or_else(|| LinkError::Broken("a note in the ring is too short".into()))?;
        let lease = regions.open(note, self.limit, inbox, &self.socket)?;
        bytes.drain(..Note::LEN);
        Ok(Some(Incoming { bytes, lease: Some(lease) }))
    }
}

impl Link for ShmLink {
    fn send(
        &self,
        head: &[u8],
        payload: &[&[u8]],
        blocked: &mut dyn FnMut() -> Result<(), LinkError>,
    ) -> Result<(), LinkError> {
        let len: usize = payload.iter().map(|piece| piece.len()).sum();
        if len as u64 > self.peer_limit {
            return Err(LinkError::TooLong { len, limit: self.peer_limit });
        }
        if self.is_closed() || self.segment.peer_side().has_left() {
            return Err(LinkError::Closed);
        }
        self.segment.own_side().publish_cpu();
        let mut sender = self.sender.lock();
        let Sender { producer, regions } = &mut *sender;
        // Half the longest record: so that a reader can take one while the next is written.
        if head.len() + len <= producer.longest() / 2 {
            match payload {
                [] => self.write(producer, &[head], head.len(), false, blocked)?,
                [one] => self.write(producer, &[head, one], head.len() + len, false, blocked)?,
                many => {
                    let parts: SmallVec<[&[u8]; 8]> = std::iter::once(head).chain(many.iter().copied()).collect();
                    self.write(producer, &parts, head.len() + len, false, blocked)?;
                }
            }
        } else {
            let note = regions.place(&self.socket, payload, len)?.encode();
            if note.len() + head.len() > producer.longest() {
                return Err(LinkError::TooLong { len: head.len(), limit: producer.longest() as u64 });
            }
            self.write(producer, &[&note, head], note.len() + head.len(), true, blocked)?;
        }
        drop(sender);
        self.wake_peer();
        Ok(())
    }

    fn try_receive(&self) -> Result<Option<Incoming>, LinkError> {
        self.take(&mut self.receiver.lock())
    }

    fn receive(&self, deadline: Option<Instant>) -> Result<Option<Incoming>, LinkError> {
        let mut receiver = self.receiver.lock();
        if let Some(incoming) = self.take(&mut receiver)? {
            return Ok(Some(incoming));
        }
        self.sleep(&mut receiver, deadline)?;
        self.take(&mut receiver)
    }

    fn spin(&self) -> bool {
        let mut receiver = self.receiver.lock();
        let Receiver { consumer, budget, .. } = &mut *receiver;
        let limit = budget.next();
        self.segment.own_side().publish_cpu();
        let pays = || self.segment.peer_side().runs_elsewhere();
        let waited = spin(limit, || consumer.has_work(), pays);
        if let Some(waited) = waited {
            budget.learn(waited);
        }
        waited.is_some()
    }

    fn wait_room(&self, receiving: bool, timeout: Duration) -> Result<(), LinkError> {
        if receiving {
            // The bell rings for room and for arrivals alike.
            return self.sleep(&mut self.receiver.lock(), Some(Instant::now() + timeout));
        }
        // SeqCst: counted before the last look at the flag the waker reads.
        self.room_waiters.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.room.0.lock();
        // The timeout covers a bell that rang between our last look for room and this wait.
        self.room.1.wait_for(&mut guard, timeout.min(Duration::from_millis(2)));
        drop(guard);
        self.room_waiters.fetch_sub(1, Ordering::SeqCst);
        if self.is_closed() { Err(LinkError::Closed) } else { Ok(()) }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn arm(&self) -> bool {
        let receiver = self.receiver.lock();
        self.segment.own_side().park();
        if receiver.consumer.has_record() {
            self.segment.own_side().unpark();
            return false;
        }
        if receiver.consumer.producer_waits(None) {
            ring_bell(&self.socket);
        }
        true
    }

    fn disarm(&self) {
        self.segment.own_side().unpark();
        self.segment.own_side().publish_cpu();
    }

    fn readable(&self) -> Result<(), LinkError> {
        let mut receiver = self.receiver.lock();
        let Receiver { consumer, inbox, budget, .. } = &mut *receiver;
        let read = inbox.read(&self.socket, false);
        if let Some(cost) = self.segment.own_side().wake_cost_ns() {
            budget.learn_wake_cost(cost);
        }
        self.notify_room();
        match read {
            Err(LinkError::Closed) if consumer.has_record() => Ok(()),
            other => other,
        }
    }

    fn is_memory(&self) -> bool {
        true
    }

    fn spinning_pays(&self) -> bool {
        let peer = self.segment.peer_side();
        !peer.is_parked() && peer.runs_elsewhere()
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }

    fn close(&self) {
        if self.generation != fork::generation() {
            // It is our parent's, who goes on using it.
            return;
        }
        // Release: pairs with the acquire in `is_closed`.
        self.closed.store(true, Ordering::Release);
        self.segment.own_side().leave();
        // Both sides' sleepers wake with an end of file; the descriptor itself stays ours until drop.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        self.notify_room();
    }
}
